"""Frames: how bytes are wrapped before an engine gets them.

A frame is one flag byte, the content, and a CRC-32. The checksum stands last and little-endian, so that the CRC of a
whole sound frame is always the same number: a load checks a thousand rows with one `map` and no slicing. Content that
zstd makes smaller is stored compressed; the flag says so, so that stores with and without compression can be mixed.
"""

from __future__ import annotations

import copy
import operator
import struct
import threading
import zlib
from collections.abc import Iterable, Sequence
from typing import Self

import zstandard
from blake3 import blake3

from clew.errors import Corrupt, InvalidInput, UnsupportedFormat

RAW, ZSTD = 0, 1
_SOUND = 0x2144DF1C  # CRC-32 of any message followed by its own little-endian CRC-32
_WORTH = 128  # bytes below which compression cannot win back its own header
_MAX_PLAIN = 1 << 31  # no frame that we write unpacks to more: a damaged size must not exhaust memory
_FLAG = operator.itemgetter(0)
_crc = struct.Struct("<I")
BEFORE, BEHIND = b"\x00", bytes(4)  # what stands around the content of a bare frame


class Frames:
    """Wraps and unwraps. One per store; safe to share between threads.

    `place` names the record for the message of a `Corrupt`; a sealing subclass may also bind the bytes to it.
    """

    def __init__(self, compression: str | None = None, level: int = 3) -> None:
        if compression not in (None, "zstd"):
            raise InvalidInput(f"compression={compression!r} is unknown: use 'zstd' or None")
        if not 1 <= level <= 19:
            raise InvalidInput(f"compression_level={level!r} is out of range: use 1 to 19")
        self.compression = compression
        self._level = level
        self._local = threading.local()  # zstd contexts must not be shared by threads

    def compressing(self, level: int) -> Self:
        """The same frames, but with zstd at this level, whatever the store itself uses: for the files of a workspace."""
        other = copy.copy(self)
        other.compression, other._level, other._local = "zstd", level, threading.local()
        return other

    def wrap(self, content: bytes, place: str) -> bytes:  # noqa: ARG002  # a sealing subclass binds it
        """The frame of `content`."""
        if self.compression and len(content) >= _WORTH:
            packed = self._compressor().compress(content)
            if len(packed) < len(content):
                return _checked(b"\x01" + packed)
        return _checked(b"\x00" + content)

    def unwrap(self, frame: bytes, place: str) -> bytes:
        """The content of one frame, or `Corrupt`."""
        if zlib.crc32(frame) != _SOUND:
            raise Corrupt(place, "its checksum does not hold" if frame else "it is empty")
        return frame[1:-4] if frame[0] == RAW else self._unpack(frame, place)

    def bare(self, frames: Sequence[bytes], places: Iterable[str]) -> Sequence[bytes]:
        """Checked frames as one flag byte, the plain content, and four bytes: what is stored raw is not even copied.
        `places` is looked at only when something has to be unpacked or is wrong."""
        if not set(map(zlib.crc32, frames)) - {_SOUND} and not any(map(_FLAG, frames)):
            return frames
        return [BEFORE + self.unwrap(f, p) + BEHIND for f, p in zip(frames, places, strict=True)]

    def blob_id(self, content: bytes) -> bytes:
        """The name of a blob: the hash of its content."""
        return blake3(content).digest()

    def _compressor(self) -> zstandard.ZstdCompressor:
        try:
            return self._local.compressor  # type: ignore[no-any-return]  # threading.local is untyped
        except AttributeError:
            self._local.compressor = zstandard.ZstdCompressor(level=self._level, write_checksum=False)
            return self._local.compressor  # type: ignore[no-any-return]

    def _unpack(self, frame: bytes, place: str) -> bytes:
        if frame[0] != ZSTD:
            raise UnsupportedFormat(
                f"{place} is in a frame of kind {frame[0]}, which this store cannot open: "
                "it needs a key, or a newer version of clew"
            )
        try:
            if zstandard.get_frame_parameters(frame[1:-4]).content_size > _MAX_PLAIN:
                raise Corrupt(place, "its unpacked size is absurd")
            try:
                decompressor = self._local.decompressor
            except AttributeError:
                decompressor = self._local.decompressor = zstandard.ZstdDecompressor()
            return decompressor.decompress(frame[1:-4])  # type: ignore[no-any-return]
        except zstandard.ZstdError as error:
            raise Corrupt(place, f"zstd: {error}") from error


def _checked(content: bytes) -> bytes:
    return content + _crc.pack(zlib.crc32(content))
