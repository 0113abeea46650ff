"""Stored values for display: as JSON (see `backtrail.encode.tagged_json`), truncated, or in one short line."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from backtrail import Unregistered
from backtrail.encode.tagged_json import from_json, to_json
from backtrail.model import text_of

__all__ = ["from_json", "json_bytes", "short_text", "to_json", "truncate"]

_MAX_ENTRIES = 200


def truncate(value: Any, limit: int) -> Any:
    """Truncate JSON for display: texts over `limit` characters become `{"$cut": "the start", "size": 12345}`, and a
    list or dict keeps its first 200 entries."""
    if isinstance(value, str):
        return value if len(value) <= limit else {"$cut": value[:limit], "size": len(value)}
    if isinstance(value, list | tuple):
        kept = [truncate(item, limit) for item in value[:_MAX_ENTRIES]]
        return kept if len(value) <= _MAX_ENTRIES else [*kept, {"$cut": "", "size": len(value) - _MAX_ENTRIES}]
    if isinstance(value, dict):
        shown = {key: truncate(item, limit) for key, item in list(value.items())[:_MAX_ENTRIES]}
        return shown if len(value) <= _MAX_ENTRIES else shown | {"$cut": "", "size": len(value) - _MAX_ENTRIES}
    return value


def short_text(value: Any, width: int = 60) -> str:
    """A value on one short line."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes | bytearray):
        text = f"{len(value):,} bytes"
    elif isinstance(value, Unregistered):
        text = f"{value.type} {short_text(value.value, width)}"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{text_of(key)}: {short_text(item, 24)}" for key, item in list(value.items())[:6])
        text += ", …}" if len(value) > 6 else "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(short_text(item, 24) for item in value[:6]) + (", …]" if len(value) > 6 else "]")
    else:
        text = text_of(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def json_bytes(value: Any) -> bytes:
    """Encode JSON. File names need not be UTF-8: a byte that is not is written as Python's escape, `\\udcff`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
