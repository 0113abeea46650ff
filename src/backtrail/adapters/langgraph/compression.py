"""Compression of data that only LangGraph reads: pending writes and internal channels.

One step later their values are in the graph's own channels, uncompressed and readable; here they only have to be small.
They are compressed with a dictionary of the names that messages and graphs have in common.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from backtrail.adapters.langgraph.message_codec import RESERVED_KEY

_MIN_BYTES = 256  # smaller values are not worth it
_MAX_DECOMPRESSED = 256 * 1024 * 1024  # bytes
# Stored data depends on it: a different one needs another name in the data. The most frequent names come last, where a
# match takes the fewest bits.
_NAMES = b"".join(
    msgspec.msgpack.encode(part)
    for part in (
        ["~__pregel_push, ", "__interrupt__", "__resume__", "__error__", "__no_writes__", "~__pregel_pull, tools"],
        {"content": "", "type": "system", RESERVED_KEY: "SystemMessage"},
        {"content": "", "type": "tool", "name": "", "tool_call_id": "call_", RESERVED_KEY: "ToolMessage"},
        {"response_metadata": {"finish_reason": "stop", "model_name": "", "model_provider": ""}},
        {"usage_metadata": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}},
        {"tool_calls": [{"name": "", "args": {}, "id": "call_", "type": "tool_call"}]},
        ["~__pregel_pull, agent", "messages", [{"content": "", "type": "ai", RESERVED_KEY: "AIMessage"}]],
        {"messages": [{"content": "", "type": "human", RESERVED_KEY: "HumanMessage"}]},
        ["~__pregel_pull, __start__", "messages", {RESERVED_KEY: {"same": "__start__", "ids": [None]}}],
        ["~__pregel_pull, __start__", "branch:to:agent", None],
    )
)
_RAW_DEFLATE = -15  # without a header and a checksum: backtrail has one
_MSGPACK_SCALARS = frozenset({str, int, float, bool, type(None), bytes})


def compress(plain: Any) -> Any:
    """A plain value compressed, or as it is if that saves less than a tenth."""
    raw = _msgpack(plain)
    if raw is None:
        return plain
    data = deflate(raw, _NAMES) if len(raw) >= _MIN_BYTES else raw
    return {RESERVED_KEY: data} if len(data) < len(raw) * 0.9 else plain


def decompress(value: Any) -> Any:
    """The inverse of `compress`."""
    data = value.get(RESERVED_KEY) if type(value) is dict else None
    return msgspec.msgpack.decode(inflate(data, _NAMES)) if type(data) is bytes else value


def pack(plain: list[Any]) -> Any:
    """A list as bytes, or as it is if that is shorter."""
    raw = _msgpack(plain)
    if raw is None:
        return plain
    data = deflate(raw, _NAMES)
    return data if len(data) < len(raw) else plain


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    return msgspec.msgpack.decode(inflate(value, _NAMES)) if type(value) is bytes else value


def deflate(raw: bytes, dictionary: bytes) -> bytes:
    packer = zlib.compressobj(wbits=_RAW_DEFLATE, zdict=dictionary)
    return packer.compress(raw) + packer.flush()


def inflate(data: bytes, dictionary: bytes) -> bytes:
    return zlib.decompressobj(wbits=_RAW_DEFLATE, zdict=dictionary).decompress(data, _MAX_DECOMPRESSED)


def _msgpack(plain: Any) -> bytes | None:
    """The msgpack of a plain value; None if that does not preserve exactly this value."""
    if not is_exact_in_msgpack(plain):
        return None
    try:
        return msgspec.msgpack.encode(plain)
    except (OverflowError, UnicodeEncodeError):  # the store's own error says what is wrong with the value
        return None


def is_exact_in_msgpack(value: Any) -> bool:
    """True if msgpack preserves exactly this value, types included."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and is_exact_in_msgpack(item) for key, item in value.items())
    return all(map(is_exact_in_msgpack, value)) if kind is list else kind in _MSGPACK_SCALARS
