"""Results of two runs of a program, made comparable: what differs from run to run by design is named by its order."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import Any

import pydantic

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?")


def comparable(value: Any) -> str:
    """A text that is equal for equal results: types are part of it, random ids and the clock are not."""
    names: dict[str, str] = {}
    text = _TIME.sub("<time>", _text(value))
    return _UUID.sub(lambda match: names.setdefault(match[0], f"<id {len(names) + 1}>"), text)


def _text(value: Any) -> str:
    kind = type(value).__qualname__
    if isinstance(value, pydantic.BaseModel):
        return f"{kind}({_text(dict(sorted(value.__dict__.items())))})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return f"{kind}({_text(fields)})"
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, dict):
        return f"{kind}{{{', '.join(f'{_text(key)}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, set | frozenset):
        return f"{kind}{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, list | tuple):
        return f"{kind}[{', '.join(map(_text, value))}]"
    if isinstance(value, BaseException):
        return f"{kind}({value})"
    return f"{kind}:{value!r}" if not isinstance(value, str) else repr(value)
