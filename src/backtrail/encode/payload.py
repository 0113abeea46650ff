"""The payload of a row: the new items of each stream, and the values and pages that got a slot.

Fixed-width little-endian headers, then the data: a load of 1,600 rows must find its items in each of them with one
slice. Reading works on bare frames (see `frame`), so that the items are copied once. A section says which items of its
stream it holds and how many bytes came before them, so that a range of items can be found without reading what lies in
front of it.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import NamedTuple

from backtrail.encode.frame import BEFORE, BEHIND
from backtrail.errors import Corrupt

_COUNTS = struct.Struct("<HH")  # sections, slots
_SECTION = struct.Struct("<HIIQI")  # stream, first item, items, bytes before, bytes
_LENGTH = struct.Struct("<I")
_ALONE = struct.Struct("<HHHIIQI")  # both, of a payload with one section and nothing else
_ONE = struct.pack("<HH", 1, 0)
_STREAM = struct.Struct("<H")
_LONE_HEAD = len(BEFORE) + _COUNTS.size
_LONE_DATA = _LONE_HEAD + _SECTION.size
_FRONT = operator.itemgetter(slice(_LONE_HEAD + _STREAM.size))  # what all rows of one stream begin with
_DATA = operator.itemgetter(slice(_LONE_DATA, -len(BEHIND)))
MAX_STREAMS = 0xFFFF


class Section(NamedTuple):
    """Items start..start+items-1 of a stream, `data` being their concatenated encodings."""

    stream: int
    start: int
    items: int
    offset: int
    data: bytes


def pack(sections: list[Section], slots: list[bytes]) -> bytes:
    """The bytes of a payload."""
    if len(sections) == 1 and not slots:
        stream, start, items, offset, data = sections[0]
        return _ALONE.pack(1, 0, stream, start, items, offset, len(data)) + data
    parts = [_COUNTS.pack(len(sections), len(slots))]
    for stream, start, items, offset, data in sections:
        parts.append(_SECTION.pack(stream, start, items, offset, len(data)))
    parts.extend(_LENGTH.pack(len(slot)) for slot in slots)
    parts.extend(section.data for section in sections)
    parts.extend(slots)
    return b"".join(parts)


def unpack(frame: bytes, where: str) -> tuple[list[Section], list[bytes]]:
    """Sections and slots of the payload in a bare frame."""
    stop = len(frame) - len(BEHIND)
    at = len(BEFORE)
    if at == stop:
        return [], []
    try:
        sections, slots = _COUNTS.unpack_from(frame, at)
        at += _COUNTS.size
        heads = [_SECTION.unpack_from(frame, at + i * _SECTION.size) for i in range(sections)]
        at += sections * _SECTION.size
        lengths = [_LENGTH.unpack_from(frame, at + i * 4)[0] for i in range(slots)]
    except struct.error as error:
        raise Corrupt(where, f"its payload is cut short: {error}") from error
    at += slots * 4
    found = []
    for stream, start, items, offset, length in heads:
        found.append(Section(stream, start, items, offset, frame[at : at + length]))
        at += length
    values = []
    for length in lengths:
        values.append(frame[at : at + length])
        at += length
    if at != stop:
        raise Corrupt(where, "its payload has the wrong length")
    return found, values


def sole(data: bytes) -> Section | None:
    """The section of a payload, without its frame, that is all there is in it; None if there is more, or nothing."""
    if not data.startswith(_ONE):
        return None
    stream, start, items, offset, _ = _SECTION.unpack_from(data, _COUNTS.size)
    return Section(stream, start, items, offset, data[_COUNTS.size + _SECTION.size :])


def lone(frames: Sequence[bytes], stream: int) -> Lone | None:
    """The sections of rows that each hold nothing but one section of this stream, as nearly all do."""
    front = BEFORE + _ONE + _STREAM.pack(stream)
    return Lone(frames) if set(map(_FRONT, frames)) <= {front} else None


class Lone:
    """A run of rows with one section each: found by arithmetic, without a header being unpacked for every row."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames

    def start(self, row: int) -> int:
        """The first item of a row; of the row after the last one, where the next item would be."""
        if row < len(self.frames):
            return int(_SECTION.unpack_from(self.frames[row], _LONE_HEAD)[1])
        _, start, count, _, _ = _SECTION.unpack_from(self.frames[row - 1], _LONE_HEAD)
        return int(start + count)

    def offset(self, row: int) -> int:
        """How many bytes of the stream came before a row."""
        return int(_SECTION.unpack_from(self.frames[row], _LONE_HEAD)[3])

    def data(self, first: int, last: int) -> list[bytes]:
        """The items of rows first..last-1."""
        return list(map(_DATA, self.frames[first:last]))
