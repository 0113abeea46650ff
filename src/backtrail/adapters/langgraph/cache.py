"""What a saver remembers of the checkpoints it saw last, so that it need not read them again.

A checkpoint never changes, so what is remembered under its id stays true; it only saves reads and comparisons. Messages
are remembered as private objects, of which each caller gets copies. Whether a list that LangGraph hands over begins
with the messages that were saved before is told exactly, a change in place included: `==` tells it of text, and where
numbers occur, which `==` holds to be equal to those of other types, their bytes are compared besides. Where the caller
promised never to change a message in place, the objects themselves are remembered and handed out, and compared by
identity.
"""

from __future__ import annotations

import gc
import marshal
import operator
import threading
from collections import OrderedDict
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

from backtrail.adapters.langgraph.message_codec import MESSAGES, clone

_MOST_THREADS = 1024
_MOST_BYTES = 64 * 1024 * 1024  # of text in messages


class MessageList(msgspec.Struct, frozen=True):
    """A list of messages, and what is compared to tell whether another list begins with them."""

    items: list[BaseMessage]
    fields: list[dict[str, Any]]  #: of each item
    kinds: list[type]  #: of each item
    numbers: dict[int, bytes]  #: by position, the exact bytes of what `==` alone cannot tell
    size: int  #: characters of text, about
    shared: int = 0  #: how many of the items the list before it had
    trusted: bool = False  #: nobody changes the items in place

    @classmethod
    def of(cls, messages: list[Any], before: MessageList | None = None, *, trusted: bool = False) -> MessageList | None:
        """The memory of a list, going on from `before` if the list does; None if it holds more than messages."""
        if trusted:
            return cls._trusting(messages, before)
        if not messages or not set(map(type, messages)) <= MESSAGES:
            return None
        if any(message.__pydantic_extra__ for message in messages):
            return None
        old = before if before is not None and before.starts(messages) else _NOTHING
        new = [clone(message) for message in messages[len(old.items) :]]
        numbers = dict(old.numbers)
        for at, message in enumerate(new, len(old.items)):
            try:
                exact = _numbers(message.__dict__)
            except ValueError:  # an object that has no bytes, and may be changed by anybody
                return None
            if exact is not None:
                numbers[at] = exact
        size = old.size + sum(len(value) for m in new for value in m.__dict__.values() if type(value) is str)
        fields = old.fields + [message.__dict__ for message in new]
        return cls(old.items + new, fields, old.kinds + list(map(type, new)), numbers, size, len(old.items))

    @classmethod
    def _trusting(cls, messages: list[Any], before: MessageList | None) -> MessageList | None:
        old = _NOTHING
        if before is not None and len(before.items) <= len(messages):
            old = before if all(map(operator.is_, before.items, messages)) else _NOTHING
        new = messages[len(old.items) :]
        if not messages or any(type(m) not in MESSAGES or m.__pydantic_extra__ for m in new):
            return None
        size = old.size + sum(len(m.content) for m in new if type(m.content) is str)
        return cls(old.items + new, [], [], {}, size, len(old.items), True)

    def starts(self, messages: list[Any]) -> bool:
        """Whether a list begins with exactly these messages."""
        front = messages[: len(self.items)]
        if list(map(type, front)) != self.kinds or [message.__dict__ for message in front] != self.fields:
            return False
        try:
            return all(_numbers(front[at].__dict__) == exact for at, exact in self.numbers.items())
        except ValueError:
            return False

    def copies(self) -> list[BaseMessage]:
        """The messages, as objects of the caller's own, unless nobody changes them."""
        if self.trusted:
            return list(self.items)
        # Thousands of small objects, all of which stay: looking for garbage among them takes longer than making them.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return [clone(message) for message in self.items]
        finally:
            if collecting:
                gc.enable()


_NOTHING = MessageList([], [], [], {}, 0)


class Remembered(msgspec.Struct, frozen=True):
    """A checkpoint: its channels' versions, their plain values, and those that are lists of messages."""

    id: str
    book: dict[str, Any]
    plain: dict[str, Any]
    talks: dict[str, MessageList] = {}

    @property
    def versions(self) -> dict[str, Any]:
        return self.book.get("channel_versions") or {}

    @property
    def channels(self) -> set[str]:
        return self.plain.keys() | self.talks.keys()

    @property
    def cost(self) -> int:
        return 1024 + sum(talk.size for talk in self.talks.values())


class PendingWrites(msgspec.Struct, frozen=True):
    """The newest record of a checkpoint's pending writes: (task, path, index, channel, value) each."""

    checkpoint: str
    number: int
    items: list[Any]
    head: str | None  #: where the thread of writes stood when this was read

    @property
    def cost(self) -> int:
        return 1024


class CheckpointCache:
    """The threads used last, by name. Copies of a saver share one, from several threads at once."""

    def __init__(self, *, trusted: bool = False) -> None:
        self.trusted = trusted
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Any:
        with self._lock:
            return self._known.get(name)

    def put(self, name: str, value: Remembered | PendingWrites | None) -> None:
        with self._lock:
            old = self._known.pop(name, None)
            self._bytes -= old.cost if old is not None else 0
            if value is not None:
                self._known[name] = value
                self._bytes += value.cost
            while len(self._known) > _MOST_THREADS or (self._bytes > _MOST_BYTES and len(self._known) > 1):
                self._bytes -= self._known.popitem(last=False)[1].cost


def _numbers(fields: dict[str, Any]) -> bytes | None:
    """The exact bytes of a message's fields that are more than text; None if there are none.

    They are compared and never read. Version 2 of the format has no back references, so equal values have equal bytes.
    """
    told = [value for value in fields.values() if not _only_text(value)]
    return marshal.dumps(told, 2) if told else None


def _only_text(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _only_text(item) for key, item in value.items())
    return all(map(_only_text, value)) if kind is list else kind is str or value is None


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are exactly the same, types included, but for the order of keys."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(same(item, other[key]) for key, item in one.items())
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
