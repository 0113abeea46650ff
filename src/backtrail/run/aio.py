"""The awaited door of a run. Inside `async with`, a task renews the lease: an iteration may take its time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from backtrail.errors import Unavailable
from backtrail.history.lock import POLL
from backtrail.run.core import TTL, RunCore
from backtrail.run.sync import Attributes, Raised
from backtrail.runner import AsyncRunner, awaitable

if TYPE_CHECKING:
    from backtrail.aio import AsyncThread


class AsyncRun(Attributes):
    """A thread seen as a resumable job: `async with` resumes it, deletes it on success and keeps it on failure."""

    def __init__(self, core: RunCore, thread: AsyncThread[Any], hop: AsyncRunner, timeout: float = 0.0) -> None:
        self.core = core
        self.thread = thread  #: the same run, as checkpoints
        self.hop = hop
        self._timeout = timeout
        self._heart: asyncio.Task[None] | None = None

    exists = awaitable(RunCore.exists)
    resume = awaitable(RunCore.resume)
    checkpoint = awaitable(RunCore.checkpoint)
    finish = awaitable(RunCore.finish)

    async def __aenter__(self) -> AsyncRun:
        start = time.monotonic()
        while (taken := await self.hop(self.core.take())) is not None:
            waited = time.monotonic() - start
            if waited >= self._timeout:
                raise self.core.refused(round(waited, 2), taken)
            await asyncio.sleep(min(POLL, self._timeout - waited))
        try:
            await self.hop(self.core.start())
        except BaseException:
            await self.hop(self.core.release())
            raise
        self._heart = asyncio.create_task(self._beat(), name=f"backtrail run {self.id}")
        return self

    async def _beat(self) -> None:
        """Renew the lease until the run is done, or another has it: then the next checkpoint is refused."""
        while True:
            await asyncio.sleep(TTL / 3)
            try:
                if not await self._renewed():
                    return
            except Unavailable:
                continue  # the store may come back before the lease runs out

    async def _renewed(self) -> bool:
        """One renewal. A run that ends waits for it: one that goes on in a thread would take the lease again later."""
        going = asyncio.ensure_future(self.hop(self.core.renew()))
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            await asyncio.gather(going, return_exceptions=True)
            raise

    async def __aexit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heart
        try:
            if kind is None:
                await self.hop(self.core.finish())
        finally:
            await self.hop(self.core.release())

    def __repr__(self) -> str:
        return f"<backtrail.AsyncRun {self.id!r} iteration {self.iteration}>"
