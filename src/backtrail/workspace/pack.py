"""Packing: from files in the directory to entries and blobs.

A file is read through one descriptor and looked at before and after: if it changed meanwhile it is read again, and if
it never stands still what was read last is kept and reported. Small files are one blob. From 1 MB up a file is cut
where its content says so, so that an insertion in the middle costs one piece and not the file.

Large files are read in threads beside the small ones: their pieces are hashed and compressed without the interpreter's
lock. A small file needs the lock too often for a thread of its own; but what is read together is compressed with one
call, during which others have the lock.
"""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from backtrail.errors import FilesError, MissingExtra
from backtrail.workspace.exclusions import ScanRoot, unreadable
from backtrail.workspace.index import Signature, signature, trusted
from backtrail.workspace.trees import FILE, MODES, PIECES, TreeEntry, encode_pieces
from backtrail.workspace.walk import Walked

LARGE = 2**20  # bytes from which pieces pay
PIECE = 16 * 1024  # what the cutter aims at; the pieces it makes are about a quarter larger
ATTEMPTS = 3
BUNDLE, BUNDLE_BYTES = 64, 4 * 2**20  # what is read between two reports of progress
AT_ONCE = 32  # pieces, about 600 KB, that are compressed with one call
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
AHEAD = 2  # large files per thread that are under way, or wait to be written

Name = Callable[[bytes], bytes]  # content -> id
Wrap = Callable[[Sequence[bytes], Sequence[bytes]], Sequence[bytes]]  # (ids, contents) -> what the engine keeps
Blobs = dict[bytes, bytes]
T = TypeVar("T")


class Packed(msgspec.Struct):
    """One file as read. Without an entry it was gone or could not be read, or it is small and still has no name."""

    entry: TreeEntry | None
    sig: Signature | None
    problem: str | None = None
    mode: int = 0
    content: bytes | None = None  #: of a small file, until it has a name


class FileBatch(NamedTuple):
    """Files that were read together."""

    blobs: Blobs  #: the new ones
    weight: int  #: bytes of those
    done: int  #: how many files have been read by now


class PackSettings(msgspec.Struct, frozen=True):
    """How files become blobs: how those are named, which are there already, and how the rest is wrapped.

    Without `wrap` only entries are made, and no blob.
    """

    name: Name
    have: Container[bytes] = frozenset()
    wrap: Wrap | None = None

    def keep(self, blobs: Blobs, contents: Sequence[bytes]) -> list[bytes]:
        """Name contents, and wrap those that are new: all at once, which takes less than one after the other."""
        names = list(map(self.name, contents))
        if self.wrap is not None:
            both = zip(names, contents, strict=True)
            new = {name: content for name, content in both if name not in self.have and name not in blobs}
            blobs.update(zip(new, self.wrap(list(new), list(new.values())), strict=True))
        return names


def pack(place: ScanRoot, walked: Walked, reading: PackSettings) -> Iterator[FileBatch]:
    """Read the dirty files, fill their places in the index, and give out the new blobs."""
    index, done, volume = walked.index, 0, 0

    def work(places: Sequence[int]) -> tuple[list[Packed], Blobs]:
        blobs: Blobs = {}
        found = [read(place, index.paths[at], reading, blobs, walked.fresh.get(at)) for at in places]
        _name(found, reading, blobs)
        return found, blobs

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
        done += len(places)
        yield FileBatch(blobs, sum(map(len, blobs.values())), done)
        if volume > place.limits.total_bytes:
            raise too_much(place)


def too_much(place: ScanRoot) -> FilesError:
    """The refusal of a directory that is too large."""
    return FilesError(place.root, f"its files have more than {place.limits.total_bytes} bytes (limits.total_bytes)")


def _spread(work: Callable[[Sequence[int]], T], walked: Walked) -> Iterator[tuple[list[int], T]]:
    """Do the work: the small files here, and the large ones beside them in threads, some of them ahead."""
    large = [at for at in walked.dirty if at in walked.fresh and walked.fresh[at][2] >= LARGE]
    apart = set(large)
    bundles = _bundles(walked, [at for at in walked.dirty if at not in apart])
    if not large:
        for bundle in bundles:
            yield bundle, work(bundle)
        return
    threads = max(min(os.cpu_count() or 1, 8) - 1, 1)
    left = deque(large)
    ahead: deque[tuple[list[int], Future[T]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="backtrail-pack") as pool:
        try:
            while True:
                while left and len(ahead) < AHEAD * threads:
                    one = [left.popleft()]
                    ahead.append((one, pool.submit(work, one)))
                small = next(bundles, None)
                if small is not None:
                    yield small, work(small)
                elif left:
                    one = [left.pop()]
                    yield one, work(one)
                elif not ahead:
                    return
                while ahead and (ahead[0][1].done() or not (small or left)):
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


def entry_of(place: ScanRoot, path: bytes, reading: PackSettings) -> TreeEntry | None:
    """The file that stands at a path, if one does."""
    found = read(place, path, reading, {})
    _name([found], reading, {})
    return found.entry


def _name(found: Iterable[Packed], reading: PackSettings, blobs: Blobs) -> None:
    """Give small files their names, and `blobs` what is new of them."""
    small = [(packed, packed.content) for packed in found if packed.content is not None]
    names = reading.keep(blobs, [content for _, content in small])
    for (packed, content), name in zip(small, names, strict=True):
        packed.entry, packed.content = TreeEntry(FILE, packed.mode, len(content), name), None


def read(place: ScanRoot, path: bytes, reading: PackSettings, blobs: Blobs, seen: Signature | None = None) -> Packed:
    """Read one file as it stands; what is new of a large one goes to `blobs`. `seen` is how the walk saw it: if it
    still looks like that after it was read, it need not be looked at before."""
    try:
        handle = os.open(path, _OPEN)
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
            entry, content = _content(handle, before, reading, blobs)
            size = entry.size if entry is not None else len(content or b"")
            after = signature(os.fstat(handle))
            if after == before and size == after[2]:
                return Packed(entry, after, None, after[4] & MODES, content)
            before = after
        return Packed(entry, None, "it kept changing while it was read", before[4] & MODES, content)
    except OSError as error:
        _forget(blobs, known)
        return _failed(place, path, error)
    finally:
        os.close(handle)


def _forget(blobs: Blobs, known: int) -> None:
    """Take back all but the first so many."""
    while len(blobs) > known:
        blobs.popitem()


def _failed(place: ScanRoot, path: bytes, error: OSError) -> Packed:
    if place.unreadable == "raise":
        raise unreadable(path, error) from error
    return Packed(None, None, f"unreadable: {error.strerror}")


def _content(
    handle: int, seen: Signature, reading: PackSettings, blobs: Blobs
) -> tuple[TreeEntry | None, bytes | None]:
    """The entry of a large file, or the bytes of a small one."""
    size = seen[2]
    if size >= LARGE:
        return _pieces(handle, seen[4] & MODES, reading, blobs), None
    data = os.read(handle, size + 1)
    while len(data) < size:  # a short read, or the file shrank
        more = os.read(handle, size + 1 - len(data))
        if not more:
            break
        data += more
    return None, data


def _pieces(handle: int, mode: int, reading: PackSettings, blobs: Blobs) -> TreeEntry:
    try:
        from pyfastcdc import FastCDC
    except ImportError as error:
        raise MissingExtra("a snapshot of files over 1 MB", "files") from error
    sizes: list[int] = []
    names: list[bytes] = []
    with io.FileIO(handle, closefd=False) as stream:
        chunks = (bytes(chunk.data) for chunk in FastCDC(PIECE).cut_stream(stream))
        while some := list(islice(chunks, AT_ONCE)):
            sizes += map(len, some)
            names += reading.keep(blobs, some)
    return TreeEntry(PIECES, mode, sum(sizes), reading.keep(blobs, [encode_pieces(sizes, names)])[0])
