"""The scanner: from the walk to an exact tree of the directory, with the blobs that the store lacks.

The index says what was read before; the newest record says what the store has. An entry is taken over unread only if
its signature is unchanged *and* the newest record's tree holds its blob: that record is the head, the head is swapped
in the same commit, and a sweep never takes what a head needs. Anything else is read again. So a lost cache, a cache of
another store, or a sweep in between cost time, never content.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from backtrail.errors import Corrupt, UnsafePath
from backtrail.workspace import index as indexes
from backtrail.workspace.exclusions import NEVER_INCLUDED, ScanRoot
from backtrail.workspace.index import Index
from backtrail.workspace.journal import MAX_FLAGGED, Journal, Record
from backtrail.workspace.model import Skipped
from backtrail.workspace.pack import LARGE_FILE, Blobs, FileBatch, PackSettings, pack, too_large_error
from backtrail.workspace.paths import to_text, to_utf8
from backtrail.workspace.prefetch import Prefetch
from backtrail.workspace.signatures import Signature
from backtrail.workspace.trees import DIR, FILE, PIECES, Tree, TreeEntry
from backtrail.workspace.walk import TOO_LARGE, Progress, WalkResult, walk

COMMIT_BYTES = 16 * 2**20  # framed bytes that are written ahead in one commit, while large files are still being read
EARLY_COMMIT_BYTES = 4 * 2**20  # the same, while no other file is ready
PREFETCH_BYTES = 4 * 2**20  # bytes to be read from which a thread pays

SAVE_FILES, SAVE_SECONDS = 256, 10.0  # files read, or seconds passed, after which the index is saved to its file again

T = TypeVar("T")


class Work(Protocol):
    """Does blocking file work: in place, or in a thread if the caller has an event loop to keep responsive."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def in_place(function: Callable[[], T], /) -> T:
    """Do the work in the calling thread."""
    return function()


class Scan(msgspec.Struct, frozen=True):
    """The directory, exactly as it is."""

    index: Index
    tree: bytes
    new_trees: dict[bytes, Tree]  #: trees that the store may lack
    blobs: Blobs  #: framed, not written yet
    tip: Record | None  #: the newest record
    flagged: tuple[Skipped, ...]
    fresh: Mapping[int, Signature]  #: signatures of the files that were read, by slot

    def items(self, paths: Iterable[bytes]) -> Iterator[tuple[bytes, TreeEntry, Signature | None]]:
        """Entry and signature of those of the paths that are in the tree."""
        index = self.index
        folders = {folder.path: folder for folder in index.folders}
        slots: dict[bytes, dict[bytes, int]] = {}
        for path in paths:
            above, slash, name = path.rpartition(b"/")
            folder_path = above + slash
            if folder_path not in slots:
                folder = folders.get(folder_path)
                slots[folder_path] = {} if folder is None else dict(zip(folder.names, folder.slots, strict=True))
            slot = slots[folder_path].get(name)
            entry = None if slot is None else index.entries[slot]
            if slot is not None and entry is not None:
                yield path, entry, self.fresh.get(slot, index.signatures[slot])

    def withheld(self) -> list[bytes]:
        """Paths that are neither ignored nor in the tree: a restore of this tree must not delete them."""
        large = [path for path, reason in self.index.skipped() if reason.startswith(TOO_LARGE)]
        return large + [os.fsencode(item.path) for item in self.flagged]

    def left_out(self) -> list[tuple[bytes, str]]:
        """Paths that are not in the tree, with the reasons, except for what no snapshot is about."""
        flagged = {os.fsencode(item.path): item.reason for item in self.flagged}
        for path, _, _ in self.items(list(flagged)):
            del flagged[path]
        skipped = [(path, reason) for path, reason in self.index.skipped() if reason not in NEVER_INCLUDED]
        return skipped + list(flagged.items())

    def facts(self, directory: str) -> dict[str, Any]:
        """The metadata of a record that has this tree; `directory` is the id of the directory."""
        facts: dict[str, Any] = {"files": self.index.files, "bytes": self.index.size, "directory": directory}
        if self.flagged:
            shown = self.flagged[:MAX_FLAGGED]
            facts["flagged"] = [[to_utf8(os.fsencode(item.path)), item.reason] for item in shown]
        return facts


class Scanner:
    """Scans one directory, and remembers the last scan that was saved."""

    def __init__(self, scan_root: ScanRoot, journal: Journal, cache: Path | None, work: Work) -> None:
        self._scan_root = scan_root
        self._journal = journal
        self._cache = cache
        self._work = work
        # An encrypted store has blob ids of its own, so its index is of no use to another.
        self._key = msgspec.msgpack.encode((scan_root.cache_key, journal.blob_id(b"")))
        self._index: Index | None = None
        self._loaded = False
        self._saved_at = -SAVE_SECONDS

    async def scan(self, tip: Record | None, directory: str | None = None, progress: Progress | None = None) -> Scan:
        """Scan the directory. With its id as `directory`, for records, blobs are made, and large amounts of them are
        written ahead; without it, nothing is written."""
        keep = directory is not None
        if not self._loaded:
            self._index = await self._work(lambda: indexes.load(self._cache, self._key, self._journal.unseal))
            self._loaded = True
        old = self._index
        walked = await self._work(lambda: walk(self._scan_root, old, self._key))
        if old is None or tip is None or old.tree != tip.tree:
            stored = await self._mark_unstored(walked, old, None if tip is None else tip.tree)
        else:
            stored = walked.old_refs
        lost = await self._journal.lost_blobs()
        if lost:
            await self._mark_lost(walked, old, lost)
            stored -= lost
        stored |= await self._journal.piece_ids(self._old_large_files(walked, old, stored, tip, lost)) - lost
        settings = PackSettings(self._journal.blob_id, stored, self._journal.wrap_all if keep else None)
        blobs, tip = await self._pack(walked, settings, tip, directory or "", progress)
        made: dict[bytes, tuple[Tree, bytes]] = {}
        if walked.index is not old:
            walked.reuse_trees()
            made = await self._work(lambda: walked.index.hash_trees(self._journal.blob_id))
        if walked.index.size > self._scan_root.limits.total_bytes:
            raise too_large_error(self._scan_root)
        if keep:
            blobs |= zip(made, self._journal.wrap_all(list(made), [data for _, data in made.values()]), strict=True)
        tree = walked.index.tree
        assert tree is not None
        return Scan(
            walked.index,
            tree,
            {id: tree for id, (tree, _) in made.items()},
            blobs,
            tip,
            tuple(Skipped(to_text(path), reason) for path, reason in walked.flagged),
            walked.fresh,
        )

    async def remember(self, scan: Scan) -> None:
        """Take over a scan that is in the store now. The index file is not saved each time: the next process reads
        again what it does not find there."""
        if scan.index is self._index:
            return
        self._index = scan.index
        self._journal.cache_trees(scan.new_trees)
        if len(scan.fresh) > SAVE_FILES or time.monotonic() > self._saved_at + SAVE_SECONDS:
            self._saved_at = time.monotonic()
            await self._work(lambda: indexes.save(self._cache, scan.index, self._journal.seal))

    async def _pack(
        self,
        walked: WalkResult,
        settings: PackSettings,
        tip: Record | None,
        directory: str,
        progress: Progress | None,
    ) -> tuple[Blobs, Record | None]:
        """Read the dirty files; returns the blobs that are not written yet, and the newest record. If there is much to
        read, files are read while the blobs of those before them are being written."""
        files = pack(self._scan_root, walked, settings)
        collect = partial(_collect, total=len(walked.dirty), progress=progress)
        if sum(sig[2] for sig in walked.fresh.values()) < PREFETCH_BYTES:
            return await self._write_ahead(partial(collect, files), tip, directory)
        with Prefetch(files, attrgetter("size"), 2 * COMMIT_BYTES) as prefetched:
            return await self._write_ahead(partial(collect, prefetched), tip, directory)

    async def _write_ahead(
        self, collect: Callable[[], tuple[Blobs, bool]], tip: Record | None, directory: str
    ) -> tuple[Blobs, Record | None]:
        """Commit all collections of blobs but the last, which the caller commits with its record."""
        while True:
            blobs, done = await self._work(collect)
            if done:
                return blobs, tip
            tip = await self._journal.append_part(blobs, tip, directory)

    def _old_large_files(
        self, walked: WalkResult, old: Index | None, stored: set[bytes], tip: Record | None, lost: set[bytes]
    ) -> Iterator[TreeEntry]:
        """The old entries of large dirty files, if the store is sure to have their pieces."""
        sizes = {slot: sig[2] for slot, sig in walked.fresh.items()}
        large = [walked.index.paths[slot] for slot in walked.dirty if sizes.get(slot, 0) >= LARGE_FILE]
        if not large or old is None or tip is None:
            return
        old_entries = dict(zip(old.paths, old.entries, strict=True))
        for path in large:
            entry = old_entries.get(path)
            if entry is None or entry.kind != PIECES or entry.ref in lost:
                continue
            if old.tree == tip.tree or entry.ref in stored:
                yield entry

    async def _mark_lost(self, walked: WalkResult, old: Index | None, lost: set[bytes]) -> None:
        """Mark files as dirty whose blobs a repair has removed from the store: the directory may still have them."""
        if walked.index is old:
            walked.index = walked.index.copy()
        index = walked.index
        broken = set(lost)
        for entry in {e for e in index.entries if e is not None and e.kind == PIECES and e.ref not in lost}:
            try:
                if not lost.isdisjoint(await self._journal.piece_ids([entry])):
                    broken.add(entry.ref)
            except Corrupt:
                broken.add(entry.ref)
        dirty = set(walked.dirty)
        for folder in index.folders:
            found = [slot for slot in folder.slots if (e := index.entries[slot]) is not None and e.ref in broken]
            if found or folder.tree in lost:
                folder.tree = None
            dirty.update(slot for slot in found if not _is_dir(index.entries[slot]))
        walked.dirty = sorted(dirty)
        walked.touched = [touched for touched in walked.touched if touched.old.tree not in lost]

    async def _mark_unstored(self, walked: WalkResult, old: Index | None, head_tree: bytes | None) -> set[bytes]:
        """Mark files as dirty that are not in the head's tree; returns the refs that are, as far as it was read."""
        if walked.index is old:
            walked.index = walked.index.copy()
        index = walked.index
        folders = {folder.path: folder for folder in index.folders}
        stored: set[bytes] = set()
        same: set[bytes] = set()
        visited: set[bytes] = set()
        level = [] if head_tree is None else [(b"", head_tree)]
        while level:
            differing = {}
            for path, id in level:
                folder = folders.get(path)
                if folder is not None and folder.tree == id:
                    same.add(path)
                elif id not in visited:  # once is enough: a tree may contain another a million times
                    visited.add(id)
                    differing[path] = id
            try:
                loaded = await self._journal.trees(differing.values())
            except (Corrupt, UnsafePath):
                break  # an unreadable tree counts as missing: the files are read, and their contents written, again
            level = []
            for path, id in differing.items():
                stored |= {entry.ref for entry in loaded[id].values() if entry.kind in (FILE, PIECES)}
                level += [(path + name + b"/", e.ref) for name, e in loaded[id].items() if e.kind == DIR]
        dirty = set(walked.dirty)
        covered: list[bool] = []
        for folder in index.folders:
            covered.append(folder.path in same or (folder.parent >= 0 and covered[folder.parent]))
            if covered[-1]:
                continue
            folder.tree = None
            for slot in folder.slots:
                entry = index.entries[slot]
                if entry is not None and entry.kind in (FILE, PIECES) and entry.ref not in stored:
                    dirty.add(slot)
        walked.dirty = sorted(dirty)
        walked.touched = []  # the store may lack the trees they had
        return stored


def _is_dir(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.kind == DIR


def _collect(files: Iterator[FileBatch], total: int, progress: Progress | None) -> tuple[Blobs, bool]:
    """Collect blobs for one commit; True with those of the last files."""
    blobs: Blobs = {}
    size = 0
    for batch in files:
        blobs |= batch.blobs
        size += batch.size
        if progress is not None:
            progress(batch.files_done, total)
        waiting = isinstance(files, Prefetch) and files.would_block
        if size >= COMMIT_BYTES or (size >= EARLY_COMMIT_BYTES and waiting):
            return dict(sorted(blobs.items())), False
    return dict(sorted(blobs.items())), True  # in the order of an engine's index
