"""Server-sent events: notifies open pages of threads that changed.

One poll of the newest threads, twice a second, serves all listeners: every engine can be polled, and not every engine
can notify. Without a listener nothing is polled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from backtrail import BacktrailError, ThreadInfo
from backtrail.render.json_records import thread_json

POLL_SECONDS = 0.5  # between polls
KEEPALIVE_SECONDS = 15.0  # without an event, after which a comment keeps the connection open
WATCHED_THREADS = 100  # the newest, which are polled
_LOG = logging.getLogger("backtrail.server")


class ThreadWatcher:
    """Polls the newest threads while there is a listener, and streams the changes."""

    def __init__(self, poll: Callable[[], list[ThreadInfo]], interval: float = POLL_SECONDS) -> None:
        self._poll = poll
        self._interval = interval
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._stopping = False
        self.newest: list[ThreadInfo] = []

    async def listen(self) -> AsyncIterator[bytes]:
        """Server-sent events, beginning with the present threads."""
        self._listeners += 1
        try:
            if self._task is None:
                found = await asyncio.to_thread(self._poll)
                if self._task is None:  # another listener may have started the task meanwhile
                    self.newest = found
                    self._task = asyncio.create_task(self._run())
            seen = self.newest
            yield encode_event("hello", {"threads": [thread_json(info) for info in seen]})
            while not self._stopping:
                changed, gone = changes_between(seen, self.newest)
                seen = self.newest
                if changed or gone:
                    yield encode_event("threads", {"changed": [thread_json(info) for info in changed], "gone": gone})
                elif not await self._wait_for_change(seen):
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _wait_for_change(self, seen: list[ThreadInfo]) -> bool:
        try:
            async with asyncio.timeout(KEEPALIVE_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self._stopping or self.newest is not seen)
                return True
        except TimeoutError:
            return False

    async def stop(self) -> None:
        """End every stream."""
        async with self._changed:
            self._stopping = True
            self._changed.notify_all()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                found = await asyncio.to_thread(self._poll)
            except BacktrailError as error:
                _LOG.warning("cannot list the threads of the store: %s", error)
                continue
            if found != self.newest:
                async with self._changed:
                    self.newest = found
                    self._changed.notify_all()


def changes_between(before: list[ThreadInfo], after: list[ThreadInfo]) -> tuple[list[ThreadInfo], list[str]]:
    """(threads that are new or changed, ids that were deleted). A thread that only fell off the end of the list is not
    deleted."""
    known = {info.id: info for info in before}
    changed = [info for info in after if known.get(info.id) != info]
    here = {info.id for info in after}
    oldest = after[-1].updated_at if len(after) >= WATCHED_THREADS else None
    gone = [info.id for info in before if info.id not in here and (oldest is None or info.updated_at > oldest)]
    return changed, gone


def encode_event(name: str, data: Any) -> bytes:
    """One event in the wire format."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
