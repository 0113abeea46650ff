"""What may be a name: the checks that every id, label, tag and custom dict passes before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.engines.namespace import RESERVED
from clew.errors import InvalidInput

MAX_NAME = 512


def check_name(value: object, what: str) -> str:
    """`value` if it can name a thread. Ids are data: never paths, never patterns; any character but NUL is fine."""
    if type(value) is not str:
        raise InvalidInput(f"{what} must be a str, not {type(value).__qualname__}")
    if not value:
        raise InvalidInput(f"{what} must not be empty")
    if len(value) > MAX_NAME:
        raise InvalidInput(f"{what} has {len(value):,} characters, more than {MAX_NAME}: {value[:40]!r}…")
    if value[0] == RESERVED:
        raise InvalidInput(f"{what} must not start with the character U+10FFFF, which marks a store's own records")
    return _check_text(value, what)


def check_label(value: object) -> str | None:
    """A label is None or a name."""
    return None if value is None else check_name(value, "label")


def check_tags(value: object) -> tuple[str, ...]:
    """Tags are names, kept in the order given, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(f"tags must be a collection of str, not {type(value).__qualname__}")
    return tuple(dict.fromkeys(check_name(tag, "tag") for tag in value))


def check_custom(value: object) -> dict[str, Any]:
    """Custom metadata is a dict with string keys."""
    if value is None:
        return {}
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise InvalidInput("custom must be a dict with str keys")
    return value


def check_limit(value: object, what: str = "limit") -> int | None:
    """A limit is None or a number from 0 up."""
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise InvalidInput(f"{what} must be None or an int from 0 up, not {value!r}")
    return value


def _check_text(value: str, what: str) -> str:
    if "\0" in value:
        raise InvalidInput(f"{what} {value[:40]!r} contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} {value[:40]!r} contains half of a surrogate pair") from None
    return value
