"""The walk: bring an index up to date with the directory, reading as little as possible.

Known items are compared by signature; a directory whose own signature is unchanged is not listed again; a file whose
signature differs, or could not be trusted, is *dirty* and will be read. A changed ignore file makes its directory and
everything below it be checked again, because what was skipped may be included now.
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
from backtrail.workspace.descent import GONE, Descent
from backtrail.workspace.exclusions import Exclusions, FolderExclusions, ScanRoot, unreadable_error
from backtrail.workspace.ignore_files import IGNORE_FILES
from backtrail.workspace.index import Folder, Index
from backtrail.workspace.signatures import Signature, lstat_signature, signature, trusted
from backtrail.workspace.trees import DIR, FILE, LINK, MODES, PIECES, TreeEntry

NAMES_PER_CHECK = 256  # of one folder, after which the limits are checked again
TOO_LARGE = "larger than"
_IGNORE_NAMES = frozenset(IGNORE_FILES)

Progress = Callable[[int, int], object]


class TouchedFolder(NamedTuple):
    """A folder that has the names it had: if its files turn out to be unchanged when they are read, so is its tree."""

    folder: Folder
    old: Folder
    old_entries: Sequence[TreeEntry | None]


class WalkResult(msgspec.Struct):
    """An index in which the files in the `dirty` slots still have to be read."""

    index: Index
    dirty: list[int]
    start: int
    flagged: list[tuple[bytes, str]] = []
    fresh: dict[int, Signature] = {}  #: signatures of dirty files, by slot: of the walk at first, then of the reading
    touched: list[TouchedFolder] = []
    old_refs: set[bytes] = set()  #: the refs that dirty files had before

    def reuse_trees(self) -> None:
        """After all files were read: give folders whose files did not really change the trees they had."""
        for folder, old, old_entries in self.touched:
            if self.index.entries[folder.first : folder.first + len(old_entries)] == old_entries:
                folder.tree, folder.files, folder.size = old.tree, old.files, old.size


def walk(scan_root: ScanRoot, old: Index | None, key: bytes = b"") -> WalkResult:
    """Walk the directory. `old` is not changed; if nothing in the directory changed, it is the result's index."""
    with Descent(scan_root.path) as descent:
        return _Walk(scan_root, old, key, descent).run()


class _OldItems:
    """The items of a folder as the old index has them, and their current signatures."""

    def __init__(
        self,
        current: Sequence[Signature | None] = (),
        signatures: Sequence[Signature | None] = (),
        entries: Sequence[TreeEntry | None] = (),
        names: Sequence[bytes] = (),
    ) -> None:
        self.current, self.signatures, self.entries, self.names = current, signatures, entries, names

    @cached_property
    def offsets(self) -> dict[bytes, int]:
        """The index of each name in the columns."""
        return {name: offset for offset, name in enumerate(self.names)}

    def changed(self) -> list[int]:
        """The offsets of those whose signature differs, or could not be trusted."""
        return list(compress(count(), map(ne, self.current, self.signatures)))


class _FolderChange(NamedTuple):
    """The changes in a folder that still has all its names, and perhaps more."""

    items: _OldItems
    changed: list[int]  # offsets
    skipped: list[tuple[bytes, str]]
    added: list[bytes]


class _Walk:
    def __init__(self, scan_root: ScanRoot, old: Index | None, key: bytes, descent: Descent) -> None:
        self.scan_root = scan_root
        self.descent = descent
        self.old = old
        self.start = time.time_ns()
        self.deadline = time.monotonic() + scan_root.limits.seconds
        self.new = Index(key, [], [scan_root.path], [None], [None])
        self.dirty: list[int] = []
        self.fresh: dict[int, Signature] = {}
        self.flagged: list[tuple[bytes, str]] = []
        self.current: dict[int, list[Signature | None]] = {}  # of changed folders, by number in the old index
        self.touched: list[TouchedFolder] = []
        self.old_refs: set[bytes] = set()
        self.root_signature: Signature = (0, 0, 0, 0, 0)
        self.children: dict[int, list[Folder]] = {}  # folders of the old index, by the number of the one above
        self.numbers: dict[bytes, int] = {}  # path -> number in the old index
        self.changes: dict[int, _FolderChange | None] = {}  # by number in the old index
        self.exclusions = Exclusions(scan_root, descent)

    def run(self) -> WalkResult:
        self.root_signature = signature(os.fstat(self.descent.folder(b"")))
        self.new.signatures[0] = trusted(self.root_signature, self.start)
        if self.old is not None:
            self.current = self.old.changed_folders(self.descent)
            if not self.current and self.root_signature == self.old.signatures[0]:
                return WalkResult(self.old, [], self.start)
            self.numbers = {folder.path: number for number, folder in enumerate(self.old.folders)}
            patched = self._patch(self.old)
            if patched is not None:
                return patched
            for folder in self.old.folders[1:]:
                self.children.setdefault(folder.parent, []).append(folder)
        todo: list[tuple[bytes, int, int, bool]] = [(b"", 0, -1, False)]
        while todo:
            path, slot, parent, recheck = todo.pop()
            self._check_limits()
            folder = Folder(path, slot, parent, len(self.new.paths), [], [])
            number = len(self.new.folders)
            self.new.folders.append(folder)
            recheck = self._fill(folder, self.numbers.get(path), recheck)
            todo += ((below, child, number, recheck) for below, child in self._subfolders(folder))
        return self._result()

    def _result(self) -> WalkResult:
        return WalkResult(self.new, self.dirty, self.start, self.flagged, self.fresh, self.touched, self.old_refs)

    def _subfolders(self, folder: Folder) -> Iterator[tuple[bytes, int]]:
        """The directories in a folder: their paths and slots."""
        if folder.tree is not None and self.old is not None:  # taken over whole, so its directories are those it had
            number = self.numbers[folder.path]
            shift = folder.first - self.old.folders[number].first
            for below in self.children.get(number, ()):
                if self.new.entries[below.slot + shift] is not None:
                    yield below.path, below.slot + shift
            return
        for name, slot in zip(folder.names, folder.slots, strict=True):
            entry = self.new.entries[slot]
            if entry is not None and entry.kind == DIR:
                yield folder.path + name + b"/", slot

    def _check_limits(self) -> None:
        root, limits = self.scan_root.path, self.scan_root.limits
        if len(self.new.paths) > limits.files:
            raise FilesError(root, f"it holds more than {limits.files} files (limits.files)")
        if time.monotonic() > self.deadline:
            raise FilesError(root, f"looking took over {limits.seconds:g} s (limits.seconds)")

    def _fill(self, folder: Folder, number: int | None, recheck: bool) -> bool:
        """Give a folder its items; True if the exclusions in the folders below must be checked again."""
        if number is None or self.old is None:
            self._add_items(folder, self._list(folder), _OldItems(), recheck=True)
            return True
        old = self.old.folders[number]
        if number not in self.current and self._has_same_names(old) and not recheck:
            folder.names, folder.skipped = old.names, old.skipped
            folder.tree, folder.files, folder.size = old.tree, old.files, old.size
            self._copy_columns(old.span)
            return False
        change = None if recheck else self._change(number)
        if change is not None:
            folder.names, folder.skipped = list(old.names), list(change.skipped)
            self._copy_columns(old.span)
            self._update_changed(folder, change)
            self._add_items(folder, change.added, _OldItems(), recheck)
            if len(folder.names) == len(old.names):
                self.touched.append(TouchedFolder(folder, old, change.items.entries))
            return False
        items = self._old_items(number)
        names = self._list(folder)
        recheck = recheck or _IGNORE_NAMES.intersection(names) != _IGNORE_NAMES.intersection(old.names)
        recheck = recheck or any(old.names[offset] in _IGNORE_NAMES for offset in items.changed())
        self._add_items(folder, names, items, recheck)
        return recheck

    # -- folders that still have the names they had -------------------------------------------------------------------

    def _patch(self, old: Index) -> WalkResult | None:
        """The old index with other signatures and entries, if every folder still has exactly the names it had. Then
        unchanged folders are not even visited."""
        todo = [0, *(number for number in self.current if number > 0)]
        changes: dict[int, _FolderChange] = {}
        while todo:
            number = todo.pop()
            change = self._change(number)
            if change is None or change.added:
                return None
            changes[number] = change
            folder = old.folders[number]
            for offset in change.changed:
                entry = change.items.entries[offset]
                if entry is not None and entry.kind == DIR:
                    todo.append(self.numbers[folder.path + folder.names[offset] + b"/"])
        new = self.new = Index(self.new.key, list(old.folders), old.paths, list(old.signatures), list(old.entries))
        new.signatures[0] = trusted(self.root_signature, self.start)
        for number, change in sorted(changes.items()):
            self._copy_folder(number)
            folder = new.folders[number]
            folder.skipped = change.skipped
            if change.changed:
                folder.tree = None
                self._update_changed(folder, change)
                self.touched.append(TouchedFolder(folder, old.folders[number], change.items.entries))
        return self._result()

    def _copy_folder(self, number: int) -> None:
        """Copy a folder, and those above it, so that the old index does not change when their trees are made."""
        while number >= 0 and self.old is not None and self.new.folders[number] is self.old.folders[number]:
            self.new.folders[number] = msgspec.structs.replace(self.new.folders[number], packed=None)
            number = self.new.folders[number].parent

    def _change(self, number: int) -> _FolderChange | None:
        """The changes in a folder; None if its items have to be checked one by one."""
        if number not in self.changes:
            self.changes[number] = self._find_change(number)
        return self.changes[number]

    def _find_change(self, number: int) -> _FolderChange | None:
        assert self.old is not None
        old, items = self.old.folders[number], self._old_items(number)
        changed = items.changed()
        if None in items.current:
            return None
        for offset in changed:
            if not self._stays_included(items, offset, old.names[offset]):
                return None
        if self._has_same_names(old):
            return _FolderChange(items, changed, old.skipped, [])
        try:
            names, handle = self.descent.names(old.path), self.descent.folder(old.path)
        except OSError:
            return None
        more = sorted(set(names).difference(old.names))
        if len(names) - len(more) < len(old.names) or not _IGNORE_NAMES.isdisjoint(more):
            return None
        change = _FolderChange(items, changed, [item for item in old.skipped if item[0] in items.offsets], [])
        exclusions = self.exclusions.in_folder(old.path) if more else None
        for name in more:
            sig = lstat_signature(name, handle)
            reason = None if sig is None or exclusions is None else exclusions.reason(name, stat.S_ISDIR(sig[4]))
            if reason is not None:
                change.skipped.append((name, reason))
            elif sig is not None:
                change.added.append(name)
        return change

    def _old_items(self, number: int) -> _OldItems:
        assert self.old is not None
        folder = self.old.folders[number]
        signatures = self.old.signatures[folder.span]
        current = self.current.get(number, signatures)
        return _OldItems(current, signatures, self.old.entries[folder.span], folder.names)

    def _has_same_names(self, old: Folder) -> bool:
        """True if a directory's own signature is unchanged, so that it has the names it had."""
        if self.old is None or old.parent < 0:
            return self.old is not None and self.root_signature == self.old.signatures[0]
        current = self.current.get(old.parent)
        if current is None:
            return True
        return current[old.slot - self.old.folders[old.parent].first] == self.old.signatures[old.slot]

    def _stays_included(self, items: _OldItems, offset: int, name: bytes) -> bool:
        """True if an item that changed was in the snapshot, still is, and changes no rules."""
        sig, old = items.current[offset], items.entries[offset]
        if sig is None or old is None or name in _IGNORE_NAMES:
            return False
        if stat.S_ISDIR(sig[4]) or old.kind == DIR:
            return stat.S_ISDIR(sig[4]) and old.kind == DIR
        return stat.S_ISREG(sig[4]) and sig[2] <= self.scan_root.limits.file_bytes

    def _update_changed(self, folder: Folder, change: _FolderChange) -> None:
        """Update the changed items: new signatures for directories, and files become dirty."""
        for offset in change.changed:
            slot, sig = folder.first + offset, change.items.current[offset]
            assert sig is not None
            self.new.signatures[slot], self.new.entries[slot] = self._changed(slot, sig, change.items.entries[offset])

    def _copy_columns(self, span: slice) -> None:
        if self.old is not None:
            self.new.paths += self.old.paths[span]
            self.new.entries += self.old.entries[span]
            self.new.signatures += self.old.signatures[span]

    def _list(self, folder: Folder) -> list[bytes]:
        """The names in a directory; none if it is gone or, with unreadable="flag", cannot be listed."""
        try:
            return sorted(self.descent.names(folder.path))
        except OSError as error:
            if error.errno in GONE:
                self.new.signatures[self.new.folders[folder.parent].slot if folder.parent >= 0 else 0] = None
            elif folder.parent < 0 or self.scan_root.unreadable == "raise":
                raise unreadable_error(self.new.paths[folder.slot], error) from error
            else:
                self.flagged.append((folder.path[:-1], f"unreadable: {error.strerror}"))
        # Not an empty directory: one that the snapshot knows nothing about.
        self.new.entries[folder.slot] = self.new.signatures[folder.slot] = None
        return []

    # -- one item ---------------------------------------------------------------------------------------------------

    def _add_items(self, folder: Folder, names: list[bytes], items: _OldItems, recheck: bool) -> None:
        base = self.new.paths[folder.slot] + b"/"
        exclusions: FolderExclusions | None = None
        handle = self.descent.folder(folder.path) if names else -1
        for number, name in enumerate(names, 1):
            if not number % NAMES_PER_CHECK:
                self._check_limits()
            offset = items.offsets.get(name)
            sig = None if offset is None else items.current[offset]
            if sig is None:
                sig = lstat_signature(name, handle)
                if sig is None:
                    continue  # gone since the directory was listed
            old = None if offset is None else items.entries[offset]
            if old is None or recheck:
                exclusions = exclusions or self.exclusions.in_folder(folder.path)
                reason = exclusions.reason(name, stat.S_ISDIR(sig[4]))
                if reason is not None:
                    folder.skipped.append((name, reason))
                    if name in _IGNORE_NAMES:  # its rules count even where it is itself ignored
                        self._add(folder, name, base, trusted(sig, self.start), None)
                    continue
            if old is not None and offset is not None and sig == items.signatures[offset]:
                self._add(folder, name, base, sig, old)
            else:
                self._add_changed(folder, name, base, sig, old)

    def _add_changed(self, folder: Folder, name: bytes, base: bytes, sig: Signature, old: TreeEntry | None) -> None:
        """Add an item that is new or changed."""
        kind, max_bytes = stat.S_IFMT(sig[4]), self.scan_root.limits.file_bytes
        if kind == stat.S_IFREG and sig[2] > max_bytes:
            folder.skipped.append((name, f"{TOO_LARGE} {max_bytes} bytes (limits.file_bytes)"))
            self._add(folder, name, base, trusted(sig, self.start), None)
        elif kind in (stat.S_IFREG, stat.S_IFDIR):
            self._add(folder, name, base, *self._changed(len(self.new.paths), sig, old))
        elif kind == stat.S_IFLNK:
            try:
                target = self.descent.read_link(folder.path + name)
            except OSError:
                return  # replaced meanwhile: its directory is listed again next time
            self._add(folder, name, base, trusted(sig, self.start), TreeEntry(LINK, 0, 0, target))
        else:
            folder.skipped.append((name, "neither a file, a link nor a directory"))

    def _changed(self, slot: int, sig: Signature, old: TreeEntry | None) -> tuple[Signature | None, TreeEntry | None]:
        """Signature and entry of a directory or a file that is new or changed; a file has none before it is read."""
        if stat.S_ISDIR(sig[4]):
            ref = old.ref if old is not None and old.kind == DIR else b""
            return trusted(sig, self.start), TreeEntry(DIR, sig[4] & MODES, 0, ref)
        if old is not None and old.kind in (FILE, PIECES):
            self.old_refs.add(old.ref)
        self.dirty.append(slot)
        self.fresh[slot] = sig
        return None, None

    def _add(self, folder: Folder, name: bytes, base: bytes, sig: Signature | None, entry: TreeEntry | None) -> None:
        folder.names.append(name)
        self.new.paths.append(base + name)
        self.new.signatures.append(sig)
        self.new.entries.append(entry)
