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
from collections.abc import Callable, Iterator

import msgspec

from clew.errors import FilesError
from clew.workspace.ignore import IGNORE_FILES, Rules
from clew.workspace.index import Folder, Index, Signature, signature, trusted
from clew.workspace.trees import DIR, LINK, MODES, Entry, is_control
from clew.workspace.values import Limits

STAGING = re.compile(rb"\.clew-restore-[0-9a-f]{32}")

TOO_LARGE = "larger than"
MAX_RULES = 2**20  # bytes of one ignore file

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


class Walked(msgspec.Struct):
    """An index in which the `dirty` places still have to be read."""

    index: Index
    dirty: list[int]
    start: int
    flagged: list[tuple[bytes, str]] = []
    fresh: dict[int, Signature] = {}  #: what dirty files look like: first as the walk saw them, then as they were read


def walk(place: Place, old: Index | None, key: bytes = b"") -> Walked:
    """Look at the directory. `old` is left as it is; where nothing changed it is the answer."""
    return _Walk(place, old, key).run()


def stat_all(index: Index) -> list[Signature | None]:
    """The signature of every item now, or None where it is gone."""
    now: list[Signature | None] = []
    for folder in [None, *index.folders]:
        paths = index.paths[:1] if folder is None else index.paths[folder.first : folder.first + len(folder.names)]
        try:
            now += map(signature, map(os.lstat, paths))
        except OSError:
            del now[0 if folder is None else folder.first :]
            now += map(look, paths)
    return now


def look(path: bytes) -> Signature | None:
    """One signature, or None where nothing can be seen."""
    try:
        return signature(os.lstat(path))
    except OSError:
        return None


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
        self.now: list[Signature | None] = []
        self.gone = True  # something that was known is not there any more
        self.inside: dict[int, list[Folder]] = {}  # the folders of the old index, by the number of the one above
        self.numbers: dict[bytes, tuple[int, int]] = {}  # path -> number and first place in the old index
        self.rules: dict[bytes, Rules] = {}

    def run(self) -> Walked:
        self.new.sigs[0] = trusted(signature(os.lstat(self.place.root)), self.start)
        known: dict[bytes, Folder] = {}
        if self.old is not None:
            self.now = stat_all(self.old)
            if self.now == self.old.sigs:
                return Walked(self.old, [], self.start)
            self.gone = None in self.now
            known = {folder.path: folder for folder in self.old.folders}
            for folder in self.old.folders[1:]:
                self.inside.setdefault(folder.parent, []).append(folder)
            self.numbers = {folder.path: (number, folder.first) for number, folder in enumerate(self.old.folders)}
        todo: list[tuple[bytes, int, int, bool]] = [(b"", 0, -1, False)]
        while todo:
            path, at, parent, anew = todo.pop()
            self._check_limits()
            folder = Folder(path, at, parent, len(self.new.paths), [], [])
            number = len(self.new.folders)
            self.new.folders.append(folder)
            anew = self._fill(folder, known.get(path), anew)
            todo += ((below, child, number, anew) for below, child in self._below(folder))
        return Walked(self.new, self.dirty, self.start, self.flagged, self.fresh)

    def _below(self, folder: Folder) -> Iterator[tuple[bytes, int]]:
        """The directories in a folder: their paths and places."""
        if folder.tree is not None:  # taken over whole, so its directories are the ones it had
            number, first = self.numbers[folder.path]
            shift = folder.first - first
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

    def _fill(self, folder: Folder, old: Folder | None, anew: bool) -> bool:
        """Give a folder its items; the answer is whether the folders below must be judged anew."""
        if old is None or self.old is None:
            self._items(folder, self._names(folder), {}, anew=True)
            return True
        places = slice(old.first, old.first + len(old.names))
        now, before = self.now[places], self.old.sigs[places]
        listed = self.now[old.at] == self.old.sigs[old.at]
        if listed and not anew and now == before and not (self.gone and None in now):
            folder.names, folder.skipped, folder.tree = old.names, old.skipped, old.tree
            self.new.paths += self.old.paths[places]
            self.new.entries += self.old.entries[places]
            self.new.sigs += before
            return False
        rules = [name for name in old.names if name in IGNORE_FILES]
        anew = anew or any(now[i] != before[i] for i, name in enumerate(old.names) if name in IGNORE_FILES)
        known = dict(zip(old.names, range(old.first, places.stop), strict=True))
        if anew or None in now or not listed:
            names = self._names(folder)
            anew = anew or [name for name in names if name in IGNORE_FILES] != rules
            self._items(folder, names, known, anew)
        else:
            folder.skipped = [skipped for skipped in old.skipped if skipped[0] not in known]
            self._items(folder, old.names, known, anew)
        return anew

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

    def _items(self, folder: Folder, names: list[bytes], known: dict[bytes, int], anew: bool) -> None:
        base = self.new.paths[folder.at] + b"/"
        for name in names:
            at = known.get(name)
            sig = None if at is None else self.now[at]
            if sig is None:
                sig = look(base + name)
            if sig is None:
                continue  # gone since the directory was listed
            old = None if at is None or self.old is None else self.old.entries[at]
            if old is None or anew:
                reason = self._skip(folder, name, base + name, stat.S_ISDIR(sig[4]))
                if reason is not None:
                    folder.skipped.append((name, reason))
                    if name in IGNORE_FILES:  # its rules count even where it is itself ignored
                        self._add(folder, name, base, trusted(sig, self.start), None)
                    continue
            if old is not None and at is not None and self.old is not None and sig == self.old.sigs[at]:
                self._add(folder, name, base, sig, old)
            else:
                self._judge(folder, name, base, sig, old)

    def _judge(self, folder: Folder, name: bytes, base: bytes, sig: Signature, old: Entry | None) -> None:
        """Add an item that is new or changed."""
        mode, seen = sig[4], trusted(sig, self.start)
        if stat.S_ISDIR(mode):
            ref = old.ref if old is not None and old.kind == DIR else b""
            self._add(folder, name, base, seen, Entry(DIR, mode & MODES, 0, ref))
        elif stat.S_ISLNK(mode):
            try:
                target = os.readlink(base + name)
            except OSError:
                return  # replaced since it was looked at: its directory is listed again next time
            self._add(folder, name, base, seen, Entry(LINK, 0, 0, target))
        elif not stat.S_ISREG(mode):
            folder.skipped.append((name, "neither a file, a link nor a directory"))
        elif sig[2] > self.place.limits.file_bytes:
            folder.skipped.append((name, f"{TOO_LARGE} {self.place.limits.file_bytes} bytes (limits.file_bytes)"))
            self._add(folder, name, base, seen, None)
        else:
            self.dirty.append(len(self.new.paths))
            self.fresh[len(self.new.paths)] = sig
            self._add(folder, name, base, None, None)

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
