"""The public locks of a thread. The lease and its fence are in `history.thread_lock`; waiting is done here."""

from __future__ import annotations

import time
from types import TracebackType

from backtrail.async_runner import AsyncRunner
from backtrail.engines.base import Taken
from backtrail.engines.coroutines import finish
from backtrail.history.thread_lock import POLL
from backtrail.history.thread_lock import Lock as CoreLock


class Lock:
    """A thread's lock, held inside `with`."""

    def __init__(self, core: CoreLock) -> None:
        self._core = core

    def acquire(self) -> Lock:
        """Wait for the lock, at most `timeout` seconds; then `LockTimeout` says who has it."""
        start = time.monotonic()
        while (taken := finish(self._core.attempt())) is not None:
            waited = time.monotonic() - start
            if waited >= self._core.timeout:
                raise self._core.refused(waited, taken)
            time.sleep(min(POLL, self._core.timeout - waited))
        return self

    def renew(self) -> None:
        """Keep the lock for another `ttl` seconds; `LockLost` if another owner took it meanwhile."""
        finish(self._core.renew())

    def release(self) -> bool:
        """Give the lock back; False if it had been lost."""
        return finish(self._core.release())

    def __enter__(self) -> Lock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class AsyncLock:
    """A thread's lock, held inside `async with`."""

    def __init__(self, core: CoreLock, runner: AsyncRunner) -> None:
        self._core = core
        self._runner = runner

    async def acquire(self) -> AsyncLock:
        """Wait for the lock, at most `timeout` seconds; then `LockTimeout` says who has it."""
        from asyncio import sleep  # not loaded by a program that uses only the sync API

        start = time.monotonic()
        while (taken := await self._attempt()) is not None:
            waited = time.monotonic() - start
            if waited >= self._core.timeout:
                raise self._core.refused(waited, taken)
            await sleep(min(POLL, self._core.timeout - waited))
        return self

    async def _attempt(self) -> Taken | None:
        """Try once. If the caller is cancelled meanwhile, a lock that was taken is given back, not left to expire."""
        from asyncio import CancelledError, ensure_future, shield, wait

        going = ensure_future(self._runner(self._core.attempt()))
        try:
            return await shield(going)
        except CancelledError:
            await wait([going])
            if not going.cancelled() and going.exception() is None and going.result() is None:
                await self._runner(self._core.release())
            raise

    async def renew(self) -> None:
        """Keep the lock for another `ttl` seconds; `LockLost` if another owner took it meanwhile."""
        await self._runner(self._core.renew())

    async def release(self) -> bool:
        """Give the lock back; False if it had been lost."""
        return await self._runner(self._core.release())

    async def __aenter__(self) -> AsyncLock:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()
