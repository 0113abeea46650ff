"""LangGraph's transient data, compressed: pending writes and its internal channels.

They repeat what stands in a graph's own channels a step later, where it can be read; here it only has to be small.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from backtrail.adapters.langgraph.message_codec import MARK

_WORTH = 256  # bytes from which it pays
_MOST = 256 * 1024 * 1024  # bytes that a value may unfold to
_PLAIN = frozenset({str, int, float, bool, type(None), bytes})


def pack(plain: Any) -> Any:
    """A plain value in less space, or as it is."""
    if not _is_simple(plain):
        return plain
    try:
        raw = msgspec.msgpack.encode(plain)
    except (OverflowError, UnicodeEncodeError):  # for the store to say what is wrong with it
        return plain
    data = zlib.compress(raw) if len(raw) >= _WORTH else raw
    return {MARK: {"zlib": data}} if len(data) < len(raw) * 0.9 else plain


def unpack(value: Any) -> Any:
    """What `pack` was given."""
    mark = value.get(MARK) if type(value) is dict else None
    if type(mark) is not dict or "zlib" not in mark:
        return value
    return msgspec.msgpack.decode(zlib.decompressobj().decompress(mark["zlib"], _MOST))


def _is_simple(value: Any) -> bool:
    """Whether msgpack alone keeps a value exactly."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_simple(item) for key, item in value.items())
    return all(map(_is_simple, value)) if kind is list else kind in _PLAIN
