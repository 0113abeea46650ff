"""LangGraph's bookkeeping of a checkpoint as a few bytes: a timestamp, the versions of the channels, and which of them
each node has seen.

It is in every checkpoint, and nearly all of it is names. So it is compressed with a dictionary of what most graphs have
in common, in which versions and the timestamp, text for LangGraph, are binary numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from backtrail.adapters.langgraph.compression import deflate, inflate, is_exact_in_msgpack

_VERSION, _MOMENT = 1, 2  # msgpack extension types: a version that our saver made, microseconds since 1970
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_is_version = re.compile("[0-9a-f]{14}").fullmatch


def pack_bookkeeping(plain: dict[str, Any]) -> Any:
    """Bookkeeping as bytes, or as it is if that is shorter, or if msgpack would change it."""
    if not is_exact_in_msgpack(plain):
        return plain
    try:
        raw, data = msgspec.msgpack.encode(plain), deflate(_shortened(plain), _TYPICAL)
    except (OverflowError, UnicodeEncodeError):  # the store's own error says what is wrong with the value
        return plain
    return data if len(data) < len(raw) else plain


def unpack_bookkeeping(value: Any) -> Any:
    """The inverse of `pack_bookkeeping`."""
    return _decoder.decode(inflate(value, _TYPICAL)) if type(value) is bytes else value


def _shortened(plain: dict[str, Any]) -> bytes:
    """The msgpack of bookkeeping, with versions and the timestamp in binary."""
    short = _with_short_versions(plain)
    moment = _moment(plain.get("ts"))
    if moment is not None:
        short["ts"] = msgspec.msgpack.Ext(_MOMENT, moment.to_bytes(8, signed=True))
    return msgspec.msgpack.encode(short)


def _with_short_versions(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _with_short_versions(item) for key, item in value.items()}
    if kind is list:
        return [_with_short_versions(item) for item in value]
    return msgspec.msgpack.Ext(_VERSION, bytes.fromhex(value)) if kind is str and _is_version(value) else value


def _moment(text: Any) -> int | None:
    """The microseconds of a timestamp; None if they would be read as another text."""
    if type(text) is not str:
        return None
    try:
        moment = (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError):
        return None
    return moment if _text(moment) == text else None


def _text(moment: int) -> str:
    return (_EPOCH + timedelta(microseconds=moment)).isoformat()


def _lengthened(code: int, data: memoryview) -> str:
    return data.hex() if code == _VERSION else _text(int.from_bytes(data, signed=True))


_decoder = msgspec.msgpack.Decoder(ext_hook=_lengthened)


def _typical(versions_seen: dict[str, Any], updated: list[str]) -> bytes:
    version = "0" * 14
    return _shortened(
        {
            "v": 4,
            "ts": "2026-01-01T00:00:00.000000+00:00",
            "channel_versions": {"__start__": version, "messages": version, "branch:to:agent": version},
            "versions_seen": {
                "__input__": {},
                "__start__": {"__start__": version},
                **versions_seen,
                "agent": {"branch:to:agent": version},
            },
            "updated_channels": updated,
        }
    )


# Stored data depends on it: a different one needs another name in the data. The most frequent comes last, where a match
# takes the fewest bits.
_TYPICAL = b"".join(
    [
        _typical({"__interrupt__": {"messages": "0" * 14, "branch:to:tools": "0" * 14}}, ["branch:to:tools"]),
        _typical({"tools": {"branch:to:tools": "0" * 14}}, ["__start__"]),
        _typical({}, ["branch:to:agent", "messages"]),
        _typical({}, ["messages"]),
    ]
)
