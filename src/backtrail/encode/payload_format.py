"""The payload of a row: the items that it adds to streams, in *sections*, and other values and pages, in *slots*.

Its headers have a fixed width and are little-endian: a load of 1,600 rows finds the items of each row with one slice,
and reads bare frames (see `frame`), so that items are copied once.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from backtrail.encode.frame import BEFORE, BEHIND
from backtrail.errors import Corrupt

_COUNTS = struct.Struct("<HH")  # number of sections, number of slots
_SECTION = struct.Struct("<HIIQI")  # stream, first item, items, bytes of the stream before, bytes
_LENGTH = struct.Struct("<I")
_ONE_SECTION = struct.Struct("<HHHIIQI")  # both headers of a payload with one section and nothing else
_ONE_COUNT = struct.pack("<HH", 1, 0)
_STREAM = struct.Struct("<H")
_ONE_HEAD = len(BEFORE) + _COUNTS.size
_ONE_DATA = _ONE_HEAD + _SECTION.size
_FRONT = operator.itemgetter(slice(_ONE_HEAD + _STREAM.size))  # the same in all such rows of one stream
_DATA = operator.itemgetter(slice(_ONE_DATA, -len(BEHIND)))
_LARGE = 1 << 16  # bytes of a row whose items are not copied
MAX_STREAMS = 0xFFFF
ENOUGH_STREAMS = MAX_STREAMS // 2  # a branch that has begun more of them is not continued


class Section(NamedTuple):
    """Items start..start+items-1 of a stream. `data`: their encodings, one after the other; `offset`: bytes of the
    stream before them, so that a range of items is found without reading the rows before it."""

    stream: int
    start: int
    items: int
    offset: int
    data: bytes


def pack_payload(sections: list[Section], slots: list[bytes]) -> bytes:
    """The bytes of a payload."""
    if len(sections) == 1 and not slots:
        stream, start, items, offset, data = sections[0]
        return _ONE_SECTION.pack(1, 0, stream, start, items, offset, len(data)) + data
    parts = [_COUNTS.pack(len(sections), len(slots))]
    for stream, start, items, offset, data in sections:
        parts.append(_SECTION.pack(stream, start, items, offset, len(data)))
    parts.extend(_LENGTH.pack(len(slot)) for slot in slots)
    parts.extend(section.data for section in sections)
    parts.extend(slots)
    return b"".join(parts)


class Payload:
    """The sections and slots of the payload in a bare frame. Its headers are read once; a section or a slot is copied
    out of the frame when it is needed, so that all values of a row together cost what the row costs."""

    __slots__ = ("_ends", "_first", "_frame", "_streams")

    def __init__(self, frame: bytes, where: str) -> None:
        stop = len(frame) - len(BEHIND)
        at = len(BEFORE)
        self._frame = frame
        self._streams: dict[int, list[tuple[int, int, int, int, int]]] = {}
        self._ends: list[int] = []  # where each slot ends
        self._first = stop  # where the first slot begins
        if at == stop:
            return
        try:
            sections, slots = _COUNTS.unpack_from(frame, at)
            at += _COUNTS.size
            heads = [_SECTION.unpack_from(frame, at + i * _SECTION.size) for i in range(sections)]
            at += sections * _SECTION.size
            lengths = struct.unpack_from(f"<{slots}I", frame, at)
        except struct.error as error:
            raise Corrupt(where, f"its payload is cut short: {error}") from error
        at += slots * 4
        for stream, start, items, offset, length in heads:
            self._streams.setdefault(stream, []).append((start, items, offset, at, at + length))
            at += length
        self._first = at
        self._ends = list(accumulate(lengths, initial=at))[1:]
        if (self._ends[-1] if slots else at) != stop:
            raise Corrupt(where, "its payload has the wrong length")

    @property
    def streams(self) -> Iterable[int]:
        """The streams that the row adds items to."""
        return self._streams

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self._ends)

    def slot(self, index: int) -> bytes:
        """The bytes of a slot; `IndexError` if there is none of that number."""
        return self.slots_between(index, index + 1)

    def slots_between(self, start: int, stop: int) -> bytes:
        """The bytes of the slots start..stop-1, which lie behind each other; `IndexError` if one of them is not
        there."""
        if start < 0:
            raise IndexError(start)
        return self._frame[self._ends[start - 1] if start else self._first : self._ends[stop - 1]]

    def sections(self, stream: int) -> list[Section]:
        """The sections of a stream, in their order."""
        return [
            Section(stream, start, items, offset, self._frame[begin:end])
            for start, items, offset, begin, end in self._streams.get(stream, ())
        ]


def unpack_payload(frame: bytes, where: str) -> tuple[list[Section], list[bytes]]:
    """All sections and slots of the payload in a bare frame."""
    payload = Payload(frame, where)
    sections = [section for stream in payload.streams for section in payload.sections(stream)]
    return sections, [payload.slot(index) for index in range(payload.slots)]


def only_section(data: bytes) -> Section | None:
    """The section of a payload (without its frame) that holds one section and nothing else; None for any other."""
    if not data.startswith(_ONE_COUNT):
        return None
    stream, start, items, offset, _ = _SECTION.unpack_from(data, _COUNTS.size)
    return Section(stream, start, items, offset, data[_COUNTS.size + _SECTION.size :])


def one_section_rows(frames: Sequence[bytes], stream: int) -> OneSectionRows | None:
    """Rows that each hold just one section of this stream, as nearly all rows do; None if one is different."""
    front = BEFORE + _ONE_COUNT + _STREAM.pack(stream)
    return OneSectionRows(frames) if set(map(_FRONT, frames)) <= {front} else None


class OneSectionRows:
    """A run of rows with one section each. Items are found by arithmetic; no header is unpacked for every row."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames

    def start(self, row: int) -> int:
        """The number of the first item in a row; after the last row, the number of the next item."""
        if row < len(self.frames):
            return int(_SECTION.unpack_from(self.frames[row], _ONE_HEAD)[1])
        _, start, count, _, _ = _SECTION.unpack_from(self.frames[row - 1], _ONE_HEAD)
        return int(start + count)

    def offset(self, row: int) -> int:
        """Bytes of the stream before a row."""
        return int(_SECTION.unpack_from(self.frames[row], _ONE_HEAD)[3])

    def data(self, first: int, last: int) -> Sequence[bytes | memoryview]:
        """The items of rows first..last-1. Those of large rows are not copied."""
        frames = self.frames[first:last]
        if max(map(len, frames)) > _LARGE:
            return [memoryview(frame)[_ONE_DATA : -len(BEHIND)] for frame in frames]
        return list(map(_DATA, frames))
