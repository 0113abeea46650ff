"""What a saver remembers of the checkpoints it saw last, so that it need not read them again.

A checkpoint never changes, so what is remembered under its id stays true; it only saves reads and comparisons. Messages
are remembered as private objects, of which each caller gets copies, and as exact bytes: whether a list that LangGraph
hands over begins with the messages that were saved before is one comparison, and a message changed in place is seen.
"""

from __future__ import annotations

import marshal
import threading
from collections import OrderedDict
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

from clew.adapters.langgraph.values import MESSAGES, clone

_MOST_THREADS = 1024
_MOST_BYTES = 64 * 1024 * 1024  # of messages


class Talk(msgspec.Struct, frozen=True):
    """A list of messages: private objects, and the exact bytes of all of them."""

    items: list[BaseMessage]
    exact: bytes

    @classmethod
    def of(cls, messages: list[Any], before: Talk | None = None) -> Talk | None:
        """The memory of a list, going on from `before` if the list does; None if it holds more than messages."""
        exact = _exact(messages) if messages else None
        if exact is None:
            return None
        known = before.items if before is not None and exact.startswith(before.exact) else []
        return cls(known + [clone(message) for message in messages[len(known) :]], exact)

    def copies(self) -> list[BaseMessage]:
        return [clone(message) for message in self.items]


class Remembered(msgspec.Struct, frozen=True):
    """A checkpoint: its channels' versions, their plain values, and those that are lists of messages."""

    id: str
    book: dict[str, Any]
    plain: dict[str, Any]
    talks: dict[str, Talk] = {}

    @property
    def versions(self) -> dict[str, Any]:
        return self.book.get("channel_versions") or {}

    @property
    def channels(self) -> set[str]:
        return self.plain.keys() | self.talks.keys()

    @property
    def cost(self) -> int:
        return 1024 + sum(len(talk.exact) for talk in self.talks.values())


class Pending(msgspec.Struct, frozen=True):
    """The newest record of a checkpoint's pending writes: (task, path, index, channel, value) each."""

    checkpoint: str
    number: int
    items: list[Any]
    head: str | None  #: where the thread of writes stood when this was read

    @property
    def cost(self) -> int:
        return 1024


class Memory:
    """The threads used last, by name. Copies of a saver share one, from several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Any:
        with self._lock:
            return self._known.get(name)

    def put(self, name: str, value: Remembered | Pending | None) -> None:
        with self._lock:
            old = self._known.pop(name, None)
            self._bytes -= old.cost if old is not None else 0
            if value is not None:
                self._known[name] = value
                self._bytes += value.cost
            while len(self._known) > _MOST_THREADS or (self._bytes > _MOST_BYTES and len(self._known) > 1):
                self._bytes -= self._known.popitem(last=False)[1].cost


def _exact(messages: list[Any]) -> bytes | None:
    """Bytes that are the same only for the same messages, types of numbers included; None where there are none.

    They are compared and never read. Version 2 of the format has no back references, so equal values have equal bytes.
    """
    if not set(map(type, messages)) <= MESSAGES:
        return None
    try:
        return marshal.dumps([(type(m).__name__, m.__dict__, m.__pydantic_extra__) for m in messages], 2)[5:]
    except ValueError:
        return None


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
