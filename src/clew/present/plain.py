"""States as JSON, exactly: what JSON has no word for becomes an object with one `$` key, and comes back from it.

    {"$bytes": "aGk="}   {"$datetime": "2026-11-15T21:00:00+00:00"}   {"$tuple": [1, 2]}   {"$type": "Plan", "value": {…}}

A dict that could be taken for one of these (a `$` key, or keys that are not strings) is written as `{"$map": [[key,
value], …]}`. Whole numbers beyond 2**53 are `{"$int": "…"}`, because JavaScript would round them.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable
from typing import Any

from clew import InvalidInput, Unregistered

_SAFE = 2**53


def to_json(value: Any) -> Any:
    """`value` as JSON knows it."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: to_json(item) for key, item in value.items()}
        return {"$map": [[to_json(key), to_json(item)] for key, item in value.items()]}
    if kind is list:
        return [to_json(item) for item in value]
    if kind is int:
        return value if -_SAFE < value < _SAFE else {"$int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind in (tuple, set, frozenset):
        items = [to_json(item) for item in value]
        return {f"${kind.__name__}": items if kind is tuple else sorted(items, key=repr)}
    if kind in (bytes, bytearray):
        return {f"${kind.__name__}": base64.b64encode(value).decode()}
    for name, (cls, write, _) in _SCALARS.items():
        if kind is cls:
            return {name: write(value)}
    if isinstance(value, Unregistered):
        return {"$type": value.type, "value": to_json(value.value)}
    raise InvalidInput(f"a {kind.__qualname__} has no JSON form")


def from_json(value: Any) -> Any:
    """What `to_json` was given; `InvalidInput` names what makes no sense."""
    if type(value) is list:
        return [from_json(item) for item in value]
    if type(value) is not dict:
        return value
    if not any(key.startswith("$") for key in value):
        return {key: from_json(item) for key, item in value.items()}
    try:
        return _special(value)
    except (KeyError, TypeError, ValueError, ArithmeticError, binascii.Error) as error:
        raise InvalidInput(f"{str(value)[:60]} is not a value clew writes: {error}") from error


def _special(value: dict[str, Any]) -> Any:
    if set(value) == {"$type", "value"}:
        return Unregistered(value["$type"], from_json(value["value"]))
    ((name, inner),) = value.items()
    if name == "$map":
        return {from_json(key): from_json(item) for key, item in inner}
    if name in _GROUPS:
        return _GROUPS[name](from_json(inner))
    if name in ("$bytes", "$bytearray"):
        data = base64.b64decode(inner, validate=True)
        return data if name == "$bytes" else bytearray(data)
    return _SCALARS[name][2](inner)


_GROUPS: dict[str, Callable[[Any], Any]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
_SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "$int": (int, str, int),
    "$float": (float, repr, float),
    "$datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "$date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "$time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "$seconds": (dt.timedelta, dt.timedelta.total_seconds, lambda seconds: dt.timedelta(seconds=seconds)),
    "$uuid": (uuid.UUID, str, uuid.UUID),
    "$decimal": (decimal.Decimal, str, decimal.Decimal),
}


def clip(value: Any, limit: int) -> Any:
    """JSON for eyes only: texts over `limit` characters are cut to `{"$cut": "the start", "size": 12345}`, and a list or
    dict keeps its first 200 entries."""
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
