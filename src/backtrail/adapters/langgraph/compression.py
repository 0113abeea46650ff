"""Compression of LangGraph's transient data: pending writes and internal channels.

One step later the same values are in the graph's own channels, uncompressed and readable; here they only have to be
small.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from backtrail.adapters.langgraph.message_codec import RESERVED_KEY

_MIN_BYTES = 256  # smaller values are not worth it
_MAX_DECOMPRESSED = 256 * 1024 * 1024  # bytes
_MSGPACK_SCALARS = frozenset({str, int, float, bool, type(None), bytes})


def compress(plain: Any) -> Any:
    """A plain value compressed, or as it is if that saves less than a tenth."""
    if not _is_exact_in_msgpack(plain):
        return plain
    try:
        raw = msgspec.msgpack.encode(plain)
    except (OverflowError, UnicodeEncodeError):  # the store's own error says what is wrong with the value
        return plain
    data = zlib.compress(raw) if len(raw) >= _MIN_BYTES else raw
    return {RESERVED_KEY: {"zlib": data}} if len(data) < len(raw) * 0.9 else plain


def decompress(value: Any) -> Any:
    """The inverse of `compress`."""
    reserved = value.get(RESERVED_KEY) if type(value) is dict else None
    if type(reserved) is not dict or "zlib" not in reserved:
        return value
    return msgspec.msgpack.decode(zlib.decompressobj().decompress(reserved["zlib"], _MAX_DECOMPRESSED))


def _is_exact_in_msgpack(value: Any) -> bool:
    """True if msgpack preserves exactly this value, types included."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_exact_in_msgpack(item) for key, item in value.items())
    return all(map(_is_exact_in_msgpack, value)) if kind is list else kind in _MSGPACK_SCALARS
