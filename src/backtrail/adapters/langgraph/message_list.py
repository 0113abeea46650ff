"""A private copy of a list of messages, with an exact check if another list continues it.

A saver gets the whole list at each step, and stores the new messages only. Messages may have been changed in place, so
the comparison is exact: `==` compares text, and fields with other values are also compared by their bytes, because to
`==` numbers of different types are equal. If the caller promised never to change a message in place, the messages
themselves are kept and returned, and compared by identity.
"""

from __future__ import annotations

import gc
import marshal
import operator
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

from backtrail.adapters.langgraph.message_codec import MESSAGE_CLASSES, clone_message


class MessageList(msgspec.Struct, frozen=True):
    """A list of messages, and the values that are compared with another list's."""

    items: list[BaseMessage]
    fields: list[dict[str, Any]]  #: of each item
    classes: list[type]  #: of each item
    exact_bytes: dict[int, bytes]  #: index -> bytes of the item's fields that `==` does not compare exactly
    text_size: int  #: characters, roughly
    continued: int = 0  #: number of leading items that come from the list this one continues; 0 if it continues none
    immutable: bool = False  #: the caller never changes the items in place

    @classmethod
    def of(
        cls, messages: list[Any], before: MessageList | None = None, *, immutable: bool = False
    ) -> MessageList | None:
        """A copy of `messages`, sharing the items of `before` if it continues them. None if not all are messages."""
        if immutable:
            return cls._of_immutable(messages, before)
        if not messages or not set(map(type, messages)) <= MESSAGE_CLASSES:
            return None
        if any(message.__pydantic_extra__ for message in messages):
            return None
        old = before if before is not None and before.is_prefix_of(messages) else _EMPTY
        new = [clone_message(message) for message in messages[len(old.items) :]]
        exact_bytes = dict(old.exact_bytes)
        for index, message in enumerate(new, len(old.items)):
            try:
                exact = _exact_bytes(message.__dict__)
            except ValueError:  # an object of a class that marshal does not know: it may change without our notice
                return None
            if exact is not None:
                exact_bytes[index] = exact
        size = old.text_size + sum(len(value) for m in new for value in m.__dict__.values() if type(value) is str)
        fields = old.fields + [message.__dict__ for message in new]
        classes = old.classes + list(map(type, new))
        return cls(old.items + new, fields, classes, exact_bytes, size, len(old.items))

    @classmethod
    def _of_immutable(cls, messages: list[Any], before: MessageList | None) -> MessageList | None:
        old = _EMPTY
        if before is not None and len(before.items) <= len(messages):
            old = before if all(map(operator.is_, before.items, messages)) else _EMPTY
        new = messages[len(old.items) :]
        if not messages or any(type(m) not in MESSAGE_CLASSES or m.__pydantic_extra__ for m in new):
            return None
        size = old.text_size + sum(len(m.content) for m in new if type(m.content) is str)
        return cls(old.items + new, [], [], {}, size, len(old.items), True)

    def is_prefix_of(self, messages: list[Any]) -> bool:
        """True if a list begins with exactly these messages."""
        front = messages[: len(self.items)]
        if list(map(type, front)) != self.classes or [message.__dict__ for message in front] != self.fields:
            return False
        try:
            return all(_exact_bytes(front[index].__dict__) == exact for index, exact in self.exact_bytes.items())
        except ValueError:
            return False

    def copies(self) -> list[BaseMessage]:
        """The messages as objects that the caller may change, or the messages themselves if they are immutable."""
        if self.immutable:
            return list(self.items)
        # Thousands of small objects, none of them garbage: a collection among them takes longer than making them.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return [clone_message(message) for message in self.items]
        finally:
            if collecting:
                gc.enable()


_EMPTY = MessageList([], [], [], {}, 0)


def _exact_bytes(fields: dict[str, Any]) -> bytes | None:
    """The bytes of a message's fields that hold more than text; None if there are none.

    They are compared and never read. Version 2 of the format has no back references, so equal values have equal bytes.
    """
    values = [value for value in fields.values() if not _is_text_only(value)]
    return marshal.dumps(values, 2) if values else None


def _is_text_only(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_text_only(item) for key, item in value.items())
    return all(map(_is_text_only, value)) if kind is list else kind is str or value is None
