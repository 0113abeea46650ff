"""The walk: bring an index up to date with the directory, reading as little as possible.

Known items are compared by signature; a directory whose own signature is unchanged is not listed again; a file whose
signature differs, or could not be trusted, is *dirty* and will be read. A changed ignore file lists its directory and
everything below it anew, because what was skipped may count now.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import compress, count
from operator import ne
from typing import NamedTuple

import msgspec

from backtrail.errors import FilesError
from backtrail.workspace.exclusions import Exclusions, FolderExclusions, ScanRoot, unreadable
from backtrail.workspace.ignore import IGNORE_FILES
from backtrail.workspace.index import Folder, Index, Signature, sight_of, signature, trusted
from backtrail.workspace.trees import DIR, FILE, LINK, MODES, PIECES, TreeEntry

TOO_LARGE = "larger than"
_RULES = frozenset(IGNORE_FILES)

_STAND = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

Progress = Callable[[int, int], object]


class Same(NamedTuple):
    """A folder with the items it had: if what is read turns out to be what it was, it is the same tree as well."""

    folder: Folder
    old: Folder
    entries: Sequence[TreeEntry | None]


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


def walk(place: ScanRoot, old: Index | None, key: bytes = b"") -> Walked:
    """Look at the directory. `old` is left as it is; where nothing changed it is the answer."""
    return _Walk(place, old, key).run()


def differing(index: Index) -> dict[int, list[Signature | None]]:
    """The folders (by number) of whose items any looks different now, with the signatures of all their items: None
    where one is gone. What looks the same is forgotten at once, which keeps ten thousand signatures out of memory."""
    found: dict[int, list[Signature | None]] = {}
    lstat = os.lstat
    for number, folder in enumerate(index.folders):
        if not folder.names:
            continue
        places = slice(folder.first, folder.first + len(folder.names))
        try:
            # Relative to the directory: the way to it is walked once, and not once for each of its items.
            handle = os.open(index.paths[folder.at], _STAND)
        except (FileNotFoundError, NotADirectoryError):
            found[number] = [None] * len(folder.names)
            continue
        except OSError:
            found[number] = [look(path) for path in index.paths[places]]
            continue
        try:
            now: list[Signature | None] = [signature(lstat(name, dir_fd=handle)) for name in folder.names]
        except OSError:
            found[number] = [look(path) for path in index.paths[places]]
            continue
        finally:
            os.close(handle)
        if folder.sight is None:
            folder.sight = sight_of(index.sigs[places])
        if folder.sight is None or sight_of(now) != folder.sight:
            found[number] = now
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
        entries: Sequence[TreeEntry | None] = (),
        names: Sequence[bytes] = (),
    ) -> None:
        self.now, self.sigs, self.entries, self.names = now, sigs, entries, names

    @cached_property
    def at(self) -> dict[bytes, int]:
        """Where in the columns each name is."""
        return {name: at for at, name in enumerate(self.names)}

    def changed(self) -> list[int]:
        """Which of them look different, or could not be trusted."""
        return list(compress(count(), map(ne, self.now, self.sigs)))


class _Touched(NamedTuple):
    """A folder in which contents and signatures changed, and names were at most added."""

    known: _Known
    changed: list[int]
    skipped: list[tuple[bytes, str]]
    added: list[bytes]


class _Walk:
    def __init__(self, place: ScanRoot, old: Index | None, key: bytes) -> None:
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
        self.root: Signature = (0, 0, 0, 0, 0)
        self.inside: dict[int, list[Folder]] = {}  # the folders of the old index, by the number of the one above
        self.numbers: dict[bytes, int] = {}  # path -> number in the old index
        self.touched: dict[int, _Touched | None] = {}
        self.skips = Exclusions(place)

    def run(self) -> Walked:
        self.root = signature(os.lstat(self.place.root))
        self.new.sigs[0] = trusted(self.root, self.start)
        if self.old is not None:
            self.now = differing(self.old)
            if not self.now and self.root == self.old.sigs[0]:
                return Walked(self.old, [], self.start)
            self.numbers = {folder.path: number for number, folder in enumerate(self.old.folders)}
            patched = self._patched(self.old)
            if patched is not None:
                return patched
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
        return self._walked()

    def _walked(self) -> Walked:
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
        if number not in self.now and self._is_listed(old) and not anew:
            folder.names, folder.skipped = old.names, old.skipped
            folder.tree, folder.files, folder.size = old.tree, old.files, old.size
            self._take_over(places)
            return False
        touched = None if anew else self._touch(number)
        if touched is not None:
            folder.names, folder.skipped = list(old.names), list(touched.skipped)
            self._take_over(places)
            self._refresh(folder, touched)
            self._items(folder, touched.added, _Known(), anew)
            if len(folder.names) == len(old.names):
                self.same.append(Same(folder, old, touched.known.entries))
            return False
        known = self._known(number)
        names = self._names(folder)
        anew = anew or _RULES.intersection(names) != _RULES.intersection(old.names)
        anew = anew or any(old.names[at] in _RULES for at in known.changed())
        self._items(folder, names, known, anew)
        return anew

    # -- folders that hold what they held -----------------------------------------------------------------------------

    def _patched(self, old: Index) -> Walked | None:
        """The index with other signatures and contents, if every folder still holds the names it held: then whatever
        did not change need not even be passed by."""
        todo = [0, *(number for number in self.now if number > 0)]
        touched: dict[int, _Touched] = {}
        while todo:
            number = todo.pop()
            found = self._touch(number)
            if found is None or found.added:
                return None
            touched[number] = found
            folder = old.folders[number]
            for at in found.changed:
                entry = found.known.entries[at]
                if entry is not None and entry.kind == DIR:
                    todo.append(self.numbers[folder.path + folder.names[at] + b"/"])
        new = self.new = Index(self.new.key, list(old.folders), old.paths, list(old.sigs), list(old.entries))
        new.sigs[0] = trusted(self.root, self.start)
        for number, found in sorted(touched.items()):
            self._own(number)
            folder, was = new.folders[number], old.folders[number]
            folder.skipped = found.skipped
            if found.changed:
                folder.tree = None
                self._refresh(folder, found)
                self.same.append(Same(folder, was, found.known.entries))
        return self._walked()

    def _own(self, number: int) -> None:
        """Copy a folder, and those above it, so that the old index stays as it is when they are sealed."""
        while number >= 0 and self.old is not None and self.new.folders[number] is self.old.folders[number]:
            self.new.folders[number] = msgspec.structs.replace(self.new.folders[number], sight=None)
            number = self.new.folders[number].parent

    def _touch(self, number: int) -> _Touched | None:
        """What changed in a folder; None if it has to be gone through item by item."""
        if number not in self.touched:
            self.touched[number] = self._touched(number)
        return self.touched[number]

    def _touched(self, number: int) -> _Touched | None:
        assert self.old is not None
        old, known = self.old.folders[number], self._known(number)
        changed = known.changed()
        if None in known.now:
            return None
        for at in changed:
            if not self._is_plain(known, at, old.names[at]):
                return None
        if self._is_listed(old):
            return _Touched(known, changed, old.skipped, [])
        try:
            names = os.listdir(self.old.paths[old.at])
        except OSError:
            return None
        more = sorted(set(names).difference(old.names))
        if len(names) - len(more) < len(old.names) or not _RULES.isdisjoint(more):
            return None
        touched = _Touched(known, changed, [item for item in old.skipped if item[0] in known.at], [])
        inside = self.skips.inside(old.path) if more else None
        for name in more:
            sig = look(self.old.paths[old.at] + b"/" + name)
            reason = None if sig is None or inside is None else inside.reason(name, stat.S_ISDIR(sig[4]))
            if reason is not None:
                touched.skipped.append((name, reason))
            elif sig is not None:
                touched.added.append(name)
        return touched

    def _known(self, number: int) -> _Known:
        assert self.old is not None
        folder = self.old.folders[number]
        places = slice(folder.first, folder.first + len(folder.names))
        sigs = self.old.sigs[places]
        return _Known(self.now.get(number, sigs), sigs, self.old.entries[places], folder.names)

    def _is_listed(self, old: Folder) -> bool:
        """Whether a directory itself looks as it did, so that it holds the names it held."""
        if self.old is None or old.parent < 0:
            return self.old is not None and self.root == self.old.sigs[0]
        now = self.now.get(old.parent)
        return now is None or now[old.at - self.old.folders[old.parent].first] == self.old.sigs[old.at]

    def _is_plain(self, known: _Known, at: int, name: bytes) -> bool:
        """Whether an item that changed is as much a part of the snapshot as it was, and no more."""
        sig, old = known.now[at], known.entries[at]
        if sig is None or old is None or name in _RULES:
            return False
        if stat.S_ISDIR(sig[4]) or old.kind == DIR:
            return stat.S_ISDIR(sig[4]) and old.kind == DIR
        return stat.S_ISREG(sig[4]) and sig[2] <= self.place.limits.file_bytes

    def _refresh(self, folder: Folder, touched: _Touched) -> None:
        """Give the items that changed their signatures, and have those read that may hold something else."""
        for number in touched.changed:
            at, sig = folder.first + number, touched.known.now[number]
            assert sig is not None
            self.new.sigs[at], self.new.entries[at] = self._changed(at, sig, touched.known.entries[number])

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
        inside: FolderExclusions | None = None
        for name in names:
            at = known.at.get(name)
            sig = None if at is None else known.now[at]
            if sig is None:
                sig = look(base + name)
                if sig is None:
                    continue  # gone since the directory was listed
            old = None if at is None else known.entries[at]
            if old is None or anew:
                inside = inside or self.skips.inside(folder.path)
                reason = inside.reason(name, stat.S_ISDIR(sig[4]))
                if reason is not None:
                    folder.skipped.append((name, reason))
                    if name in _RULES:  # its rules count even where it is itself ignored
                        self._add(folder, name, base, trusted(sig, self.start), None)
                    continue
            if old is not None and at is not None and sig == known.sigs[at]:
                self._add(folder, name, base, sig, old)
            else:
                self._judge(folder, name, base, sig, old)

    def _judge(self, folder: Folder, name: bytes, base: bytes, sig: Signature, old: TreeEntry | None) -> None:
        """Add an item that is new or changed."""
        kind = stat.S_IFMT(sig[4])
        if kind == stat.S_IFREG and sig[2] > self.place.limits.file_bytes:
            folder.skipped.append((name, f"{TOO_LARGE} {self.place.limits.file_bytes} bytes (limits.file_bytes)"))
            self._add(folder, name, base, trusted(sig, self.start), None)
        elif kind in (stat.S_IFREG, stat.S_IFDIR):
            self._add(folder, name, base, *self._changed(len(self.new.paths), sig, old))
        elif kind == stat.S_IFLNK:
            try:
                target = os.readlink(base + name)
            except OSError:
                return  # replaced since it was looked at: its directory is listed again next time
            self._add(folder, name, base, trusted(sig, self.start), TreeEntry(LINK, 0, 0, target))
        else:
            folder.skipped.append((name, "neither a file, a link nor a directory"))

    def _changed(self, at: int, sig: Signature, old: TreeEntry | None) -> tuple[Signature | None, TreeEntry | None]:
        """Signature and entry of a directory or a file that is new or changed; a file has none before it is read."""
        if stat.S_ISDIR(sig[4]):
            ref = old.ref if old is not None and old.kind == DIR else b""
            return trusted(sig, self.start), TreeEntry(DIR, sig[4] & MODES, 0, ref)
        if old is not None and old.kind in (FILE, PIECES):
            self.before.add(old.ref)
        self.dirty.append(at)
        self.fresh[at] = sig
        return None, None

    def _add(self, folder: Folder, name: bytes, base: bytes, sig: Signature | None, entry: TreeEntry | None) -> None:
        folder.names.append(name)
        self.new.paths.append(base + name)
        self.new.sigs.append(sig)
        self.new.entries.append(entry)
