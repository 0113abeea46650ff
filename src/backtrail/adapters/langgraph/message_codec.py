"""LangGraph's values <-> plain data, so that a message in a checkpoint is a message to backtrail as well.

Plain values stay as they are, and a message becomes a dict of its fields, with the name of its class under
`RESERVED_KEY`; fields that have their empty default are left out. Any other value goes through the saver's serializer
and is stored as its typed bytes: that serializer alone decides which classes are built from them again. Whatever is
stored here in readable form is read back as exactly what LangGraph's serializer would have made of it: a tuple is a
list afterwards, for example.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any, Final

from langchain_core import messages as core
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

RESERVED_KEY: Final = "__langgraph__"  #: of a state, a checkpoint's `custom` and an encoded value
_SCALARS = frozenset(
    {
        str,
        int,
        float,
        bool,
        type(None),
        bytes,
        uuid.UUID,
        decimal.Decimal,
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
    }
)
_KEYS = frozenset({str, int, float, bool, type(None), bytes})  # LangGraph's serializer turns others into text
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
_CLASS_BY_NAME = {cls.__name__: cls for cls in _CLASSES}


def _empty_defaults(cls: type[core.BaseMessage]) -> dict[str, type]:
    """The fields of a message class whose default is empty, with the type of that default."""
    defaults = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items()}
    required = {name for name, field in cls.model_fields.items() if field.is_required()}
    return {name: type(value) for name, value in defaults.items() if not value and name not in required}


_EMPTY_DEFAULTS = {cls: _empty_defaults(cls) for cls in _CLASSES}
MESSAGE_CLASSES: Final = frozenset(_CLASSES)  #: the classes that are encoded as plain data
_CONTAINERS = frozenset({dict, list, tuple})
_set = object.__setattr__


class MessageCodec:
    """Turns values of one saver into plain data and back."""

    def __init__(self, serde: SerializerProtocol, *, immutable: bool = False) -> None:
        self._serde = serde
        self.immutable = immutable  #: the caller never changes a message in place
        # Any other serializer (one that encrypts, redacts or audits) has to see every value: nothing bypasses it. A
        # subclass of LangGraph's is another serializer, and so is one whose methods were replaced.
        own = type(serde) is JsonPlusSerializer and vars(serde).keys().isdisjoint(("dumps_typed", "loads_typed"))
        self.readable = own

    def encode(self, value: Any, *, check_messages: bool = False) -> Any:
        """The plain form of a value. Items of a list are encoded one by one, so that only new ones are stored.

        `check_messages`: a message whose fields the store could not encode goes through the serializer.
        """
        if self.readable:
            return bytearray(value) if type(value) is bytearray else self._plain(value, check_messages)
        return [self._typed(item) for item in value] if type(value) is list else self._typed(value)

    def _plain(self, value: Any, check_messages: bool) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value if kind is not dt.datetime or _is_exact_as_text(value) else self._typed(value)
        if kind is list or kind is tuple:
            return [self._plain(item, check_messages) for item in value]
        if kind is dict and RESERVED_KEY not in value and all(type(key) in _KEYS for key in value):
            return {key: self._plain(item, check_messages) for key, item in value.items()}
        if kind is bytearray:
            return bytes(value)
        if kind in (set, frozenset) and all(type(item) in _SCALARS for item in value):
            return kind(value)
        empty = _EMPTY_DEFAULTS.get(kind)
        if empty is not None:
            fields = {k: _copy(item) for k, item in vars(value).items() if item or type(item) is not empty.get(k)}
            if value.__pydantic_extra__:
                fields |= _copy(value.__pydantic_extra__)
            if RESERVED_KEY not in fields and not (check_messages and not _is_plain(fields)):
                fields[RESERVED_KEY] = kind.__name__
                return fields
        return self._typed(value)

    def _typed(self, value: Any) -> dict[str, Any]:
        kind, data = self._serde.dumps_typed(value)
        return {RESERVED_KEY: [kind, bytes(data)]}

    def decode(self, plain: Any) -> Any:
        """The inverse of `encode`."""
        kind = type(plain)
        if kind is dict:
            reserved = plain.get(RESERVED_KEY)
            if reserved is None:
                return {key: self.decode(item) for key, item in plain.items()}
            if type(reserved) is list:
                return self._serde.loads_typed((reserved[0], reserved[1]))
            return _build_message(reserved, {key: item for key, item in plain.items() if key != RESERVED_KEY})
        if kind is list:
            return [self.decode(item) for item in plain]
        return kind(plain) if kind is set or kind is bytearray else plain


def _build_message(class_name: str, fields: dict[str, Any]) -> Any:
    cls = _CLASS_BY_NAME.get(class_name)
    if cls is None:  # written by a newer version: the fields are not lost
        return fields
    try:
        return cls(**fields)
    except (ValueError, TypeError):  # it was changed in place to something its class refuses
        return cls.model_construct(**fields)


def clone_message(message: core.BaseMessage) -> core.BaseMessage:
    """A copy that shares nothing mutable with the message; the fields are not validated again."""
    copy = object.__new__(type(message))
    fields = message.__dict__.copy()
    for key, value in fields.items():
        if type(value) in _CONTAINERS:
            fields[key] = _copy(value)
    _set(copy, "__dict__", fields)
    _set(copy, "__pydantic_fields_set__", message.__pydantic_fields_set__.copy())
    extra = message.__pydantic_extra__
    _set(copy, "__pydantic_extra__", {key: _copy(item) for key, item in extra.items()} if extra else extra)
    _set(copy, "__pydantic_private__", None)
    return copy


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()} if value else {}
    if kind is list or kind is tuple:
        return [_copy(item) for item in value] if value else []
    return value


def _is_exact_as_text(moment: dt.datetime) -> bool:
    """True for a moment that LangGraph's serializer, which writes it as text, does not change."""
    return (moment.tzinfo is None or type(moment.tzinfo) is dt.timezone) and not moment.fold


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) in _SCALARS and _is_plain(item) for key, item in value.items())
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    return kind in _SCALARS
