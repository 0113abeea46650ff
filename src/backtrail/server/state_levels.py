"""The state of a checkpoint, level by level, for the inspector's tree; one value of it whole; and one replaced."""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail import Checkpoint, InvalidInput, NotFound, Outline, Part, Thread
from backtrail.errors import DECODE_ERRORS
from backtrail.render.jsonable import to_json, truncate
from backtrail.server import requests, responses

_SHOWN_TEXT, _SHOWN_VALUE = 20_000, 2_000  # characters of a text that are sent, alone and in a list


def level(handle: Thread[Any], checkpoint: Checkpoint, request: requests.StateRequest) -> responses.StateResponse:
    """One level of a state, as the API gives it: a page of its entries."""
    path = parse_path(request.path)
    stop = request.start + request.limit
    found: Outline = handle.outline(path, at=checkpoint, start=request.start, stop=stop, salvage=True)
    whole = 10**9
    return {
        "path": path,
        "kind": found.kind,
        "type": found.type,
        "size": found.size,
        "count": found.count,
        "start": found.start,
        "entries": [_entry(part, whole if request.whole else _SHOWN_VALUE) for part in found.parts],
        "value": truncate(to_json(found.value), whole if request.whole else _SHOWN_TEXT),
    }


def _entry(part: Part, limit: int) -> responses.StateEntryJson:
    simple = part.known and part.kind not in ("dict", "list")
    return {
        "name": part.name,
        "kind": part.kind,
        "type": part.type,
        "size": part.size,
        "count": part.count,
        "known": simple,
        "value": truncate(to_json(part.value), limit) if simple else None,
    }


def parse_path(text: str) -> list[str | int]:
    """The path in a query: a JSON list."""
    try:
        return msgspec.json.decode(text, type=list[str | int])
    except DECODE_ERRORS as error:
        raise InvalidInput(f"path must be a JSON list of keys and numbers: {error}") from error


def value_at(handle: Thread[Any], checkpoint: Checkpoint, path: list[str | int]) -> Any:
    """The value at a path, of which only the part above it is read: an item of a list, or a key."""
    if not path:
        raise InvalidInput("path must name a part of the state; /export has the whole")
    *parents, last = path
    if isinstance(last, int):
        found = handle.outline(parents, at=checkpoint, start=last, stop=last + 1, salvage=True)
        if found.parts:
            return found.parts[0].value
    else:
        value: Any = handle.pick([str(path[0])], at=checkpoint)
        for key in path:
            value = value[key] if isinstance(value, dict) and key in value else _item(value, key)
        return value
    raise NotFound(f"thread {handle.id!r} has nothing at {path!r}")


def _item(value: Any, key: str | int) -> Any:
    if isinstance(value, list | tuple) and isinstance(key, int) and 0 <= key < len(value):
        return value[key]
    raise NotFound(f"there is nothing at {key!r}")


def replaced(state: Any, path: list[str | int], value: Any) -> Any:
    """The state with one value replaced. What is on the path is copied."""
    if not path:
        return value
    key, *rest = path
    if isinstance(state, dict) and key in state:
        return {**state, key: replaced(state[key], rest, value)}
    if isinstance(state, list) and isinstance(key, int) and 0 <= key < len(state):
        return [*state[:key], replaced(state[key], rest, value), *state[key + 1 :]]
    raise NotFound(f"there is nothing at {key!r} to replace")
