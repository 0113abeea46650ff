"""Looking at the directory: from the walk to an exact tree of what is there, with the blobs that the store lacks.

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
from typing import Protocol, TypeVar

import msgspec

from backtrail.errors import Corrupt, UnsafePath
from backtrail.workspace import index as indexes
from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.index import Index, Signature
from backtrail.workspace.journal import Journal, Record
from backtrail.workspace.model import Skipped
from backtrail.workspace.pack import LARGE, Blobs, FileBatch, PackSettings, pack, too_much
from backtrail.workspace.prefetch import Prefetch
from backtrail.workspace.trees import DIR, FILE, PIECES, Tree, TreeEntry
from backtrail.workspace.walk import TOO_LARGE, Progress, Walked, walk

BATCH = 16 * 2**20  # framed bytes that are written ahead in one commit, while large files are still being read
LEAST = 4 * 2**20  # the same, while nothing else is ready to be written
MUCH = 4 * 2**20  # bytes to be read from which a thread pays

MANY, PAUSE = 256, 10.0  # files read, or seconds passed, after which the index is written to its file again

T = TypeVar("T")


class Work(Protocol):
    """How blocking file work is done: in place, or in a thread where the caller has an event loop to keep alive."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def in_place(function: Callable[[], T], /) -> T:
    """Do the work here and now."""
    return function()


class Scan(msgspec.Struct, frozen=True):
    """The directory as it is, exactly."""

    index: Index
    tree: bytes
    made: dict[bytes, Tree]  #: trees that the store may lack
    blobs: Blobs  #: framed, not written yet
    after: Record | None  #: the newest record
    flagged: tuple[Skipped, ...]
    fresh: Mapping[int, Signature]

    def items(self, paths: Iterable[bytes]) -> Iterator[tuple[bytes, TreeEntry, Signature | None]]:
        """Entry and signature of those of the paths that are in the tree."""
        index = self.index
        folders = {folder.path: folder for folder in index.folders}
        places: dict[bytes, dict[bytes, int]] = {}
        for path in paths:
            above, slash, name = path.rpartition(b"/")
            inside = above + slash
            if inside not in places:
                folder = folders.get(inside)
                places[inside] = {} if folder is None else dict(zip(folder.names, folder.places, strict=True))
            at = places[inside].get(name)
            entry = None if at is None else index.entries[at]
            if at is not None and entry is not None:
                yield path, entry, self.fresh.get(at, index.sigs[at])

    def withheld(self) -> list[bytes]:
        """What is in the directory, and neither ignored nor in the tree: a restore to it must not take that away."""
        large = [path for path, reason in self.index.skipped() if reason.startswith(TOO_LARGE)]
        return large + [os.fsencode(item.path) for item in self.flagged]


class Scanner:
    """Looks at one directory, and remembers what it saw."""

    def __init__(self, place: ScanRoot, log: Journal, cache: Path | None, work: Work) -> None:
        self._place = place
        self._log = log
        self._cache = cache
        self._work = work
        self._key = msgspec.msgpack.encode((place.key, log.name_of(b"")))  # a key of its own names blobs differently
        self._index: Index | None = None
        self._loaded = False
        self._stored = -PAUSE

    async def look(self, tip: Record | None, *, keep: bool, progress: Progress | None = None) -> Scan:
        """Look at the directory. With `keep`, blobs are made, and large amounts of them written ahead."""
        if not self._loaded:
            self._index = await self._work(lambda: indexes.load(self._cache, self._key))
            self._loaded = True
        old = self._index
        walked = await self._work(lambda: walk(self._place, old, self._key))
        if old is None or tip is None or old.tree != tip.tree:
            have = await self._distrust(walked, old, None if tip is None else tip.tree)
        else:
            have = walked.before
        lost = await self._log.lost()
        if lost:
            await self._reread(walked, old, lost)
            have -= lost
        have |= await self._log.pieces(self._large_before(walked, old, have, tip, lost)) - lost
        reading = PackSettings(self._log.name_of, have, self._log.wrap_all if keep else None)
        blobs, after = await self._pack(walked, reading, tip, progress)
        made: dict[bytes, tuple[Tree, bytes]] = {}
        if walked.index is not old:
            walked.settle()
            made = await self._work(lambda: walked.index.seal(self._log.name_of))
        if walked.index.size > self._place.limits.total_bytes:
            raise too_much(self._place)
        if keep:
            blobs |= zip(made, self._log.wrap_all(list(made), [data for _, data in made.values()]), strict=True)
        tree = walked.index.tree
        assert tree is not None
        return Scan(
            walked.index,
            tree,
            {name: tree for name, (tree, _) in made.items()},
            blobs,
            after,
            tuple(Skipped(os.fsdecode(path), reason) for path, reason in walked.flagged),
            walked.fresh,
        )

    async def remember(self, seen: Scan) -> None:
        """The store has all of this now. The file is a little behind if much happens in one process: it is read by
        the next one, which reads again what it does not find there."""
        if seen.index is self._index:
            return
        self._index = seen.index
        self._log.learn(seen.made)
        if len(seen.fresh) > MANY or time.monotonic() > self._stored + PAUSE:
            self._stored = time.monotonic()
            await self._work(lambda: indexes.store(self._cache, seen.index))

    async def _pack(
        self, walked: Walked, reading: PackSettings, tip: Record | None, progress: Progress | None
    ) -> tuple[Blobs, Record | None]:
        """Read what is dirty; the blobs that are not written yet, and the newest record. If it is much, the next files
        are read while what was read before is being written."""
        parcels = pack(self._place, walked, reading)
        collect = partial(_collect, total=len(walked.dirty), progress=progress)
        if sum(sig[2] for sig in walked.fresh.values()) < MUCH:
            return await self._write(partial(collect, parcels), tip)
        with Prefetch(parcels, attrgetter("weight"), 2 * BATCH) as ahead:
            return await self._write(partial(collect, ahead), tip)

    async def _write(
        self, collect: Callable[[], tuple[Blobs, bool]], tip: Record | None
    ) -> tuple[Blobs, Record | None]:
        """Write all batches of blobs but the last, which comes with the snapshot."""
        while True:
            blobs, done = await self._work(collect)
            if done:
                return blobs, tip
            tip = await self._log.put(blobs, tip, shown(self._place.root))

    def _large_before(
        self, walked: Walked, old: Index | None, have: set[bytes], tip: Record | None, lost: set[bytes]
    ) -> Iterator[TreeEntry]:
        """What large dirty files were before, as far as the store is sure to have it."""
        large = [walked.index.paths[at] for at in walked.dirty if at in walked.fresh and walked.fresh[at][2] >= LARGE]
        if not large or old is None or tip is None:
            return
        before = dict(zip(old.paths, old.entries, strict=True))
        for path in large:
            entry = before.get(path)
            if entry is None or entry.kind != PIECES or entry.ref in lost:
                continue
            if old.tree == tip.tree or entry.ref in have:
                yield entry

    async def _reread(self, walked: Walked, old: Index | None, lost: set[bytes]) -> None:
        """Mark as dirty what a repair has taken out of the store since: the directory may still hold it."""
        if walked.index is old:
            walked.index = _copy(walked.index)
        index = walked.index
        broken = set(lost)
        for entry in {e for e in index.entries if e is not None and e.kind == PIECES and e.ref not in lost}:
            try:
                if not lost.isdisjoint(await self._log.pieces([entry])):
                    broken.add(entry.ref)
            except Corrupt:
                broken.add(entry.ref)
        dirty = set(walked.dirty)
        for folder in index.folders:
            found = [at for at in folder.places if (e := index.entries[at]) is not None and e.ref in broken]
            if found or folder.tree in lost:
                folder.tree = None
            dirty.update(at for at in found if not _is_dir(index.entries[at]))
        walked.dirty = sorted(dirty)
        walked.same = [same for same in walked.same if same.old.tree not in lost]

    async def _distrust(self, walked: Walked, old: Index | None, head: bytes | None) -> set[bytes]:
        """Mark as dirty what the tree `head` does not hold; return what it does, as far as it was looked at."""
        if walked.index is old:
            walked.index = _copy(walked.index)
        index = walked.index
        folders = {folder.path: folder for folder in index.folders}
        have: set[bytes] = set()
        same: set[bytes] = set()
        visited: set[bytes] = set()
        level = [] if head is None else [(b"", head)]
        while level:
            differing = {}
            for path, name in level:
                folder = folders.get(path)
                if folder is not None and folder.tree == name:
                    same.add(path)
                elif name not in visited:  # once is enough: a tree may name another a million times
                    visited.add(name)
                    differing[path] = name
            try:
                loaded = await self._log.trees(differing.values())
            except (Corrupt, UnsafePath):
                break  # what cannot be read is not there: the files are read, and what they hold is written, again
            level = []
            for path, name in differing.items():
                have |= {entry.ref for entry in loaded[name].values() if entry.kind in (FILE, PIECES)}
                level += [(path + key + b"/", e.ref) for key, e in loaded[name].items() if e.kind == DIR]
        dirty = set(walked.dirty)
        covered: list[bool] = []
        for folder in index.folders:
            covered.append(folder.path in same or (folder.parent >= 0 and covered[folder.parent]))
            if covered[-1]:
                continue
            folder.tree = None
            for at in folder.places:
                entry = index.entries[at]
                if entry is not None and entry.kind in (FILE, PIECES) and entry.ref not in have:
                    dirty.add(at)
        walked.dirty = sorted(dirty)
        walked.same = []  # the store need not have their trees
        return have


def _is_dir(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.kind == DIR


def _collect(parcels: Iterator[FileBatch], total: int, progress: Progress | None) -> tuple[Blobs, bool]:
    """The next batch of blobs, and whether that was all."""
    batch: Blobs = {}
    size = 0
    for parcel in parcels:
        batch |= parcel.blobs
        size += parcel.weight
        if progress is not None:
            progress(parcel.done, total)
        if size >= BATCH or (size >= LEAST and isinstance(parcels, Prefetch) and parcels.behind):
            return dict(sorted(batch.items())), False
    return dict(sorted(batch.items())), True  # in the order of an engine's index


def _copy(index: Index) -> Index:
    return msgspec.structs.replace(
        index,
        folders=[msgspec.structs.replace(folder, sight=None) for folder in index.folders],
        sigs=list(index.sigs),
        entries=list(index.entries),
    )


def shown(path: bytes) -> str:
    """A path as text that every engine can keep."""
    return path.decode("utf-8", "backslashreplace")
