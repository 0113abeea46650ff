"""Sync and async for a mirror: waiting, locks, fences, and background work.

A mirror of two blocking engines is a blocking engine itself: its background work is a daemon thread. If one side
suspends, the mirror does, too: then a blocking side is called in threads, and the background work is a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from backtrail.engines.base import Commit, Engine, Fence
from backtrail.engines.coroutines import finish
from backtrail.engines.delegating_engine import Method, WrappingEngine
from backtrail.replicate.status import log

T = TypeVar("T")
_MAX_THREADS = 16  # threads for each side


class Workers:
    """Threads that finish coroutines of blocking engines, started as needed. An executor would take a fifth more of
    processor time for each call, with its own futures half as much again."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Coroutine[Any, Any, Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._idle = 0

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start the coroutine now; returns a future for its result."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < _MAX_THREADS:
                self._threads += 1
                threading.Thread(target=self._run, name="backtrail-side", daemon=True).start()
        self._work.put((coroutine, outcome))
        return outcome

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            coroutine, outcome = given
            loop = outcome.get_loop()
            value, error = None, None
            try:
                value = finish(coroutine)
            except BaseException as raised:  # noqa: BLE001  # passed on to the caller
                error = raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, outcome, value, error)
            except RuntimeError:
                log.debug("a loop was closed before a side had answered")

    def stop(self) -> None:
        """Accept no more work; each thread ends after its current coroutine."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)
            self._threads = self._idle = 0


def _settle(outcome: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if outcome.cancelled():
        return
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(value)


class ThreadedEngine(WrappingEngine):
    """A blocking engine whose calls each run in a thread."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._workers = Workers()
        self.properties = msgspec.structs.replace(engine.properties, blocking=False)

    async def _ask(self, method: Method[Any], *args: Any, **options: Any) -> Any:
        return await self._workers.submit(super()._ask(method, *args, **options))

    async def close(self) -> None:
        await super().close()
        self._workers.stop()


def side(engine: Engine, blocking: bool) -> Engine:
    """An engine as a side of a mirror: called in threads if the mirror suspends and the engine blocks."""
    return engine if blocking or not engine.properties.blocking else ThreadedEngine(engine)


class FencedEngine(WrappingEngine):
    """An engine whose commits carry a fence, unless they have one."""

    def __init__(self, engine: Engine, fence: Fence) -> None:
        super().__init__(engine)
        self._fence = fence

    async def commit(self, commit: Commit) -> None:
        await self._inner.commit(
            commit if commit.fence is not None else msgspec.structs.replace(commit, fence=self._fence)
        )


async def pause(blocking: bool, seconds: float) -> None:
    if blocking:
        time.sleep(seconds)  # noqa: ASYNC251  # no event loop runs in a blocking mirror
    else:
        await asyncio.sleep(seconds)


class Mutex:
    """A lock between threads for a blocking mirror, between tasks for another: `async with mutex: …`."""

    def __init__(self, blocking: bool) -> None:
        self._lock: threading.Lock | asyncio.Lock = threading.Lock() if blocking else asyncio.Lock()

    async def __aenter__(self) -> None:
        taken = self._lock.acquire()
        if not isinstance(taken, bool):
            await taken

    async def __aexit__(self, *raised: object) -> None:
        self._lock.release()


class LineageLocks:
    """Locks by lineage."""

    def __init__(self, blocking: bool) -> None:
        self._locks: WeakValueDictionary[str, Mutex] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._blocking = blocking

    def of(self, lineage: str) -> Mutex:
        with self._lock:
            return self._locks.setdefault(lineage, Mutex(self._blocking))


class Background:
    """Calls `tick` at intervals, and soon after `wake`: `gather` seconds later, once for all calls of `wake` until
    then. Starts at the first `wake`; stops with `stop`."""

    def __init__(self, blocking: bool, tick: Callable[[], Coroutine[Any, Any, float]], gather: float = 0.0) -> None:
        self._blocking = blocking
        self._tick = tick
        self._gather = gather
        self._stopping = False
        self._lock = threading.Lock()
        self._due: threading.Event | asyncio.Event = threading.Event()
        self._worker: threading.Thread | asyncio.Task[None] | None = None

    def wake(self) -> None:
        if self._stopping:
            return
        if not self._is_running():
            with self._lock:  # several callers may be the first
                if not self._is_running():
                    self._start()
        if not self._due.is_set():
            self._due.set()

    def _is_running(self) -> bool:
        if isinstance(self._worker, asyncio.Task):
            return not self._worker.done()
        return self._worker is not None and self._worker.is_alive()

    def _start(self) -> None:
        if self._blocking:
            self._worker = threading.Thread(target=lambda: finish(self._run()), name="backtrail-mirror", daemon=True)
            self._worker.start()
        else:
            self._due = asyncio.Event()
            self._worker = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        wait = 0.0
        while not self._stopping:
            if await self._is_due(wait) and self._gather and not self._stopping:
                await pause(self._blocking, self._gather)
            self._due.clear()
            if not self._stopping:
                wait = await self._tick()

    async def _is_due(self, wait: float) -> bool:
        """True after a `wake`, False after this many seconds without one."""
        if isinstance(self._due, threading.Event):
            return self._due.wait(wait)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait or 0.001):  # wait_for() can swallow a cancellation
                await self._due.wait()
        return self._due.is_set()

    async def stop(self, timeout: float) -> None:
        """Let a running tick finish, for at most `timeout` seconds."""
        self._stopping = True
        self._due.set()
        if isinstance(self._worker, asyncio.Task):
            await asyncio.wait([self._worker], timeout=timeout)
            self._worker.cancel()
        elif self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join(timeout)
