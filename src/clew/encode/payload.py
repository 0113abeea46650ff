"""The payload of a row: the new items of each stream, and the values and pages that got a slot.

Fixed-width little-endian headers, then the data: a load of 1,600 rows must find its items in each of them with one
slice. A section says which items of its stream it holds and how many bytes came before them, so that a range of items
can be found without reading what lies in front of it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from clew.errors import Corrupt

_COUNTS = struct.Struct("<HH")  # sections, slots
_SECTION = struct.Struct("<HIIQI")  # stream, first item, items, bytes before, bytes
_LENGTH = struct.Struct("<I")
_ONE = struct.pack("<HH", 1, 0)
_ONE_AT = _COUNTS.size + _SECTION.size
MAX_STREAMS = 0xFFFF


class Section(NamedTuple):
    """Items start..start+count-1 of a stream, `data` being their concatenated encodings."""

    stream: int
    start: int
    count: int
    offset: int
    data: bytes


def pack(sections: list[Section], slots: list[bytes]) -> bytes:
    """The bytes of a payload."""
    parts = [_COUNTS.pack(len(sections), len(slots))]
    for stream, start, count, offset, data in sections:
        parts.append(_SECTION.pack(stream, start, count, offset, len(data)))
    parts.extend(_LENGTH.pack(len(slot)) for slot in slots)
    parts.extend(section.data for section in sections)
    parts.extend(slots)
    return b"".join(parts)


def unpack(payload: bytes, where: str) -> tuple[list[Section], list[bytes]]:
    """Sections and slots of a payload."""
    try:
        sections, slots = _COUNTS.unpack_from(payload)
        at = _COUNTS.size
        heads = [_SECTION.unpack_from(payload, at + i * _SECTION.size) for i in range(sections)]
        at += sections * _SECTION.size
        lengths = [_LENGTH.unpack_from(payload, at + i * 4)[0] for i in range(slots)]
        at += slots * 4
        found = []
        for stream, start, count, offset, length in heads:
            found.append(Section(stream, start, count, offset, payload[at : at + length]))
            at += length
        values = []
        for length in lengths:
            values.append(payload[at : at + length])
            at += length
    except struct.error as error:
        raise Corrupt(where, f"its payload is cut short: {error}") from error
    if at != len(payload):
        raise Corrupt(where, "its payload has the wrong length")
    return found, values


def only_section(payload: bytes, stream: int) -> Section | None:
    """The section of a payload that holds nothing but this one, as nearly all do; None where it is not so."""
    if payload[:4] != _ONE or len(payload) < _ONE_AT:
        return None
    found, start, count, offset, _ = _SECTION.unpack_from(payload, _COUNTS.size)
    return Section(found, start, count, offset, payload[_ONE_AT:]) if found == stream else None
