"""A saver's cache of the checkpoints and pending writes it used last.

The cache only saves reads and comparisons. A checkpoint hardly ever changes; if it is replaced, its author is another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from backtrail.adapters.langgraph.bookkeeping import unpack_bookkeeping
from backtrail.adapters.langgraph.compression import decompress
from backtrail.adapters.langgraph.ids import channel_name
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY
from backtrail.adapters.langgraph.message_list import MessageList
from backtrail.adapters.langgraph.put_queue import Lock, PutQueue
from backtrail.lru import LRU

_MAX_ENTRIES = 1024
_MAX_COST = 64 * 1024 * 1024  # characters of text in messages, roughly
_ENTRY_COST = 1024


class CachedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint: LangGraph's bookkeeping, and each channel either as plain data or as a list of messages."""

    id: str  #: LangGraph's
    bookkeeping: dict[str, Any]
    plain: dict[str, Any]  #: channel -> plain data
    message_lists: dict[str, MessageList] = {}  #: channel -> messages
    row: str = ""  #: backtrail's id of it
    author: bytes = b""  #: of the save that made it

    @classmethod
    def from_state(cls, id: str, state: dict[str, Any], *, row: str, author: bytes) -> CachedCheckpoint:
        """The checkpoint that a state holds, with all channels as plain data."""
        plain = {channel_name(key): decompress(value) for key, value in state.items() if key != RESERVED_KEY}
        bookkeeping = unpack_bookkeeping(state.get(RESERVED_KEY)) or {}
        return cls(id, bookkeeping, plain, row=row, author=author)

    def with_message_lists(self, values: dict[str, Any], *, immutable: bool) -> CachedCheckpoint:
        """The same checkpoint, with those of the decoded `values` that are messages as lists of messages."""
        message_lists = dict(self.message_lists)
        for channel, value in values.items():
            messages = MessageList.of(value, immutable=immutable) if type(value) is list else None
            if messages is not None:
                message_lists[channel] = messages
        plain = {channel: value for channel, value in self.plain.items() if channel not in message_lists}
        return msgspec.structs.replace(self, plain=plain, message_lists=message_lists)

    @property
    def versions(self) -> dict[str, Any]:
        return self.bookkeeping.get("channel_versions") or {}

    @property
    def channels(self) -> set[str]:
        return self.plain.keys() | self.message_lists.keys()

    @property
    def cost(self) -> int:
        return _ENTRY_COST + sum(messages.text_size for messages in self.message_lists.values())


class CachedWrites(msgspec.Struct, frozen=True):
    """The newest record of a checkpoint's pending writes."""

    checkpoint: str  #: LangGraph's id of it
    number: int  #: of its last series of records; 0 if there is none
    items: list[Any]  #: see `write_items`
    head: str | None  #: of the thread of writes, when this was read
    at_head: bool  #: the record is the head

    @property
    def cost(self) -> int:
        return _ENTRY_COST


class CheckpointCache:
    """The newest checkpoint and the newest writes of each thread used lately, by the id of the backtrail thread.

    Copies of a saver share one cache, and several threads use it at once.
    """

    def __init__(self, *, immutable: bool = False, make_lock: Callable[[], Lock] = threading.Lock) -> None:
        self.immutable = immutable  #: the caller never changes a message in place
        self.put_queue = PutQueue(make_lock)
        self._lock = threading.Lock()
        self._entries: LRU[str, CachedCheckpoint | CachedWrites] = LRU(_MAX_ENTRIES, _MAX_COST)

    def checkpoint(self, thread: str, id: str) -> CachedCheckpoint | None:
        """The checkpoint `id`, if it is the one that is cached for a thread."""
        entry = self._get(thread)
        return entry if isinstance(entry, CachedCheckpoint) and entry.id == id else None

    def writes(self, thread: str) -> CachedWrites | None:
        """The pending writes that are cached for a thread."""
        entry = self._get(thread)
        return entry if isinstance(entry, CachedWrites) else None

    def put(self, thread: str, entry: CachedCheckpoint | CachedWrites) -> None:
        with self._lock:
            self._entries.put(thread, entry, entry.cost)

    def remove(self, thread: str) -> None:
        with self._lock:
            self._entries.pop(thread)

    def _get(self, thread: str) -> CachedCheckpoint | CachedWrites | None:
        with self._lock:
            return self._entries.get(thread)
