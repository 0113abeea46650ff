"""The contents of files whose blobs have been fetched: unpacked when they are read, many with one call.

One call for many blobs takes the interpreter's lock once instead of once for each, so several threads can read at the
same time. Every content is checked against its id, and against the size that its tree or its list of pieces gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from backtrail.encode.frame import Frames
from backtrail.workspace.trees import Pieces, TreeEntry

PIECES_PER_CALL = 16  # about 320 KB: more would not stay in the processor's cache


def blob_label(id: bytes) -> str:
    """The name of a blob in messages; an encrypted blob is also bound to it."""
    return f"blob {id.hex()}"


class BlobReader:
    """Reads the contents of some files. May be used from any thread."""

    def __init__(self, frames: Frames, blobs: Mapping[bytes, bytes], pieces: Mapping[bytes, Pieces]) -> None:
        self._frames = frames
        self._blobs = blobs
        self._pieces = pieces

    def read_small(self, entries: Sequence[TreeEntry]) -> list[memoryview]:
        """The contents of files that are one blob each."""
        return self._unpack([entry.ref for entry in entries], [entry.size for entry in entries])

    def read_parts(self, entry: TreeEntry) -> Iterator[list[memoryview]]:
        """The content of any file as lists of pieces, a few pieces at a time."""
        pieces = self._pieces.get(entry.ref)
        if pieces is None:
            yield self.read_small([entry])
            return
        for first in range(0, len(pieces.refs), PIECES_PER_CALL):
            some = slice(first, first + PIECES_PER_CALL)
            yield self._unpack(pieces.refs[some], pieces.sizes[some])

    def read(self, entry: TreeEntry) -> bytes:
        """The content of any file."""
        return b"".join(piece for part in self.read_parts(entry) for piece in part)

    def _unpack(self, ids: Sequence[bytes], sizes: Sequence[int]) -> list[memoryview]:
        return self._frames.unwrap_blobs([self._blobs[id] for id in ids], ids, sizes, map(blob_label, ids))
