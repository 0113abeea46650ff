"""The form of an answer: a small part of JSON Schema, or a Python type that is turned into it.

A schema is stored with the question, so that a form can be made of it, and so that an answer is checked wherever it is
given. The keywords are those that a form can show. Any other keyword is refused when the question is asked: an answer
is never accepted by a rule that nobody applies.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import inspect

from backtrail.errors import InvalidInput
from backtrail.model import short_repr

MAX_DEPTH = 32  # levels of a schema
_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
_FORMATS: dict[str, type] = {
    "date": dt.date,
    "time": dt.time,
    "date-time": dt.datetime,
    "duration": dt.timedelta,
    "uuid": uuid.UUID,
    "decimal": Decimal,
}
_SPOKEN = ("title", "description", "default", "examples", "$schema", "$comment")  # say, but do not check
_LIMITS: dict[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minimum": ((int, float), lambda value, limit: value >= limit, "is below"),
    "maximum": ((int, float), lambda value, limit: value <= limit, "is above"),
    "exclusiveMinimum": ((int, float), lambda value, limit: value > limit, "is not above"),
    "exclusiveMaximum": ((int, float), lambda value, limit: value < limit, "is not below"),
    "minLength": (str, lambda value, limit: len(value) >= limit, "is shorter than"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "is longer than"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "has fewer items than"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "has more items than"),
}
_OTHER = ("type", "format", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf")


def schema_of(form: Any) -> dict[str, Any] | None:
    """The schema of `schema=`: None, a JSON Schema, or a Python type."""
    if form is None:
        return None
    if isinstance(form, dict):
        check_schema(form, "schema")
        return form
    try:
        made: dict[str, Any] = msgspec.json.schema(form)
        schema: dict[str, Any] = _resolve(made, made.pop("$defs", {}), 0)
        check_schema(schema, "schema")
        _check_type(msgspec.inspect.type_info(form))
    except (TypeError, RecursionError, msgspec.ValidationError) as error:
        raise InvalidInput(f"schema={form!r:.80} is neither a JSON Schema nor a type that has one: {error}") from error
    return schema


def to_type(form: Any, value: Any) -> Any:
    """An answer as the Python type that was asked for; as it is, for a JSON Schema."""
    if form is None or isinstance(form, dict):
        return value
    return msgspec.convert(value, form)


def _check_type(node: Any) -> None:
    """Refuse a type that takes less than its JSON Schema says: an answer could fit one and not the other."""
    if isinstance(node, inspect.DictType) and not isinstance(node.key_type, inspect.StrType | inspect.AnyType):
        raise InvalidInput("schema: a dict has a form only if its keys are of type str")
    if isinstance(node, inspect.DateTimeType | inspect.TimeType) and node.tz is not True:
        raise InvalidInput(
            "schema: a time has a form only with a time zone: Annotated[datetime, msgspec.Meta(tz=True)]"
        )
    if isinstance(node, tuple | inspect.Type | inspect.Field):
        for inner in node if isinstance(node, tuple) else msgspec.structs.astuple(node):
            _check_type(inner)


def _resolve(schema: Any, definitions: dict[str, Any], depth: int) -> Any:
    """The schema without references, and without the keywords that only tell how a value is written."""
    if depth > MAX_DEPTH:
        raise InvalidInput("schema: a type that contains itself has no form: use a JSON Schema")
    if isinstance(schema, list):
        return [_resolve(one, definitions, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolve(definitions[schema["$ref"].rpartition("/")[2]], definitions, depth + 1)
    return {name: _resolve(value, definitions, depth + 1) for name, value in schema.items()}


def check_schema(schema: Any, where: str, depth: int = 0) -> None:
    """Refuse a schema with a keyword that is not applied, or an argument that makes no sense."""
    if schema is True:
        return
    if not isinstance(schema, dict):
        raise InvalidInput(f"{where} must be a dict, not {type(schema).__qualname__}")
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{where} is nested more than {MAX_DEPTH} levels deep")
    for name, value in schema.items():
        if name in _SPOKEN:
            continue
        if name not in _OTHER and name not in _LIMITS:
            known = ", ".join((*_OTHER, *_LIMITS))
            raise InvalidInput(f"{where}: the keyword {name!r:.40} is not applied; there are {known}")
        if name in _LIMITS:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(f"{where}: {name} must be a number, not {short_repr(value)}")
        elif name == "type":
            names = value if isinstance(value, list) else [value]
            if not names or not all(isinstance(one, str) and one in _TYPES for one in names):
                raise InvalidInput(f"{where}: type={short_repr(value)} is unknown: there are {', '.join(_TYPES)}")
        elif name == "format":
            if not isinstance(value, str):
                raise InvalidInput(f"{where}: format must be a str, not {short_repr(value)}")
        elif name == "properties":
            if not isinstance(value, dict):
                raise InvalidInput(f"{where}: properties must be a dict, not {short_repr(value)}")
            for key, inner in value.items():
                check_schema(inner, f"{where}.properties[{key!r:.40}]", depth + 1)
        elif name in ("required", "enum", "anyOf"):
            if not isinstance(value, list):
                raise InvalidInput(f"{where}: {name} must be a list, not {short_repr(value)}")
            for number, inner in enumerate(value if name == "anyOf" else ()):
                check_schema(inner, f"{where}.anyOf[{number}]", depth + 1)
        elif name == "items" or (name == "additionalProperties" and not isinstance(value, bool)):
            check_schema(value, f"{where}.{name}", depth + 1)


def fault(schema: Any, value: Any, where: str = "the answer") -> str | None:
    """What is wrong with a value; None if it fits. The schema was checked when the question was asked, and is checked
    again here, because what is stored may have been changed."""
    if schema is None or schema is True:
        return None
    check_schema(schema, "schema")
    return _fault(schema, value, where)


def _fault(schema: Any, value: Any, where: str) -> str | None:
    if schema is True:
        return None
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_TYPES[name](value) for name in names):
            return f"{where} is {short_repr(value)}, not of type {' or '.join(names)}"
    kind = _FORMATS.get(schema.get("format", ""))
    if kind is not None and isinstance(value, str) and not _converts(value, kind):
        return f"{where} is {short_repr(value)}, not of format {schema['format']}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where} is {short_repr(value)}, not one of {short_repr(schema['enum'])}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} is {short_repr(value)}, not {short_repr(schema['const'])}"
    if "anyOf" in schema:
        faults = [_fault(one, value, where) for one in schema["anyOf"]]
        if None not in faults:
            return faults[0] if len(faults) == 1 else f"{where} is {short_repr(value)}, which fits no alternative"
    for name, (kinds, fits, words) in _LIMITS.items():
        if (
            name in schema
            and isinstance(value, kinds)
            and not isinstance(value, bool)
            and not fits(value, schema[name])
        ):
            return f"{where} is {short_repr(value)}, which {words} {schema[name]}"
    if isinstance(value, dict):
        return _object_fault(schema, value, where)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            if (found := _fault(schema["items"], item, f"{where}[{number}]")) is not None:
                return found
    return None


def _converts(value: str, kind: type) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _object_fault(schema: dict[str, Any], value: dict[Any, Any], where: str) -> str | None:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no {name!r:.80}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        inner = known.get(name, others)
        if inner is False:
            return f"{where} has {name!r:.80}, which is not asked for"
        if (found := _fault(inner, item, f"{where}[{name!r:.80}]")) is not None:
            return found
    return None


def _same(value: Any, other: Any) -> bool:
    """Equal, and of one type: True is not 1."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
