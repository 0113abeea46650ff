"""Calls of `put_writes` for one thread that come at once: one of them saves, with all that wait.

Two saves on one head conflict: the second would have to read and plan again. So a call queues its writes, and waits for
its turn; the first one that gets it saves everything that is queued by then for the same checkpoint, in one record, and
the others find their writes saved. A call that comes alone does not wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from backtrail.adapters.sync_bridge import maybe_await

Lock: TypeAlias = "threading.Lock | asyncio.Lock"


class QueuedWrites:
    """The writes of one call."""

    __slots__ = ("checkpoint", "encoded", "saved")

    def __init__(self, checkpoint: str, encoded: list[list[Any]]) -> None:
        self.checkpoint = checkpoint  #: LangGraph's id of it
        self.encoded = encoded  #: (task, path, index, channel, value) each
        self.saved = False


Save = Callable[[list[list[Any]]], Awaitable[None]]


class PutQueue:
    """The calls for one thread."""

    def __init__(self, turn: Lock) -> None:
        self._turn = turn
        self._queued: list[QueuedWrites] = []

    async def put(self, own: QueuedWrites, save: Save) -> None:
        """Have `own` saved: by `save`, together with what else is queued, or by another call."""
        self._queued.append(own)
        try:
            await maybe_await(self._turn.acquire())
            try:
                if not own.saved:
                    await self._save(own, save)
            finally:
                self._turn.release()
        finally:
            self._queued.remove(own)

    async def _save(self, own: QueuedWrites, save: Save) -> None:
        together = [one for one in self._queued if one.checkpoint == own.checkpoint]
        try:
            await save([item for one in together for item in one.encoded])
        except Exception:
            if len(together) == 1:
                raise
            together = [own]  # another's values may be the reason
            await save(own.encoded)
        for one in together:
            one.saved = True


class PutQueues:
    """The queues of all threads that are written to at the moment."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queues: weakref.WeakValueDictionary[tuple[str, int], PutQueue] = weakref.WeakValueDictionary()

    def of(self, thread: str, make_lock: Callable[[], Lock]) -> PutQueue:
        key = (thread, os.getpid())  # a forked child has none of the threads that wait in its parent's queues
        with self._guard:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = PutQueue(make_lock())
            return queue
