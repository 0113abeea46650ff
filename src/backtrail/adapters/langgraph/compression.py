"""Compression of data that only LangGraph reads: pending writes, internal channels, and its bookkeeping.

One step later the values of pending writes and internal channels are in the graph's own channels, uncompressed and
readable; here they only have to be small. The bookkeeping of a checkpoint (a timestamp, the versions of the channels,
and which of them each node has seen) is nearly all names, the same in every checkpoint; so it is compressed with a
dictionary of the names that graphs have in common.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from backtrail.adapters.langgraph.message_codec import RESERVED_KEY

_MIN_BYTES = 256  # smaller values are not worth it
_MAX_DECOMPRESSED = 256 * 1024 * 1024  # bytes
# What the bookkeeping of most graphs holds. Stored data depends on it: a different one needs another name in the data.
_BOOKKEEPING = msgspec.msgpack.encode(
    {
        "pending_sends": [],
        "v": 4,
        "ts": "2026-01-01T00:00:00.000000+00:00",
        "channel_versions": {"__start__": "00000000", "messages": "00000001", "branch:to:agent": "00000001"},
        "versions_seen": {
            "__input__": {},
            "__start__": {"__start__": "00000000"},
            "__interrupt__": {"messages": "00000001", "branch:to:tools": "00000001"},
            "tools": {"branch:to:tools": "00000001"},
            "agent": {"branch:to:agent": "00000001"},
        },
        "updated_channels": ["__start__", "branch:to:agent", "messages"],
    }
)
_RAW_DEFLATE = -15  # without a header and a checksum: backtrail has one
_MSGPACK_SCALARS = frozenset({str, int, float, bool, type(None), bytes})


def compress(plain: Any) -> Any:
    """A plain value compressed, or as it is if that saves less than a tenth."""
    raw = _msgpack(plain)
    if raw is None:
        return plain
    data = zlib.compress(raw) if len(raw) >= _MIN_BYTES else raw
    return {RESERVED_KEY: {"zlib": data}} if len(data) < len(raw) * 0.9 else plain


def decompress(value: Any) -> Any:
    """The inverse of `compress`."""
    reserved = value.get(RESERVED_KEY) if type(value) is dict else None
    if type(reserved) is not dict or "zlib" not in reserved:
        return value
    return msgspec.msgpack.decode(zlib.decompressobj().decompress(reserved["zlib"], _MAX_DECOMPRESSED))


def compress_bookkeeping(plain: Any) -> Any:
    """Bookkeeping as bytes, or as it is if that is shorter."""
    raw = _msgpack(plain)
    if raw is None:
        return plain
    packer = zlib.compressobj(wbits=_RAW_DEFLATE, zdict=_BOOKKEEPING)
    data = packer.compress(raw) + packer.flush()
    return data if len(data) < len(raw) else plain


def decompress_bookkeeping(value: Any) -> Any:
    """The inverse of `compress_bookkeeping`."""
    if type(value) is not bytes:
        return value
    unpacker = zlib.decompressobj(wbits=_RAW_DEFLATE, zdict=_BOOKKEEPING)
    return msgspec.msgpack.decode(unpacker.decompress(value, _MAX_DECOMPRESSED))


def _msgpack(plain: Any) -> bytes | None:
    """The msgpack of a plain value; None if that does not preserve exactly this value."""
    if not _is_exact_in_msgpack(plain):
        return None
    try:
        return msgspec.msgpack.encode(plain)
    except (OverflowError, UnicodeEncodeError):  # the store's own error says what is wrong with the value
        return None


def _is_exact_in_msgpack(value: Any) -> bool:
    """True if msgpack preserves exactly this value, types included."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_exact_in_msgpack(item) for key, item in value.items())
    return all(map(_is_exact_in_msgpack, value)) if kind is list else kind in _MSGPACK_SCALARS
