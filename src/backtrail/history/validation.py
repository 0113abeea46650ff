"""Checks of arguments: every id, label, tag and custom dict passes them before anything is read or written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from backtrail.engines.reserved_names import RESERVED
from backtrail.errors import InvalidInput
from backtrail.model import Kind, short_repr

MAX_NAME = 512
_EVERYTHING = 1 << 40  # a limit beyond everything that a store can hold
KINDS: tuple[str, ...] = get_args(Kind)
MAX_TAGS = 256  # of one checkpoint
MAX_CUSTOM = 1 << 20  # encoded bytes of the custom fields of one checkpoint: histories and listings read them all


def check_name(value: object, what: str) -> str:
    """`value` if it is a valid name of a thread. Names are data, never paths or patterns; any character but NUL is
    allowed."""
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
    """Tags are names, kept in the order given, each once; None means no tags."""
    return () if value is None else check_names(value, "tags", "tag", MAX_TAGS)


def check_names(value: object, what: str, each: str, most: int | None = None) -> tuple[str, ...]:
    """Several names, kept in the order given, each once; at most `most`."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(f"{what} must be a collection of str, not {type(value).__qualname__}")
    names: dict[str, None] = {}
    for name in value:
        names[check_name(name, each)] = None
        if most is not None and len(names) > most:
            raise InvalidInput(f"{what} has more than {most} names: one checkpoint has at most that many")
    return tuple(names)


def check_custom(value: object) -> dict[str, Any]:
    """Custom metadata is a mapping with string keys."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(type(key) is str for key in value):
        raise InvalidInput("custom must be a dict with str keys")
    return dict(value)


def check_number(value: object, what: str) -> int | None:
    """A number that may be given is None or an int of at least 0."""
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise InvalidInput(f"{what} must be None or an int from 0 up, not {short_repr(value)}")
    return value


def check_limit(value: object, what: str = "limit") -> int | None:
    """A limit is such a number; one beyond everything means everything."""
    limit = check_number(value, what)
    return None if limit is None else min(limit, _EVERYTHING)


def check_kind(value: object) -> str | None:
    """A kind of thread is None, for all, or one of those that there are."""
    if value is None:
        return None
    if not isinstance(value, str) or value not in KINDS:
        raise InvalidInput(f"kind={value!r:.40} is unknown: there are {', '.join(KINDS)}")
    return value


def check_part(value: object, what: str) -> str:
    """A prefix of a name: any text that a name may contain, or an empty one."""
    if type(value) is not str:
        raise InvalidInput(f"{what} must be a str, not {type(value).__qualname__}")
    return _check_text(value, what)


def check_seconds(value: object, what: str) -> float:
    """A time in seconds: a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidInput(f"{what} must be a number of seconds from 0 up, not {value!r}")
    return float(value)


def _check_text(value: str, what: str) -> str:
    if "\0" in value:
        raise InvalidInput(f"{what} {value[:40]!r} contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} {value[:40]!r} contains half of a surrogate pair") from None
    return value
