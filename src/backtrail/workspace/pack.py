"""Packing: files of the directory become tree entries and blobs.

A file is read through one descriptor and examined before and after: if it changed meanwhile it is read again, and if it
keeps changing the last reading is kept and reported. A small file is one blob. From 1 MB up a file is cut into pieces
at boundaries that depend on its content, so that an insertion in the middle costs one piece and not the file.

Large files are read in threads beside the small ones: their pieces are hashed and compressed without the interpreter's
lock. A small file needs the lock too often for a thread of its own; but files that are read together are compressed
with one call, during which other threads have the lock.
"""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from backtrail.engines.retry import RetryPolicy
from backtrail.errors import FilesError, MissingExtra
from backtrail.workspace.batches import batches
from backtrail.workspace.descent import GONE, Descent
from backtrail.workspace.exclusions import ScanRoot, unreadable_error
from backtrail.workspace.signatures import Signature, signature, trusted
from backtrail.workspace.trees import FILE, MODES, PIECES, TreeEntry, encode_pieces
from backtrail.workspace.walk import WalkResult

if TYPE_CHECKING:
    from concurrent.futures import Future

LARGE_FILE = 2**20  # bytes from which pieces pay
PIECE_BYTES = 16 * 1024  # the cutter's target; its pieces are about a quarter larger
#: Readings of a file that keeps changing.
READINGS = RetryPolicy.times(3)
BATCH_FILES, BATCH_BYTES = 64, 4 * 2**20  # of small files, which are read between two reports of progress
PIECES_PER_CALL = 32  # about 600 KB, compressed with one call
QUEUED_PER_THREAD = 2  # large files that are being read, or have been read and wait to be written

BlobId = Callable[[bytes], bytes]  # content -> id
Wrap = Callable[[Sequence[bytes], Sequence[bytes]], Sequence[bytes]]  # (ids, contents) -> frames, as an engine has them
Blobs = dict[bytes, bytes]
T = TypeVar("T")


class PackedFile(msgspec.Struct):
    """One file as read. Without an entry it was gone or unreadable, or it is small and has no blob yet."""

    entry: TreeEntry | None
    signature: Signature | None
    problem: str | None = None
    mode: int = 0
    content: bytes | None = None  #: of a small file, until it has a blob


class FileBatch(NamedTuple):
    """Files that were read together."""

    blobs: Blobs  #: the new ones
    size: int  #: bytes of those
    files_done: int  #: read so far, in this batch and those before it


class PackSettings(msgspec.Struct, frozen=True):
    """Settings of one packing: how blob ids are made, which blobs are stored already, how the others are wrapped.

    Without `wrap` only entries are made, and no blobs.
    """

    blob_id: BlobId
    stored: Container[bytes] = frozenset()
    wrap: Wrap | None = None

    def add_blobs(self, blobs: Blobs, contents: Sequence[bytes]) -> list[bytes]:
        """Add the contents that are new to `blobs`, wrapped with one call, and return the ids of all."""
        ids = list(map(self.blob_id, contents))
        if self.wrap is not None:
            pairs = zip(ids, contents, strict=True)
            new = {id: content for id, content in pairs if id not in self.stored and id not in blobs}
            blobs.update(zip(new, self.wrap(list(new), list(new.values())), strict=True))
        return ids


def pack(scan_root: ScanRoot, walked: WalkResult, settings: PackSettings) -> Iterator[FileBatch]:
    """Read the dirty files, fill their slots in the index, and yield the new blobs."""
    index, files_done, volume = walked.index, 0, 0

    def read_batch(slots: Sequence[int]) -> tuple[list[PackedFile], Blobs]:
        blobs: Blobs = {}
        start = len(scan_root.path) + 1
        with Descent(scan_root.path) as descent:
            files = [
                read_file(scan_root, descent, index.paths[slot][start:], settings, blobs, walked.fresh.get(slot))
                for slot in slots
            ]
        _add_small_files(files, settings, blobs)
        return files, blobs

    for slots, (files, blobs) in _read_all(read_batch, walked):
        for slot, packed in zip(slots, files, strict=True):
            index.entries[slot] = packed.entry
            if packed.signature is None:
                walked.fresh.pop(slot, None)
                index.signatures[slot] = None
            else:
                walked.fresh[slot] = packed.signature
                index.signatures[slot] = trusted(packed.signature, walked.start)
            if packed.problem is not None:
                walked.flagged.append((index.paths[slot][len(scan_root.path) + 1 :], packed.problem))
            volume += packed.entry.size if packed.entry is not None else 0
        files_done += len(slots)
        yield FileBatch(blobs, sum(map(len, blobs.values())), files_done)
        if volume > scan_root.limits.total_bytes:
            raise too_large_error(scan_root)


def too_large_error(scan_root: ScanRoot) -> FilesError:
    limit = scan_root.limits.total_bytes
    return FilesError(scan_root.path, f"its files have more than {limit} bytes (limits.total_bytes)")


def _read_all(read_batch: Callable[[Sequence[int]], T], walked: WalkResult) -> Iterator[tuple[list[int], T]]:
    """Read the dirty files in batches: small files here, and large ones in threads beside them, each by itself."""

    def size(slot: int) -> int:
        return walked.fresh[slot][2] if slot in walked.fresh else 0

    large = deque(slot for slot in walked.dirty if size(slot) >= LARGE_FILE)
    small = [slot for slot in walked.dirty if size(slot) < LARGE_FILE]
    small_batches = batches(small, size, BATCH_BYTES, BATCH_FILES)
    if not large:
        for batch in small_batches:
            yield batch, read_batch(batch)
        return
    threads = max(min(os.cpu_count() or 1, 8) - 1, 1)
    from concurrent.futures import ThreadPoolExecutor  # most snapshots have little to read, and do without threads

    queued: deque[tuple[list[int], Future[T]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="backtrail-pack") as pool:
        try:
            while True:
                while large and len(queued) < QUEUED_PER_THREAD * threads:
                    one = [large.popleft()]
                    queued.append((one, pool.submit(read_batch, one)))
                next_small = next(small_batches, None)
                if next_small is not None:
                    yield next_small, read_batch(next_small)
                elif large:
                    one = [large.pop()]
                    yield one, read_batch(one)
                elif not queued:
                    return
                while queued and (queued[0][1].done() or not (next_small or large)):
                    first, future = queued.popleft()
                    yield first, future.result()
        finally:
            for _, future in queued:
                future.cancel()


def read_entry(scan_root: ScanRoot, descent: Descent, path: bytes, settings: PackSettings) -> TreeEntry | None:
    """The entry of the file at a path, if there is one."""
    found = read_file(scan_root, descent, path, settings, {})
    _add_small_files([found], settings, {})
    return found.entry


def _add_small_files(files: Iterable[PackedFile], settings: PackSettings, blobs: Blobs) -> None:
    """Give small files their entries, and add their new blobs to `blobs`."""
    small = [(packed, packed.content) for packed in files if packed.content is not None]
    ids = settings.add_blobs(blobs, [content for _, content in small])
    for (packed, content), id in zip(small, ids, strict=True):
        packed.entry, packed.content = TreeEntry(FILE, packed.mode, len(content), id), None


def read_file(
    scan_root: ScanRoot,
    descent: Descent,
    path: bytes,
    settings: PackSettings,
    blobs: Blobs,
    seen: Signature | None = None,
) -> PackedFile:
    """Read one file; new pieces of a large one are added to `blobs`. `seen` is its signature in the walk: if that still
    holds after the reading, the file need not be examined before it."""
    try:
        handle = descent.open_file(path)
    except OSError as error:
        if error.errno in GONE:
            return PackedFile(None, None)  # or replaced: listed again next time
        return _unreadable(scan_root, path, error)
    count = len(blobs)
    try:
        before = signature(os.fstat(handle)) if seen is None else seen
        for attempt in READINGS.attempts():
            if not stat.S_ISREG(before[4]):
                return PackedFile(None, None)  # replaced since the walk: listed again next time
            if attempt:
                os.lseek(handle, 0, os.SEEK_SET)
                _remove_after(blobs, count)
            entry, content = _read_content(handle, before, settings, blobs)
            size = entry.size if entry is not None else len(content or b"")
            after = signature(os.fstat(handle))
            if after == before and size == after[2]:
                return PackedFile(entry, after, None, after[4] & MODES, content)
            before = after
        return PackedFile(entry, None, "it kept changing while it was read", before[4] & MODES, content)
    except OSError as error:
        _remove_after(blobs, count)
        return _unreadable(scan_root, path, error)
    finally:
        os.close(handle)


def _remove_after(blobs: Blobs, count: int) -> None:
    """Remove all but the first `count` blobs."""
    while len(blobs) > count:
        blobs.popitem()


def _unreadable(scan_root: ScanRoot, path: bytes, error: OSError) -> PackedFile:
    if scan_root.unreadable == "raise":
        raise unreadable_error(b"%b/%b" % (scan_root.path, path), error) from error
    return PackedFile(None, None, f"unreadable: {error.strerror}")


def _read_content(
    handle: int, seen: Signature, settings: PackSettings, blobs: Blobs
) -> tuple[TreeEntry | None, bytes | None]:
    """The entry of a large file, or the bytes of a small one."""
    size = seen[2]
    if size >= LARGE_FILE:
        return _read_pieces(handle, seen[4] & MODES, settings, blobs), None
    data = os.read(handle, size + 1)
    while len(data) < size:  # a short read, or the file shrank
        more = os.read(handle, size + 1 - len(data))
        if not more:
            break
        data += more
    return None, data


def _read_pieces(handle: int, mode: int, settings: PackSettings, blobs: Blobs) -> TreeEntry:
    try:
        from pyfastcdc import FastCDC
    except ImportError as error:
        raise MissingExtra("a snapshot of files over 1 MB", "files") from error
    sizes: list[int] = []
    ids: list[bytes] = []
    with io.FileIO(handle, closefd=False) as stream:
        pieces = (bytes(chunk.data) for chunk in FastCDC(PIECE_BYTES).cut_stream(stream))
        while some := list(islice(pieces, PIECES_PER_CALL)):
            sizes += map(len, some)
            ids += settings.add_blobs(blobs, some)
    return TreeEntry(PIECES, mode, sum(sizes), settings.add_blobs(blobs, [encode_pieces(sizes, ids)])[0])
