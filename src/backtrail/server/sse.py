"""Telling the page what moved, unasked: one look at the newest threads, twice a second, for all listeners together.

Every engine can be looked at, and not every engine can call back; a page that is not open costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from backtrail import BacktrailError, ThreadInfo
from backtrail.render.json_records import thread_json

EVERY = 0.5  # seconds between looks
SILENCE = 15.0  # seconds after which a comment keeps the connection open
NEWEST = 100  # threads looked at
_LOG = logging.getLogger("backtrail.server")


class Watch:
    """The newest threads as they are now, and a way to wait until they change."""

    def __init__(self, look: Callable[[], list[ThreadInfo]], every: float = EVERY) -> None:
        self._look = look
        self._every = every
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._stopping = False
        self.now: list[ThreadInfo] = []

    async def listen(self) -> AsyncIterator[bytes]:
        """Server-sent events, beginning with what is there now."""
        self._listeners += 1
        try:
            if self._task is None:
                found = await asyncio.to_thread(self._look)
                if self._task is None:  # another who came at the same time may have begun meanwhile
                    self.now = found
                    self._task = asyncio.create_task(self._run())
            seen = self.now
            yield event("hello", {"threads": [thread_json(info) for info in seen]})
            while not self._stopping:
                changed, gone = compare(seen, self.now)
                seen = self.now
                if changed or gone:
                    yield event("threads", {"changed": [thread_json(info) for info in changed], "gone": gone})
                elif not await self._wait(seen):
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _wait(self, seen: list[ThreadInfo]) -> bool:
        try:
            async with asyncio.timeout(SILENCE), self._changed:
                await self._changed.wait_for(lambda: self._stopping or self.now is not seen)
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
            await asyncio.sleep(self._every)
            try:
                found = await asyncio.to_thread(self._look)
            except BacktrailError as error:
                _LOG.warning("cannot look at the store: %s", error)
                continue
            if found != self.now:
                async with self._changed:
                    self.now = found
                    self._changed.notify_all()


def compare(before: list[ThreadInfo], after: list[ThreadInfo]) -> tuple[list[ThreadInfo], list[str]]:
    """(threads that are new or moved, ids that are gone). One that only fell off the end of the list is not gone."""
    known = {info.id: info for info in before}
    changed = [info for info in after if known.get(info.id) != info]
    here = {info.id for info in after}
    oldest = after[-1].updated_at if len(after) >= NEWEST else None
    gone = [info.id for info in before if info.id not in here and (oldest is None or info.updated_at > oldest)]
    return changed, gone


def event(name: str, data: Any) -> bytes:
    """The bytes of one event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
