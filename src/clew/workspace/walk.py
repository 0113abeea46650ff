"""The walk: bring an index up to date with the directory, reading as little as possible.

Known items are compared by signature; a directory whose own signature is unchanged is not listed again; a file whose
signature differs, or could not be trusted, is *dirty* and will be read. A changed ignore file lists its directory and
everything below it anew, because what was skipped may count now.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from clew.errors import FilesError
from clew.workspace.ignore import IGNORE_FILES, Rules
from clew.workspace.index import Folder, Index, Signature, signature, trusted
from clew.workspace.trees import DIR, FILE, LINK, MODES, PIECES, Entry, is_control
from clew.workspace.values import Limits

STAGING = re.compile(rb"\.clew-restore-[0-9a-f]{32}")

TOO_LARGE = "larger than"
MAX_RULES = 2**20  # bytes of one ignore file

_STAND = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

Progress = Callable[[int, int], None]


class Place(msgspec.Struct, frozen=True):
    """Which directory, and by which rules it is looked at."""

    root: bytes  #: absolute, without symlinks
    own: tuple[bytes, ...] = ()  #: files and directories of the store itself, absolute
    limits: Limits = Limits()
    unreadable: str = "raise"  #: or "flag"

    @property
    def key(self) -> bytes:
        """What an index depends on besides the directory."""
        return msgspec.msgpack.encode((self.root, self.own, self.limits.file_bytes))


class Same(NamedTuple):
    """A folder with the items it had: if what is read turns out to be what it was, it is the same tree as well."""

    folder: Folder
    old: Folder
    entries: Sequence[Entry | None]


class Walked(msgspec.Struct):
    """An index in which the `dirty` places still have to be read."""

    index: Index
    dirty: list[int]
    start: int
    flagged: list[tuple[bytes, str]] = []
    fresh: dict[int, Signature] = {}  #: what dirty files look like: first as the walk saw them, then as they were read
    same: list[Same] = []
    before: set[bytes] = set()  #: what dirty files were

    def settle(self) -> None:
        """All is read. A file that was only touched leaves its folder's tree as it was."""
        for folder, old, entries in self.same:
            if self.index.entries[folder.first : folder.first + len(entries)] == entries:
                folder.tree, folder.files, folder.size = old.tree, old.files, old.size


def walk(place: Place, old: Index | None, key: bytes = b"") -> Walked:
    """Look at the directory. `old` is left as it is; where nothing changed it is the answer."""
    return _Walk(place, old, key).run()


def differing(index: Index) -> dict[int, list[Signature | None]]:
    """The folders (by number) of whose items any looks different now, with the signatures of all their items: None
    where one is gone. What looks the same is forgotten at once, which keeps ten thousand signatures out of memory."""
    found: dict[int, list[Signature | None]] = {}
    lstat = os.lstat
    for number, folder in enumerate(index.folders):
        places = slice(folder.first, folder.first + len(folder.names))
        try:
            # Relative to the directory: the way to it is walked once, and not once for each of its items.
            handle = os.open(index.paths[folder.at], _STAND) if folder.names else -1
            try:
                now: list[Signature | None] = [signature(lstat(name, dir_fd=handle)) for name in folder.names]
            finally:
                if handle >= 0:
                    os.close(handle)
            if now != index.sigs[places]:
                found[number] = now
        except OSError:
            found[number] = [look(path) for path in index.paths[places]]
    return found


def look(path: bytes) -> Signature | None:
    """One signature, or None where nothing can be seen."""
    try:
        return signature(os.lstat(path))
    except OSError:
        return None


class _Known:
    """The items of a folder as they look now, and as the index has them."""

    def __init__(
        self,
        now: Sequence[Signature | None] = (),
        sigs: Sequence[Signature | None] = (),
        entries: Sequence[Entry | None] = (),
        names: Iterable[bytes] = (),
    ) -> None:
        self.now, self.sigs, self.entries = now, sigs, entries
        self.at = {name: at for at, name in enumerate(names)}

    @property
    def gone(self) -> bool:
        """Whether any of them is not there any more."""
        return None in self.now

    def changed(self) -> list[int]:
        """Which of them look different, or could not be trusted."""
        return [at for at, sig in enumerate(self.now) if sig != self.sigs[at]]


class _Walk:
    def __init__(self, place: Place, old: Index | None, key: bytes) -> None:
        self.place = place
        self.old = old
        self.start = time.time_ns()
        self.deadline = time.monotonic() + place.limits.seconds
        self.new = Index(key, [], [place.root], [None], [None])
        self.dirty: list[int] = []
        self.fresh: dict[int, Signature] = {}
        self.flagged: list[tuple[bytes, str]] = []
        self.now: dict[int, list[Signature | None]] = {}  # by the number in the old index, where it differs from that
        self.same: list[Same] = []
        self.before: set[bytes] = set()
        self.inside: dict[int, list[Folder]] = {}  # the folders of the old index, by the number of the one above
        self.numbers: dict[bytes, int] = {}  # path -> number in the old index
        self.rules: dict[bytes, Rules] = {}

    def run(self) -> Walked:
        root = signature(os.lstat(self.place.root))
        self.new.sigs[0] = trusted(root, self.start)
        if self.old is not None:
            self.now = differing(self.old)
            if not self.now and root == self.old.sigs[0]:
                return Walked(self.old, [], self.start)
            self.now[-1] = [root]  # as if it were the only item of a folder above
            self.numbers = {folder.path: number for number, folder in enumerate(self.old.folders)}
            for folder in self.old.folders[1:]:
                self.inside.setdefault(folder.parent, []).append(folder)
        todo: list[tuple[bytes, int, int, bool]] = [(b"", 0, -1, False)]
        while todo:
            path, at, parent, anew = todo.pop()
            self._check_limits()
            folder = Folder(path, at, parent, len(self.new.paths), [], [])
            number = len(self.new.folders)
            self.new.folders.append(folder)
            anew = self._fill(folder, self.numbers.get(path), anew)
            todo += ((below, child, number, anew) for below, child in self._below(folder))
        return Walked(self.new, self.dirty, self.start, self.flagged, self.fresh, self.same, self.before)

    def _below(self, folder: Folder) -> Iterator[tuple[bytes, int]]:
        """The directories in a folder: their paths and places."""
        if folder.tree is not None and self.old is not None:  # taken over whole, so its directories are those it had
            number = self.numbers[folder.path]
            shift = folder.first - self.old.folders[number].first
            for below in self.inside.get(number, ()):
                if self.new.entries[below.at + shift] is not None:
                    yield below.path, below.at + shift
            return
        for name, child in zip(folder.names, folder.places, strict=True):
            entry = self.new.entries[child]
            if entry is not None and entry.kind == DIR:
                yield folder.path + name + b"/", child

    def _check_limits(self) -> None:
        if len(self.new.paths) > self.place.limits.files:
            raise FilesError(self.place.root, f"it holds more than {self.place.limits.files} files (limits.files)")
        if time.monotonic() > self.deadline:
            raise FilesError(self.place.root, f"looking took over {self.place.limits.seconds:g} s (limits.seconds)")

    def _fill(self, folder: Folder, number: int | None, anew: bool) -> bool:
        """Give a folder its items; the answer is whether the folders below must be judged anew."""
        if number is None or self.old is None:
            self._items(folder, self._names(folder), _Known(), anew=True)
            return True
        old = self.old.folders[number]
        places = slice(old.first, old.first + len(old.names))
        now, listed = self.now.get(number), self._is_listed(old)
        if now is None and listed and not anew:
            folder.names, folder.skipped = old.names, old.skipped
            folder.tree, folder.files, folder.size = old.tree, old.files, old.size
            self._take_over(places)
            return False
        before = self.old.sigs[places]
        known = _Known(before if now is None else now, before, self.old.entries[places], old.names)
        changed = known.changed()
        anew = anew or any(old.names[at] in IGNORE_FILES for at in changed)
        names = old.names
        if anew or not listed or known.gone:
            names = self._names(folder)
            anew = anew or [name for name in names if name in IGNORE_FILES] != [
                name for name in old.names if name in IGNORE_FILES
            ]
            more = [name for name in names if name not in known.at]
            skipped = [item for item in old.skipped if item[0] in known.at]
            in_place = not anew and len(names) - len(more) == len(old.names)
        else:
            folder.skipped = [item for item in old.skipped if item[0] not in known.at]
            more, skipped, in_place = [], list(old.skipped), True
        if in_place and all(self._is_plain(known.now[at], known.entries[at]) for at in changed):
            folder.skipped = skipped
            self._refresh(folder, known, places, changed)
            self._items(folder, more, _Known(), anew)
            if len(folder.names) == len(old.names):
                self.same.append(Same(folder, old, known.entries))
        else:
            self._items(folder, names, known, anew)
        return anew

    def _is_listed(self, old: Folder) -> bool:
        """Whether a directory itself looks as it did, so that it holds the names it held."""
        now = self.now.get(old.parent)
        if now is None or self.old is None:
            return True
        return now[old.at - self.old.folders[old.parent].first if old.parent >= 0 else 0] == self.old.sigs[old.at]

    def _is_plain(self, sig: Signature | None, old: Entry | None) -> bool:
        """Whether an item that changed is as much a part of the snapshot as it was."""
        if sig is None or old is None:
            return False
        return stat.S_ISDIR(sig[4]) or (stat.S_ISREG(sig[4]) and sig[2] <= self.place.limits.file_bytes)

    def _refresh(self, folder: Folder, known: _Known, places: slice, changed: list[int]) -> None:
        """Take over a folder's items, but for the signatures and contents of those that changed."""
        folder.names = list(known.at)
        self._take_over(places)
        for number in changed:
            at, sig = folder.first + number, known.now[number]
            assert sig is not None
            self.new.sigs[at], self.new.entries[at] = self._changed(at, sig, known.entries[number])

    def _take_over(self, places: slice) -> None:
        if self.old is not None:
            self.new.paths += self.old.paths[places]
            self.new.entries += self.old.entries[places]
            self.new.sigs += self.old.sigs[places]

    def _names(self, folder: Folder) -> list[bytes]:
        try:
            return sorted(os.listdir(self.new.paths[folder.at]))
        except (FileNotFoundError, NotADirectoryError):
            self.new.sigs[self.new.folders[folder.parent].at if folder.parent >= 0 else 0] = None
        except OSError as error:
            if folder.parent < 0 or self.place.unreadable == "raise":
                raise unreadable(self.new.paths[folder.at], error) from error
            self.flagged.append((folder.path[:-1], f"unreadable: {error.strerror}"))
        # Not an empty directory: one that the snapshot knows nothing about.
        self.new.entries[folder.at] = self.new.sigs[folder.at] = None
        return []

    # -- one item ---------------------------------------------------------------------------------------------------

    def _items(self, folder: Folder, names: list[bytes], known: _Known, anew: bool) -> None:
        base = self.new.paths[folder.at] + b"/"
        for name in names:
            at = known.at.get(name)
            sig = None if at is None else known.now[at]
            if sig is None:
                sig = look(base + name)
            if sig is None:
                continue  # gone since the directory was listed
            old = None if at is None else known.entries[at]
            if old is None or anew:
                reason = self._skip(folder, name, base + name, stat.S_ISDIR(sig[4]))
                if reason is not None:
                    folder.skipped.append((name, reason))
                    if name in IGNORE_FILES:  # its rules count even where it is itself ignored
                        self._add(folder, name, base, trusted(sig, self.start), None)
                    continue
            if old is not None and at is not None and sig == known.sigs[at]:
                self._add(folder, name, base, sig, old)
            else:
                self._judge(folder, name, base, sig, old)

    def _judge(self, folder: Folder, name: bytes, base: bytes, sig: Signature, old: Entry | None) -> None:
        """Add an item that is new or changed."""
        mode, seen = sig[4], trusted(sig, self.start)
        if stat.S_ISLNK(mode):
            try:
                target = os.readlink(base + name)
            except OSError:
                return  # replaced since it was looked at: its directory is listed again next time
            self._add(folder, name, base, seen, Entry(LINK, 0, 0, target))
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            folder.skipped.append((name, "neither a file, a link nor a directory"))
        elif stat.S_ISREG(mode) and sig[2] > self.place.limits.file_bytes:
            folder.skipped.append((name, f"{TOO_LARGE} {self.place.limits.file_bytes} bytes (limits.file_bytes)"))
            self._add(folder, name, base, seen, None)
        else:
            self._add(folder, name, base, *self._changed(len(self.new.paths), sig, old))

    def _changed(self, at: int, sig: Signature, old: Entry | None) -> tuple[Signature | None, Entry | None]:
        """Signature and entry of a directory or a file that is new or changed; a file has none before it is read."""
        if stat.S_ISDIR(sig[4]):
            ref = old.ref if old is not None and old.kind == DIR else b""
            return trusted(sig, self.start), Entry(DIR, sig[4] & MODES, 0, ref)
        if old is not None and old.kind in (FILE, PIECES):
            self.before.add(old.ref)
        self.dirty.append(at)
        self.fresh[at] = sig
        return None, None

    def _add(self, folder: Folder, name: bytes, base: bytes, sig: Signature | None, entry: Entry | None) -> None:
        folder.names.append(name)
        self.new.paths.append(base + name)
        self.new.sigs.append(sig)
        self.new.entries.append(entry)

    def _skip(self, folder: Folder, name: bytes, full: bytes, is_dir: bool) -> str | None:
        if is_control(name):
            return "version control"
        if any(full == own or full.startswith(own + b"-") for own in self.place.own):  # with its -wal, -shm, -lock, …
            return "the store itself"
        if not folder.path and is_dir and STAGING.fullmatch(name):
            return "a restore at work"
        rules = self._rules_in(folder.path)
        return "ignored by rule" if rules.ignores(folder.path + name, is_dir) else None

    def _rules_in(self, path: bytes) -> Rules:
        """The rules in a folder, read from the directory on the first question."""
        rules = self.rules.get(path)
        if rules is None:
            above = self._rules_in(path[: path[:-1].rfind(b"/") + 1]) if path else Rules()
            rules = self.rules[path] = above.below(path, self._ignore_files(path))
        return rules

    def _ignore_files(self, path: bytes) -> Iterator[bytes]:
        for name in IGNORE_FILES:
            full = self.place.root + b"/" + path + name
            try:
                handle = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link: git does not follow it either
                    continue
                raise unreadable(full, error) from error
            with os.fdopen(handle, "rb") as file:
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    yield file.read(MAX_RULES)


def unreadable(path: bytes, error: OSError) -> FilesError:
    return FilesError(
        path,
        f"it cannot be read ({error.strerror}): let clew read it, name it in .clewignore, "
        "or open the workspace with unreadable='flag' to go on without it",
    )
