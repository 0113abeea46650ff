"""Running the core's coroutines on an event loop.

Everything below the public classes is written once, as `async def`, and awaits only engine methods. Over a blocking
engine those never suspend: the blocking classes run such a coroutine to its end in place (`engines.coroutines.finish`),
and the async classes send the whole call to a thread, so the event loop never waits for a disk. Short writes that
several tasks make at once, of one event loop or of several, go to one thread together and share a commit. Over an
engine that suspends, calls are awaited.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from backtrail.engines.base import Engine
from backtrail.engines.capabilities import SharesCommits, capability
from backtrail.engines.coroutines import finish, finish_all
from backtrail.errors import InvalidInput
from backtrail.history.observation import ObservedEngine

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    Delivery = tuple[Future[Any], tuple[Any, BaseException | None]]

T = TypeVar("T")


def require_loop(coroutine: Coroutine[Any, Any, Any] | None = None) -> AbstractEventLoop:
    """The running asyncio loop; without one the coroutine is closed, and the caller told what to do."""
    from asyncio import get_running_loop  # imported here, as below

    try:
        return get_running_loop()
    except RuntimeError as error:
        if coroutine is not None:
            coroutine.close()
        raise InvalidInput(
            "an AsyncStore needs a running asyncio event loop, and there is none here: under trio, open the store with "
            "backtrail.open() and call it in a thread (the adapters of frameworks do so themselves)"
        ) from error


class AsyncRunner:
    """Runs coroutines without blocking the event loop: in a pool of threads, or by awaiting them."""

    def __init__(self, engine: Engine) -> None:
        # Imported here: a program that uses only the sync API starts a third faster without them.
        from asyncio import wrap_future
        from concurrent.futures import ThreadPoolExecutor

        self._wrap = wrap_future
        blocking = engine.properties.blocking
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="backtrail") if blocking else None
        self._shares = capability(engine, SharesCommits) is not None
        self._observed = blocking and capability(engine, ObservedEngine) is not None
        self._guard = threading.Lock()
        self._driving = False
        self._waiting: list[tuple[Coroutine[Any, Any, Any], Future[Any]]] = []

    async def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        require_loop(coroutine)
        if self._pool is None:
            return await coroutine
        if self._observed:
            coroutine = _InContext(coroutine)
        going = self._pool.submit(finish, coroutine)
        try:
            return await self._wrap(going)
        finally:
            if going.cancelled():
                coroutine.close()  # it had not begun; a call that has begun goes on to its end

    async def together(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a short write; writes that tasks make at once run in one thread and share a commit."""
        if self._pool is None or not self._shares:
            return await self(coroutine)
        loop = require_loop(coroutine)
        if self._observed:
            coroutine = _InContext(coroutine)
        outcome: Future[T] = loop.create_future()
        with self._guard:
            self._waiting.append((coroutine, outcome))
            start, self._driving = not self._driving, True
        if start:
            self._pool.submit(self._drive)
        return await outcome

    def _drive(self) -> None:
        """In a thread: finish all waiting coroutines together, until none is left."""
        while True:
            with self._guard:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._driving = False
                    return
            for coroutine, outcome in batch:
                if outcome.cancelled():
                    coroutine.close()  # it had not begun
            batch = [(coroutine, outcome) for coroutine, outcome in batch if not outcome.cancelled()]
            results = finish_all([coroutine for coroutine, _ in batch])
            by_loop: dict[AbstractEventLoop, list[Delivery]] = {}
            for (_, outcome), result in zip(batch, results, strict=True):
                by_loop.setdefault(outcome.get_loop(), []).append((outcome, result))
            for loop, deliveries in by_loop.items():
                try:
                    loop.call_soon_threadsafe(_deliver, deliveries)
                except RuntimeError:
                    if not loop.is_closed():  # else nobody waits there any more
                        raise

    async def work(self, function: Callable[[], T], /) -> T:
        """Run a blocking function: in place if the whole call has a thread of its own, else in a thread."""
        return function() if self._pool is not None else await require_loop().run_in_executor(None, function)


def _deliver(deliveries: list[Delivery]) -> None:
    """On the loop: give each task the outcome of its call; a task that was cancelled meanwhile is left out."""
    for outcome, (value, error) in deliveries:
        if outcome.cancelled():
            continue
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)


class _InContext(Coroutine[Any, Any, T]):
    """A coroutine that runs in the context of the task that made it, whatever thread it runs in: its spans belong to
    that task's span, and not to one of another coroutine that shares its commit."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._context = contextvars.copy_context()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        return self._context.run(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._context.run(self._work.throw, *error)

    def close(self) -> None:
        self._context.run(self._work.close)


class AwaitableList(Coroutine[Any, Any, list[T]]):
    """The result of an async method that lists something: `await` it for a list, or loop over it with `async for`.

    It is a coroutine: `asyncio.create_task` and `asyncio.gather` take it.
    """

    def __init__(self, work: Coroutine[Any, Any, list[T]]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, list[T]]:
        return self._work.__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        for each in await self._work:
            yield each

    def send(self, value: Any, /) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()
