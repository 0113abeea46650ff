"""Packing: from files in the directory to entries and blobs.

A file is read through one descriptor and looked at before and after: if it changed meanwhile it is read again, and if
it never stands still what was read last is kept and reported. Small files are one blob. From 1 MB up a file is cut
where its content says so, so that an insertion in the middle costs one piece and not the file.

Large files come last, in threads, ahead of what is being written: their pieces are hashed and compressed without the
interpreter's lock. A small file needs the lock too often for that; there, a second thread only makes both slower.
"""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from clew.errors import FilesError, MissingExtra
from clew.workspace.index import Signature, signature, trusted
from clew.workspace.skip import Place, unreadable
from clew.workspace.trees import FILE, MODES, PIECES, Entry, encode_pieces
from clew.workspace.walk import Progress, Walked

LARGE = 2**20  # bytes from which pieces pay
PIECE = 16 * 1024  # what the cutter aims at; the pieces it makes are about a quarter larger
ATTEMPTS = 3
BUNDLE, BUNDLE_BYTES = 64, 4 * 2**20  # what is read between two reports of progress
AHEAD = 4  # large files per core that may wait to be written

Name = Callable[[bytes], bytes]  # content -> id
Wrap = Callable[[bytes, bytes], bytes]  # (id, content) -> what the engine keeps
Blobs = dict[bytes, bytes]
T = TypeVar("T")


class Packed(msgspec.Struct):
    """One file as read: None where it was gone or could not be read."""

    entry: Entry | None
    sig: Signature | None
    problem: str | None = None


class Reading(msgspec.Struct, frozen=True):
    """How files become blobs: how those are named, which are there already, and how the rest is wrapped.

    Without `wrap` only entries are made, and no blob.
    """

    name: Name
    have: Container[bytes] = frozenset()
    wrap: Wrap | None = None

    def keep(self, blobs: Blobs, content: bytes) -> bytes:
        """Name a content, and wrap it if it is new."""
        name = self.name(content)
        if self.wrap is not None and name not in self.have and name not in blobs:
            blobs[name] = self.wrap(name, content)
        return name


def pack(place: Place, walked: Walked, reading: Reading, progress: Progress | None = None) -> Iterator[Blobs]:
    """Read the dirty files, fill their places in the index, and give out the new blobs."""
    index, total, done, volume = walked.index, len(walked.dirty), 0, 0

    def work(places: Sequence[int]) -> tuple[list[Packed], Blobs]:
        blobs: Blobs = {}
        return [read(place, index.paths[at], reading, blobs, walked.fresh.get(at)) for at in places], blobs

    for places, (bundle, blobs) in _spread(work, walked):
        for at, packed in zip(places, bundle, strict=True):
            index.entries[at] = packed.entry
            if packed.sig is None:
                walked.fresh.pop(at, None)
                index.sigs[at] = None
            else:
                walked.fresh[at] = packed.sig
                index.sigs[at] = trusted(packed.sig, walked.start)
            if packed.problem is not None:
                walked.flagged.append((index.paths[at][len(place.root) + 1 :], packed.problem))
            volume += packed.entry.size if packed.entry is not None else 0
        yield blobs
        if volume > place.limits.total_bytes:
            raise too_much(place)
        done += len(places)
        if progress is not None:
            progress(done, total)


def too_much(place: Place) -> FilesError:
    """The refusal of a directory that is too large."""
    return FilesError(place.root, f"its files have more than {place.limits.total_bytes} bytes (limits.total_bytes)")


def _spread(work: Callable[[Sequence[int]], T], walked: Walked) -> Iterator[tuple[list[int], T]]:
    """Do the work: the small files here, then the large ones in threads, some of them ahead."""
    large = [at for at in walked.dirty if at in walked.fresh and walked.fresh[at][2] >= LARGE]
    apart = set(large)
    for bundle in _bundles(walked, [at for at in walked.dirty if at not in apart]):
        yield bundle, work(bundle)
    if len(large) < 2:
        for at in large:
            yield [at], work([at])
        return
    cores = min(os.cpu_count() or 1, 8)
    with ThreadPoolExecutor(cores, thread_name_prefix="clew-pack") as pool:
        ahead: deque[tuple[list[int], Future[T]]] = deque()
        try:
            for at in large:
                ahead.append(([at], pool.submit(work, [at])))
                if len(ahead) > AHEAD * cores:
                    first, future = ahead.popleft()
                    yield first, future.result()
            while ahead:
                first, future = ahead.popleft()
                yield first, future.result()
        finally:
            for _, future in ahead:
                future.cancel()


def _bundles(walked: Walked, places: list[int]) -> Iterator[list[int]]:
    """Files in parcels of some files and some megabytes each."""
    bundle: list[int] = []
    room = BUNDLE_BYTES
    for at in places:
        size = walked.fresh[at][2] if at in walked.fresh else 0
        if bundle and (room < size or len(bundle) == BUNDLE):
            yield bundle
            bundle, room = [], BUNDLE_BYTES
        bundle.append(at)
        room -= size
    if bundle:
        yield bundle


def read(place: Place, path: bytes, reading: Reading, blobs: Blobs, seen: Signature | None = None) -> Packed:
    """Read one file as it stands; what is new of it goes to `blobs`. `seen` is how the walk saw it: if it still looks
    like that after it was read, it need not be looked at before."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return Packed(None, None)
    except OSError as error:
        return _failed(place, path, error)
    known = len(blobs)
    try:
        before = signature(os.fstat(handle)) if seen is None else seen
        for attempt in range(ATTEMPTS):
            if not stat.S_ISREG(before[4]):
                return Packed(None, None)  # replaced since it was looked at: listed again next time
            if attempt:
                os.lseek(handle, 0, os.SEEK_SET)
                _forget(blobs, known)
            entry = _content(handle, before, reading, blobs)
            after = signature(os.fstat(handle))
            if after == before and entry.size == after[2]:
                return Packed(entry, after)
            before = after
        return Packed(entry, None, "it kept changing while it was read")
    except OSError as error:
        _forget(blobs, known)
        return _failed(place, path, error)
    finally:
        os.close(handle)


def _forget(blobs: Blobs, known: int) -> None:
    """Take back all but the first so many."""
    while len(blobs) > known:
        blobs.popitem()


def _failed(place: Place, path: bytes, error: OSError) -> Packed:
    if place.unreadable == "raise":
        raise unreadable(path, error) from error
    return Packed(None, None, f"unreadable: {error.strerror}")


def _content(handle: int, seen: Signature, reading: Reading, blobs: Blobs) -> Entry:
    mode, size = seen[4] & MODES, seen[2]
    if size >= LARGE:
        return _pieces(handle, mode, reading, blobs)
    data = os.read(handle, size + 1)
    while len(data) < size:  # a short read, or the file shrank
        more = os.read(handle, size + 1 - len(data))
        if not more:
            break
        data += more
    return Entry(FILE, mode, len(data), reading.keep(blobs, data))


def _pieces(handle: int, mode: int, reading: Reading, blobs: Blobs) -> Entry:
    try:
        from pyfastcdc import FastCDC
    except ImportError as error:
        raise MissingExtra("a snapshot of files over 1 MB", "files") from error
    sizes: list[int] = []
    names: list[bytes] = []
    with io.FileIO(handle, closefd=False) as stream:
        for chunk in FastCDC(PIECE).cut_stream(stream):
            sizes.append(chunk.length)
            names.append(reading.keep(blobs, bytes(chunk.data)))
    return Entry(PIECES, mode, sum(sizes), reading.keep(blobs, encode_pieces(sizes, names)))
