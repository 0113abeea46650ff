"""States as JSON, exactly: a value that JSON does not have becomes an object with one `$` key, and is restored from it.

    {"$bytes": "aGk="}  {"$datetime": "2026-11-15T21:00:00+00:00"}  {"$tuple": [1, 2]}   {"$type": "Plan", "value": {…}}

A dict that could be mistaken for one of these (a `$` key), or whose keys are not strings, is written as `{"$map":
[[key, value], …]}`. Whole numbers beyond 2**53 are `{"$int": "…"}`, because JavaScript would round them. A string with
half of a surrogate pair, which many JSON parsers refuse, is `{"$text": "<base64 of its bytes>"}`. A hole in a damaged
state is `{"$hole": "why"}`: nothing is restored from it. What `from_json` accepts can be saved: JSON comes from clients
and from files.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import math
import reprlib
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from backtrail.encode.budget import COLLISIONS, collisions
from backtrail.encode.record_types import Unregistered, is_name
from backtrail.encode.values import MAX_DEPTH, bytes_text, in_zone, is_clean, text_bytes, zone_name
from backtrail.errors import InvalidInput
from backtrail.model import Hole

_SAFE = 2**53
_NAN = struct.pack(">d", math.nan)
_FAR = dt.timedelta.max.days  # a float of so many days may be rounded up to more than there can be
_DECIMAL_INT = 10**4000  # a longer int is written in hex: Python limits the digits of decimal text


def to_json(value: Any) -> Any:
    """`value` as plain JSON values."""
    kind = type(value)
    if kind is str:
        return value if is_clean(value) else {"$text": base64.b64encode(text_bytes(value)).decode()}
    if kind is bool or value is None:
        return value
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") and is_clean(key) for key in value):
            return {key: to_json(item) for key, item in value.items()}
        return {"$map": [[to_json(key), to_json(item)] for key, item in value.items()]}
    if kind is list:
        return [to_json(item) for item in value]
    if kind is int:
        if -_SAFE < value < _SAFE:
            return value
        return {"$int": str(value) if -_DECIMAL_INT < value < _DECIMAL_INT else hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": _write_float(value)}
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


def from_json(value: Any, depth: int = 0) -> Any:
    """The value that `to_json` converted; `InvalidInput` names an invalid part."""
    if not isinstance(value, list | dict):
        return value
    if depth > 2 * MAX_DEPTH:
        raise InvalidInput(f"the JSON is nested more than {2 * MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return [from_json(item, depth + 1) for item in value]
    if not any(key.startswith("$") for key in value):
        return {key: from_json(item, depth + 1) for key, item in value.items()}
    try:
        return _special(value, depth)
    except (KeyError, TypeError, ValueError, ArithmeticError, binascii.Error) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{_brief.repr(value)} is not a value backtrail writes: {error}") from error


def _special(value: dict[str, Any], depth: int) -> Any:
    if set(value) == {"$type", "value"}:
        if not is_name(value["$type"]):
            raise ValueError("$type is not a name")
        return Unregistered(value["$type"], from_json(value["value"], depth + 1))
    ((name, inner),) = value.items()
    wanted = _INNER.get(name, (str,))
    if type(inner) not in wanted:
        raise TypeError(f"{name} holds a {wanted[-1].__name__}, not a {type(inner).__name__}")
    if name == "$map":
        pairs = [(from_json(key, depth + 1), from_json(item, depth + 1)) for key, item in inner]
        _refuse_collisions([key for key, _ in pairs])
        return dict(pairs)
    if name in _GROUPS:
        items = [from_json(item, depth + 1) for item in inner]
        if name != "$tuple":
            _refuse_collisions(items)
        return _GROUPS[name](items)
    if name == "$seconds":
        return _seconds(inner)
    if name in ("$bytes", "$bytearray"):
        data = base64.b64decode(inner, validate=True)
        return data if name == "$bytes" else bytearray(data)
    return _SCALARS[name][2](inner)


def _refuse_collisions(members: Sequence[Any]) -> None:
    """Thousands of keys with the same hash would take minutes to put in a dict."""
    if collisions(members) > COLLISIONS:
        raise ValueError(f"too many of its {len(members):,} members have the same hash")


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60


def _moment(value: dt.datetime | dt.time) -> str:
    """The ISO 8601 text, the name of the zone in brackets, and `fold`, which ISO 8601 lacks: it marks the second of two
    equal hours when clocks go back."""
    zone = zone_name(value)
    return value.isoformat() + (f"[{zone}]" if zone else "") + (_FOLD if value.fold else "")


def _from_moment(cls: Any, text: str) -> Any:
    iso, bracket, zone = text.removesuffix(_FOLD).partition("[")
    value = cls.fromisoformat(iso).replace(fold=int(text.endswith(_FOLD)))
    if not bracket:
        return value
    if not zone.endswith("]") or not is_name(zone):
        raise ValueError("the name of a zone has no end")
    return in_zone(value, zone[:-1])


def _write_float(value: float) -> str:
    """The text of a float; one that is not a number has its bits behind it, if they are not the usual ones."""
    bits = struct.pack(">d", value)
    return f"nan {bits.hex()}" if math.isnan(value) and bits != _NAN else repr(value)


def _read_float(text: str) -> float:
    if not text.startswith("nan "):
        return float(text)
    bits = bytes.fromhex(text[4:])
    value: float = struct.unpack(">d", bits)[0] if len(bits) == 8 else 0.0
    if not math.isnan(value):
        raise ValueError("these are not the bits of a NaN")
    return value


def _write_seconds(value: dt.timedelta) -> float | str:
    """A number, or the exact text of one that a float does not hold."""
    seconds = value.total_seconds()
    if value.days < _FAR and dt.timedelta(seconds=seconds) == value:
        return seconds
    return str(decimal.Decimal(value.days * 86_400 + value.seconds) + decimal.Decimal(value.microseconds).scaleb(-6))


def _seconds(value: Any) -> dt.timedelta:
    if type(value) is str:
        micros = decimal.Decimal(value).scaleb(6)
        return dt.timedelta(microseconds=int(micros) if abs(micros) < 10**20 else math.inf)
    return dt.timedelta(seconds=value)


_FOLD = " (second)"
_GROUPS: dict[str, Callable[[Any], Any]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
_INNER: dict[str, tuple[type, ...]] = {
    "$map": (list,),
    **dict.fromkeys(_GROUPS, (list,)),
    "$seconds": (int, str, float),
}
_SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "$text": (str, str, lambda text: bytes_text(base64.b64decode(text, validate=True))),
    "$int": (int, str, lambda text: int(text, 16 if text.lstrip("-").startswith("0x") else 10)),
    "$float": (float, _write_float, _read_float),
    "$datetime": (dt.datetime, _moment, lambda text: _from_moment(dt.datetime, text)),
    "$date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "$time": (dt.time, _moment, lambda text: _from_moment(dt.time, text)),
    "$seconds": (dt.timedelta, _write_seconds, _seconds),
    "$uuid": (uuid.UUID, str, uuid.UUID),
    "$decimal": (decimal.Decimal, str, decimal.Decimal),
}
