"""LangGraph's values <-> plain data, so that a message in a checkpoint is a message to backtrail as well.

Plain values stay what they are. A message becomes a dict of its fields with the name of its class under `MARK`; fields
that have their empty default are left out. Anything else goes through the saver's own serializer, item by item, and is
kept as its typed bytes: which classes are built again from those is decided by that serializer's allow-list alone.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any, Final

from langchain_core import messages as core
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

MARK: Final = "__langgraph__"
_LEAVES = frozenset(
    {
        str,
        int,
        float,
        bool,
        type(None),
        bytes,
        bytearray,
        uuid.UUID,
        decimal.Decimal,
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
    }
)
_CLASSES: tuple[type[core.BaseMessage], ...] = (
    core.HumanMessage,
    core.HumanMessageChunk,
    core.AIMessage,
    core.AIMessageChunk,
    core.SystemMessage,
    core.SystemMessageChunk,
    core.ToolMessage,
    core.ToolMessageChunk,
    core.ChatMessage,
    core.ChatMessageChunk,
    core.FunctionMessage,
    core.FunctionMessageChunk,
    core.RemoveMessage,
)
_BY_NAME = {cls.__name__: cls for cls in _CLASSES}


def _empty_defaults(cls: type[core.BaseMessage]) -> dict[str, type]:
    """The fields of a message class whose default is empty, with the type of that default."""
    defaults = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items()}
    required = {name for name, field in cls.model_fields.items() if field.is_required()}
    return {name: type(value) for name, value in defaults.items() if not value and name not in required}


_EMPTY = {cls: _empty_defaults(cls) for cls in _CLASSES}
MESSAGES: Final = frozenset(_CLASSES)  #: the classes that are plain to backtrail
_CONTAINERS = frozenset({dict, list, tuple})
_set = object.__setattr__


class MessageCodec:
    """Turns values of one saver into plain data and back."""

    def __init__(self, serde: SerializerProtocol, *, trusted: bool = False) -> None:
        self._serde = serde
        self.trusted = trusted  #: the caller promised never to change a message in place
        # Another serializer (an encrypting one, say) may rely on seeing every byte: nothing bypasses it.
        self.readable = isinstance(serde, JsonPlusSerializer)

    def channel(self, value: Any, *, careful: bool = False) -> Any:
        """The plain form of a channel's value; a list keeps its items apart, so that only new ones are stored.
        `careful` looks into each message for what the store could not encode."""
        if self.readable:
            return self._plain(value, careful)
        return [self._typed(item) for item in value] if type(value) is list else self._typed(value)

    def _plain(self, value: Any, careful: bool) -> Any:
        kind = type(value)
        if kind in _LEAVES:
            return bytearray(value) if kind is bytearray else value
        if kind is list:
            return [self._plain(item, careful) for item in value]
        if kind is dict and MARK not in value and all(type(key) in _LEAVES for key in value):
            return {key: self._plain(item, careful) for key, item in value.items()}
        if kind is tuple:
            return tuple(self._plain(item, careful) for item in value)
        if kind in (set, frozenset) and all(type(item) in _LEAVES for item in value):
            return kind(value)
        empty = _EMPTY.get(kind)
        if empty is not None:
            fields = {k: _copy(item) for k, item in vars(value).items() if item or type(item) is not empty.get(k)}
            if value.__pydantic_extra__:
                fields |= _copy(value.__pydantic_extra__)
            if MARK not in fields and not (careful and not _is_plain(fields)):
                fields[MARK] = kind.__name__
                return fields
        return self._typed(value)

    def _typed(self, value: Any) -> dict[str, Any]:
        kind, data = self._serde.dumps_typed(value)
        return {MARK: [kind, bytes(data)]}

    def value(self, plain: Any) -> Any:
        """What `channel` was given."""
        kind = type(plain)
        if kind is dict:
            mark = plain.get(MARK)
            if mark is None:
                return {key: self.value(item) for key, item in plain.items()}
            if type(mark) is list:
                return self._serde.loads_typed((mark[0], mark[1]))
            return _message(mark, {key: item for key, item in plain.items() if key != MARK})
        if kind is list:
            return [self.value(item) for item in plain]
        if kind is tuple:
            return tuple(map(self.value, plain))
        return kind(plain) if kind is set or kind is bytearray else plain


def _message(name: str, fields: dict[str, Any]) -> Any:
    cls = _BY_NAME.get(name)
    if cls is None:  # written by a newer version: what it held is not lost
        return fields
    try:
        return cls(**fields)
    except (ValueError, TypeError):  # changed in place to something its class refuses: as it was, then
        return cls.model_construct(**fields)


def clone(message: core.BaseMessage) -> core.BaseMessage:
    """A message that shares nothing mutable with another; its fields were validated once already."""
    twin = object.__new__(type(message))
    fields = message.__dict__.copy()
    for key, value in fields.items():
        if type(value) in _CONTAINERS:
            fields[key] = _copy(value)
    _set(twin, "__dict__", fields)
    _set(twin, "__pydantic_fields_set__", message.__pydantic_fields_set__.copy())
    extra = message.__pydantic_extra__
    _set(twin, "__pydantic_extra__", {key: _copy(item) for key, item in extra.items()} if extra else extra)
    _set(twin, "__pydantic_private__", None)
    return twin


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()} if value else {}
    if kind is list:
        return [_copy(item) for item in value] if value else []
    return tuple(map(_copy, value)) if kind is tuple else value


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) in _LEAVES and _is_plain(item) for key, item in value.items())
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    return kind in _LEAVES
