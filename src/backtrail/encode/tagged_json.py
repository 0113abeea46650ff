"""States as JSON, exactly: a value that JSON does not have becomes an object with one `$` key, and is restored from it.

    {"$bytes": "aGk="}  {"$datetime": "2026-11-15T21:00:00+00:00"}  {"$tuple": [1, 2]}   {"$type": "Plan", "value": {…}}

A dict that could be mistaken for one of these (a `$` key), or whose keys are not strings, is written as `{"$map":
[[key, value], …]}`. Whole numbers beyond 2**53 are `{"$int": "…"}`, because JavaScript would round them. A hole in a
damaged state is `{"$hole": "why"}`: nothing is restored from it.
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

from backtrail.encode.record_types import Unregistered
from backtrail.errors import InvalidInput
from backtrail.model import Hole

_SAFE = 2**53


def to_json(value: Any) -> Any:
    """`value` as plain JSON values."""
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
    if isinstance(value, Hole):
        return {"$hole": str(value)}
    raise InvalidInput(f"a {kind.__qualname__} has no JSON form")


def from_json(value: Any) -> Any:
    """The value that `to_json` converted; `InvalidInput` names an invalid part."""
    if type(value) is list:
        return [from_json(item) for item in value]
    if type(value) is not dict:
        return value
    if not any(key.startswith("$") for key in value):
        return {key: from_json(item) for key, item in value.items()}
    try:
        return _special(value)
    except (KeyError, TypeError, ValueError, ArithmeticError, binascii.Error) as error:
        raise InvalidInput(f"{str(value)[:60]} is not a value backtrail writes: {error}") from error


def _special(value: dict[str, Any]) -> Any:
    if set(value) == {"$type", "value"}:
        return Unregistered(value["$type"], from_json(value["value"]))
    ((name, inner),) = value.items()
    wanted = _INNER.get(name, (str,))
    if type(inner) not in wanted:
        raise TypeError(f"{name} holds a {wanted[-1].__name__}, not a {type(inner).__name__}")
    if name == "$map":
        return {from_json(key): from_json(item) for key, item in inner}
    if name in _GROUPS:
        return _GROUPS[name](from_json(inner))
    if name in ("$bytes", "$bytearray"):
        data = base64.b64decode(inner, validate=True)
        return data if name == "$bytes" else bytearray(data)
    return _SCALARS[name][2](inner)


def _folded(value: dt.datetime | dt.time) -> str:
    """The ISO 8601 text with `fold`, which ISO 8601 lacks: it marks the second of two equal hours when clocks go
    back."""
    return value.isoformat() + (_FOLD if value.fold else "")


def _unfolded(cls: Any, text: str) -> Any:
    return cls.fromisoformat(text.removesuffix(_FOLD)).replace(fold=int(text.endswith(_FOLD)))


_FOLD = " (second)"
_GROUPS: dict[str, Callable[[Any], Any]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
_INNER: dict[str, tuple[type, ...]] = {"$map": (list,), **dict.fromkeys(_GROUPS, (list,)), "$seconds": (int, float)}
_SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "$int": (int, str, int),
    "$float": (float, repr, float),
    "$datetime": (dt.datetime, _folded, lambda text: _unfolded(dt.datetime, text)),
    "$date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "$time": (dt.time, _folded, lambda text: _unfolded(dt.time, text)),
    "$seconds": (dt.timedelta, dt.timedelta.total_seconds, lambda seconds: dt.timedelta(seconds=seconds)),
    "$uuid": (uuid.UUID, str, uuid.UUID),
    "$decimal": (decimal.Decimal, str, decimal.Decimal),
}
