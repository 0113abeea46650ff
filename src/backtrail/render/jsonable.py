"""Values for people: as JSON (see `backtrail.encode.tagged_json`), cut to what fits, or in one short line."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from backtrail import Unregistered
from backtrail.encode.tagged_json import from_json, to_json

__all__ = ["brief", "clip", "from_json", "json_bytes", "to_json"]


def clip(value: Any, limit: int) -> Any:
    """JSON for eyes only: texts over `limit` characters are cut to `{"$cut": "the start", "size": 12345}`, and a list
    or dict keeps its first 200 entries."""
    if isinstance(value, str):
        return value if len(value) <= limit else {"$cut": value[:limit], "size": len(value)}
    if isinstance(value, list):
        kept = [clip(item, limit) for item in value[:200]]
        return kept if len(value) <= 200 else [*kept, {"$cut": "", "size": len(value) - 200}]
    if isinstance(value, dict):
        shown = {key: clip(item, limit) for key, item in list(value.items())[:200]}
        return shown if len(value) <= 200 else shown | {"$cut": "", "size": len(value) - 200}
    return value


def brief(value: Any, width: int = 60) -> str:
    """A value in one short line."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes | bytearray):
        text = f"{len(value):,} bytes"
    elif isinstance(value, Unregistered):
        text = f"{value.type} {brief(value.value, width)}"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {brief(item, 24)}" for key, item in list(value.items())[:6])
        text += ", …}" if len(value) > 6 else "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(brief(item, 24) for item in value[:6]) + (", …]" if len(value) > 6 else "]")
    else:
        text = str(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def json_bytes(value: Any) -> bytes:
    """JSON of plain values. Names of files need not be text: what in them is none is written as the escape that Python
    gives it, `\\udcff`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
