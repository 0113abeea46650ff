"""Calls of `put_writes` for one thread that come at once: one of them saves, with all that wait.

Two saves on one head conflict: the second would have to read and plan again. So a call queues its writes, and waits for
its turn; the first one that gets it saves everything that is queued by then for the same checkpoint, in one record, and
the others find their writes saved. A call that comes alone does not wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from backtrail.adapters.sync_bridge import maybe_await

Lock: TypeAlias = "threading.Lock | asyncio.Lock"


class QueuedWrites:
    """The writes of one call."""

    __slots__ = ("checkpoint", "encoded", "saved")

    def __init__(self, checkpoint: str, encoded: list[list[Any]]) -> None:
        self.checkpoint = checkpoint  #: LangGraph's id of it
        self.encoded = encoded  #: see `write_items`
        self.saved = False


Save = Callable[[list[list[Any]]], Awaitable[None]]


class _Queue:
    """The calls for one thread."""

    __slots__ = ("calls", "turn")

    def __init__(self, turn: Lock) -> None:
        self.turn = turn
        self.calls: list[QueuedWrites] = []


class PutQueue:
    """The calls for all threads that are written to at the moment. `make_lock` makes locks of the store's kind."""

    def __init__(self, make_lock: Callable[[], Lock]) -> None:
        self._make_lock = make_lock
        self._guard = threading.Lock()
        self._queues: dict[tuple[str, int], _Queue] = {}

    async def put(self, thread: str, own: QueuedWrites, save: Save) -> None:
        """Have `own` saved: by `save`, together with what else is queued, or by another call."""
        key = (thread, os.getpid())  # a forked child has none of the threads that wait in its parent's queues
        with self._guard:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Queue(self._make_lock())
            queue.calls.append(own)
        try:
            await maybe_await(queue.turn.acquire())
            try:
                if not own.saved:
                    await _save(queue, own, save)
            finally:
                queue.turn.release()
        finally:
            with self._guard:
                queue.calls.remove(own)
                if not queue.calls:
                    del self._queues[key]


async def _save(queue: _Queue, own: QueuedWrites, save: Save) -> None:
    together = [one for one in queue.calls if one.checkpoint == own.checkpoint]
    try:
        await save([item for one in together for item in one.encoded])
    except Exception:
        if len(together) == 1:
            raise
        together = [own]  # another's values may be the reason
        await save(own.encoded)
    for one in together:
        one.saved = True
