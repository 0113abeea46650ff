"""Frames: the wrapping of all bytes that are passed to an engine.

A frame is one flag byte, the content, and a CRC-32. The checksum comes last and is little-endian, so that the CRC of a
whole sound frame is always the same number: a load checks a thousand rows with one `map` and no slicing. Content that
zstd makes smaller is stored compressed; the flag records this, so frames with and without compression can be mixed.

Rows of a few KB repeat little within themselves, so a lineage that has grown long enough gets a *dictionary*, trained
from its own first rows, which makes rows a quarter smaller. A dictionary is a blob; the frames that need it name it.
"""

from __future__ import annotations

import copy
import operator
import os
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import zstandard
from blake3 import blake3

from backtrail.encode.checksum import SOUND, crc32, pack_crc
from backtrail.errors import Corrupt, InvalidInput, OverBudget, UnsupportedFormat
from backtrail.model import Budget

RAW, ZSTD, DICTIONARY, SEALED = 0, 1, 2, 3
NAME = 8  # bytes by which a frame names its dictionary
_ALL_SOUND = frozenset({SOUND})
_BYTES = frozenset({bytes})
_WORTH = 128  # bytes below which compression saves less than its own header takes
_ABSURD = 1 << 48  # a size that no frame has; zstd's word for an unknown one is larger, too
_PACKED = frozenset({b"\x01", b"\x02"})
_USUAL = frozenset({b"\x00", b"\x01"})  # kinds that need nothing but themselves
_MUCH = 256 * 1024  # bytes from which threads are worth starting
_THREADS = min(4, os.cpu_count() or 1)
_AT_ONCE = {"multi_compress_to_buffer", "multi_decompress_to_buffer"} <= zstandard.backend_features  # not on PyPy
_FEW = 4  # contents up to which one call for all of them takes longer
_FLAG = operator.itemgetter(0)
_LARGE = 1 << 20  # bytes of a content that is copied once only
MAX_DICTIONARIES = 256  # kept in memory, 16 KB each
DICTIONARY_SIZE = 32 * 1024  # bytes: with half of it rows are 3 % larger, with twice as much 1 % smaller
_NEWER = "is in a frame of a kind that this version of backtrail does not know: use a newer one"
Allow = Callable[[int], None]
BEFORE, BEHIND = b"\x00", bytes(4)  # around the content of a bare frame


def describe_row(branch: bytes, step: int) -> str:
    """The name of a row in messages. Sealed frames are bound to this text, so it must never change."""
    return f"step {step} of branch {branch.hex()}"


def check_sound(frame: bytes, record: str, least: int) -> None:
    """Raise `Corrupt` unless this is an intact frame of at least `least` bytes."""
    if type(frame) is not bytes:  # a damaged database may return anything
        raise Corrupt(record, f"it is {type(frame).__name__}, not bytes")
    if crc32(frame) != SOUND or len(frame) < least:
        raise Corrupt(record, "its checksum does not hold" if frame else "it is empty")


class LacksDictionary(Corrupt):
    """A frame needs the dictionary `name`, which is not loaded: fetch it and try again."""

    def __init__(self, record: str, name: bytes) -> None:
        super().__init__(record, f"the dictionary {name.hex()} that it was compressed with is missing")
        self.name = name


class Frames:
    """Wraps and unwraps. One per store; safe to share between threads.

    `record` names the record for the message of a `Corrupt`; a sealing subclass may also bind the bytes to it.
    """

    def __init__(self, compression: str | None = None, level: int | None = None, most: int = Budget().bytes) -> None:
        if compression not in (None, "zstd"):
            raise InvalidInput(f"compression={compression!r} is unknown: use 'zstd' or None")
        if level is not None and not 1 <= level <= 19:
            raise InvalidInput(f"compression_level={level!r} is out of range: use 1 to 19")
        self.compression = compression
        self.level = level
        self.most = most  #: bytes that one frame may unpack to
        self._local = threading.local()  # zstd contexts must not be shared by threads
        self._dictionaries: dict[bytes, zstandard.ZstdCompressionDict] = {}

    def compressing(self, level: int) -> Self:
        """The same frames, but with zstd at this level, whatever the store itself uses: for the files of workspaces."""
        other = copy.copy(self)
        other.compression, other.level, other._local = "zstd", level, threading.local()  # noqa: SLF001  # still ours
        return other

    def wrap(self, content: bytes, record: str, dictionary: bytes = b"") -> bytes:  # noqa: ARG002  # sealing binds it
        """The frame of `content`; compressed with the dictionary of that name, if it is loaded."""
        if len(content) > _LARGE and not self.compression:
            return b"".join((BEFORE, content, pack_crc(crc32(content, crc32(BEFORE)))))
        packed = self._pack(content, dictionary)
        return packed + pack_crc(crc32(packed))

    def wrap_all(self, contents: Sequence[bytes], records: Iterable[str]) -> list[bytes]:  # noqa: ARG002  # as above
        """The frames of many contents, as `wrap` makes them."""
        return [packed + pack_crc(crc32(packed)) for packed in self._pack_all(contents)]

    def unwrap(self, frame: bytes, record: str, allow: Allow | None = None) -> bytes:
        """The content of one frame, or `Corrupt`. `allow` is called with the size that a compressed one will have,
        before it is unpacked, and may raise; without it, `most` is the limit."""
        check_sound(frame, record, 5)
        return self._unpack(frame[:-4], record, allow)

    def expected(self, frames: Sequence[bytes]) -> int:
        """What those of these frames that are compressed will take together, as far as they tell it."""
        if set(map(type, frames)) <= _BYTES and all(frames) and not any(map(_FLAG, frames)):
            return 0
        return sum(_told_size(frame) for frame in frames if type(frame) is bytes and frame[:1] in _PACKED)

    def unwrap_blob(self, frame: bytes, id: bytes, record: str) -> bytes:
        """The content of the blob of that name, or `Corrupt`."""
        content = self.unwrap(frame, record)
        if not self.is_named(content, id):
            raise Corrupt(record, "its content does not match its name")
        return content

    def unwrap_blobs(
        self, frames: Sequence[bytes], ids: Sequence[bytes], sizes: Sequence[int], records: Iterable[str]
    ) -> list[memoryview]:
        """The contents of blobs of these names and sizes, or `Corrupt`. The names serve as the check: checksums and
        `records` are used only to describe an error."""
        found = self._unpack_all(list(map(_without_checksum, frames)), ids, sizes)
        return self._each_blob(frames, ids, sizes, records) if found is None else found

    def bind(self, content: bytes, facts: bytes) -> bytes:
        """`content` with a checksum over itself and `facts`, which are kept elsewhere."""
        return content + pack_crc(crc32(content, crc32(facts)))

    def open_bound(self, data: bytes, facts: bytes, record: str) -> bytes:
        """The content that was bound to the same facts, or `Corrupt`."""
        content = data[:-4] if type(data) is bytes else b""
        if type(data) is not bytes or pack_crc(crc32(content, crc32(facts))) != data[-4:]:
            raise Corrupt(record, "its checksum does not hold")
        return content

    def bare(self, frames: Sequence[bytes], records: Iterable[str], allow: Allow | None = None) -> Sequence[bytes]:
        """Checked frames as one flag byte, the plain content, and four bytes: a frame that is stored raw is not copied.
        `records` is used only when something is wrong; `allow` as for `unwrap`, for all of them or for each."""
        if set(map(type, frames)) <= _BYTES and set(map(crc32, frames)) <= _ALL_SOUND:
            if not any(map(_FLAG, frames)):
                return frames
            return self._unpack_rows(frames, records, allow)
        return [BEFORE + self.unwrap(f, p, allow) + BEHIND for f, p in zip(frames, records, strict=True)]

    def blob_id(self, content: bytes | memoryview) -> bytes:
        """The name of a blob: the hash of its content."""
        return blake3(content).digest()

    def is_named(self, content: bytes, id: bytes) -> bool:
        """True if a blob, unwrapped under its own name, is the one of that name."""
        return self.blob_id(content) == id

    # -- dictionaries -------------------------------------------------------------------------------------------------

    def learn(self, content: bytes) -> bytes:
        """Load a dictionary; returns its name."""
        name = self.blob_id(content)[:NAME]
        if name not in self._dictionaries:
            dictionary = zstandard.ZstdCompressionDict(content)
            dictionary.precompute_compress(level=self._strength(name))
            while len(self._dictionaries) >= MAX_DICTIONARIES:
                self._dictionaries.pop(next(iter(self._dictionaries)))
            self._dictionaries[name] = dictionary
        return name

    def knows(self, name: bytes) -> bool:
        """True if the dictionary of that name is loaded."""
        return name in self._dictionaries

    # -- packing ------------------------------------------------------------------------------------------------------

    def _pack(self, content: bytes, dictionary: bytes = b"") -> bytes:
        """The flag, and the content in its shortest form."""
        if self.compression and len(content) >= _WORTH:
            known = dictionary if dictionary in self._dictionaries else b""
            packed = self._compressor(known).compress(content)
            if len(packed) + len(known) < len(content):
                return b"\x02" + known + packed if known else b"\x01" + packed
        return b"\x00" + content

    def _pack_all(self, contents: Sequence[bytes]) -> list[bytes]:
        """The result of `_pack` for each, made with one call, which takes the GIL once."""
        if not self.compression or not _AT_ONCE or len(contents) < _FEW:
            return [self._pack(content) for content in contents]
        worth: list[bytes | bytearray | memoryview] = [content for content in contents if len(content) >= _WORTH]
        shorter = iter(self._compressor(b"").multi_compress_to_buffer(worth) if worth else ())
        return [
            b"\x01" + packed.tobytes()
            if len(content) >= _WORTH and len(packed := next(shorter)) < len(content)
            else b"\x00" + content
            for content in contents
        ]

    def _strength(self, dictionary: bytes) -> int:
        """The level of zstd: the given one; else 3, or 6 with a dictionary, where it saves another 7 %."""
        return self.level or (6 if dictionary else 3)

    def _compressor(self, dictionary: bytes) -> zstandard.ZstdCompressor:
        made: dict[bytes, zstandard.ZstdCompressor] = self._local.__dict__.setdefault("compressors", {})
        if dictionary not in made:
            if len(made) >= MAX_DICTIONARIES:
                made.clear()
            made[dictionary] = zstandard.ZstdCompressor(
                level=self._strength(dictionary),
                dict_data=self._dictionaries[dictionary] if dictionary else None,
                write_checksum=False,
                write_dict_id=False,
            )
        return made[dictionary]

    def _decompressor(self, dictionary: bytes) -> zstandard.ZstdDecompressor:
        made: dict[bytes, zstandard.ZstdDecompressor] = self._local.__dict__.setdefault("decompressors", {})
        if dictionary not in made:
            if len(made) >= MAX_DICTIONARIES:
                made.clear()
            made[dictionary] = zstandard.ZstdDecompressor(
                dict_data=self._dictionaries[dictionary] if dictionary else None
            )
        return made[dictionary]

    def _unpack(self, packed: bytes, record: str, allow: Allow | None = None) -> bytes:
        """The content that `_pack` packed."""
        if not packed:
            raise Corrupt(record, "it is empty")
        kind = packed[0]
        if kind == RAW:
            return packed[1:]
        if kind not in (ZSTD, DICTIONARY):
            raise UnsupportedFormat(
                f"{record} {'is encrypted: open the store with its key' if kind == SEALED else _NEWER}"
            )
        name = packed[1 : 1 + NAME] if kind == DICTIONARY else b""
        if name and name not in self._dictionaries:
            raise LacksDictionary(record, name)
        body = packed[1 + len(name) :]
        try:
            size = zstandard.frame_content_size(body)
            if not 0 <= size <= _ABSURD:
                raise Corrupt(record, "its unpacked size is absurd")
            if allow is not None:
                allow(size)
            elif size > self.most:
                raise OverBudget(record, "bytes", self.most, size)
            return self._decompressor(name).decompress(body)
        except zstandard.ZstdError as error:
            raise Corrupt(record, f"zstd: {error}") from error

    def _unpack_rows(self, frames: Sequence[bytes], records: Iterable[str], allow: Allow | None) -> list[bytes]:
        """Bare frames of sound frames, or of any four bytes behind what `_pack` packed."""
        try:
            found = self._unpack_together(frames, allow) if allow is not None else None
        except zstandard.ZstdError:
            found = None
        if found is None:  # one by one, to find what is wrong
            found = [BEFORE + self._unpack(f[:-4], p, allow) + BEHIND for f, p in zip(frames, records, strict=True)]
        return found

    def _unpack_together(self, frames: Sequence[bytes], allow: Allow) -> list[bytes] | None:
        """The same; those of one dictionary are unpacked with one call. None if one cannot be unpacked."""
        groups: dict[bytes, list[int]] = {}  # the name of a dictionary -> which were compressed with it
        for at, frame in enumerate(frames):
            kind = frame[0]
            if kind == DICTIONARY:
                groups.setdefault(frame[1 : 1 + NAME], []).append(at)
            elif kind == ZSTD:
                groups.setdefault(b"", []).append(at)
            elif kind != RAW or len(frame) == len(BEHIND):
                return None
        if not groups.keys() - {b""} <= self._dictionaries.keys():
            return None
        found = list(frames)
        for name, places in groups.items():
            bodies = [frames[at][1 + len(name) : -4] for at in places]
            for at, content in zip(places, self._decompress(name, bodies, allow), strict=True):
                found[at] = b"".join((BEFORE, content, BEHIND))
        return found

    def _decompress(self, dictionary: bytes, bodies: list[Any], allow: Allow) -> list[Any]:
        """The contents of zstd frames, as bytes or as buffers. A large load is spread over the processor's cores."""
        sizes = list(map(zstandard.frame_content_size, bodies))
        total = sum(sizes)
        if not 0 <= min(sizes) <= total <= _ABSURD:
            raise zstandard.ZstdError("a size is absurd")
        allow(total)
        decompressor = self._decompressor(dictionary)
        if not _AT_ONCE or total < _MUCH:
            return list(map(decompressor.decompress, bodies))
        room = struct.pack(f"={len(sizes)}Q", *sizes)
        found = decompressor.multi_decompress_to_buffer(bodies, room, threads=_THREADS)
        return [found[at] for at in range(len(sizes))]

    def _unpack_all(
        self, packed: Sequence[memoryview], ids: Sequence[bytes], sizes: Sequence[int]
    ) -> list[memoryview] | None:
        """The contents that `_pack` packed, made with one call; None unless all have these names and sizes and are of
        the usual kinds."""
        kinds = [bytes(one[:1]) for one in packed]
        if not _USUAL.issuperset(kinds) or min(sizes, default=0) < 0 or sum(sizes) > self.most or not _AT_ONCE:
            return None
        views = [one[1:] for one in packed]
        squeezed = [at for at, kind in enumerate(kinds) if kind == b"\x01"]
        if squeezed:
            room = struct.pack(f"={len(squeezed)}Q", *(sizes[at] for at in squeezed))
            try:
                plain = self._decompressor(b"").multi_decompress_to_buffer([views[at] for at in squeezed], room)
            except zstandard.ZstdError:
                return None
            for number, at in enumerate(squeezed):
                views[at] = memoryview(plain[number])  # type: ignore[arg-type]  # the stubs do not know it is a buffer
        sound = list(map(len, views)) == list(sizes) and list(map(self.blob_id, views)) == list(ids)
        return views if sound else None

    def _each_blob(
        self, frames: Sequence[bytes], ids: Sequence[bytes], sizes: Sequence[int], records: Iterable[str]
    ) -> list[memoryview]:
        """`unwrap_blobs` one by one, to find what is wrong, or because one is of an unusual kind."""
        found = []
        for frame, id, size, record in zip(frames, ids, sizes, records, strict=True):
            found.append(memoryview(self.unwrap_blob(frame, id, record)))
            if len(found[-1]) != size:
                raise Corrupt(record, f"it has {len(found[-1])} bytes, and not {size}")
        return found


def _told_size(frame: bytes) -> int:
    """The size of the content of a compressed frame, as its head tells it; 0 if it does not."""
    try:
        told = zstandard.get_frame_parameters(frame[1 if frame[0] == ZSTD else 1 + NAME :]).content_size
    except zstandard.ZstdError:
        return 0  # unpacking it will tell what is wrong
    return told if told <= _ABSURD else 0


def _without_checksum(frame: bytes) -> memoryview:
    """The frame without its checksum; empty, which is not a valid frame, if a damaged database returned another
    type."""
    return memoryview(frame if type(frame) is bytes else b"")[:-4]


def train(samples: Sequence[bytes]) -> bytes:
    """A dictionary made from samples; b"" if they are too few or too much alike to make one."""
    try:
        return zstandard.train_dictionary(DICTIONARY_SIZE, list(samples)).as_bytes()
    except zstandard.ZstdError:
        return b""
