"""The bytes of files whose blobs have been fetched: unpacked when they are asked for, many with one call.

One call for many needs the interpreter's lock once and not for each, so several threads can ask at the same time.
Every content is checked against its name and against the size that its tree, or its list of pieces, says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from backtrail.encode.frame import Frames
from backtrail.workspace.trees import Pieces, TreeEntry

AT_ONCE = 16  # pieces, about 320 KB, that are unpacked with one call: more would not stay in the processor's cache


def place_of(name: bytes) -> str:
    """What a message calls a blob, and what a sealed one is bound to."""
    return f"blob {name.hex()}"


class BlobReader:
    """The contents of some files. May be asked from any thread."""

    def __init__(self, frames: Frames, found: Mapping[bytes, bytes], pieces: Mapping[bytes, Pieces]) -> None:
        self._frames = frames
        self._found = found
        self._pieces = pieces

    def small(self, entries: Sequence[TreeEntry]) -> list[memoryview]:
        """The bytes of files that are one blob each."""
        return self._unpacked([entry.ref for entry in entries], [entry.size for entry in entries])

    def parts(self, entry: TreeEntry) -> Iterator[list[memoryview]]:
        """The bytes of any file, in pieces, some of them at a time."""
        pieces = self._pieces.get(entry.ref)
        if pieces is None:
            yield self.small([entry])
            return
        for first in range(0, len(pieces.refs), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            yield self._unpacked(pieces.refs[some], pieces.sizes[some])

    def whole(self, entry: TreeEntry) -> bytes:
        """The bytes of any file."""
        return b"".join(piece for part in self.parts(entry) for piece in part)

    def _unpacked(self, names: Sequence[bytes], sizes: Sequence[int]) -> list[memoryview]:
        return self._frames.unwrap_blobs([self._found[name] for name in names], names, sizes, map(place_of, names))
