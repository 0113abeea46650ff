"""One core, two colours: how a front door finishes a coroutine of the core.

Everything below the front doors is written once, as `async def`, and awaits only engine methods. Over a blocking engine
those never suspend, so the blocking door finishes the coroutine with one `send(None)`, and the async door sends the
whole call to a thread; short writes that several tasks make at once go to one thread together and share a commit. Over
an engine that really suspends, the async door just awaits.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from backtrail.engines.base import Engine
from backtrail.engines.capabilities import SharesCommits, capability
from backtrail.engines.drive import finish, finish_all

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")


class AsyncRunner:
    """Finishes coroutines without blocking the event loop: in a thread of its own pool, or by awaiting."""

    def __init__(self, engine: Engine) -> None:
        # Imported here: a program that only blocks starts a third faster without them.
        from asyncio import get_running_loop, wrap_future
        from concurrent.futures import ThreadPoolExecutor

        self._loop = get_running_loop
        self._wrap = wrap_future
        blocking = engine.properties.blocking
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="backtrail") if blocking else None
        self._shares = capability(engine, SharesCommits) is not None
        self._guard = threading.Lock()
        self._driving = False
        self._waiting: list[tuple[Coroutine[Any, Any, Any], Future[Any]]] = []

    async def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._pool is None:
            return await coroutine
        going = self._pool.submit(finish, coroutine)
        try:
            return await self._wrap(going)
        finally:
            if going.cancelled():
                coroutine.close()  # it had not begun; a call that has begun goes on to its end

    async def together(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Like a call, for short writes: those that tasks make at once run in one thread and share a commit."""
        if self._pool is None or not self._shares:
            return await self(coroutine)
        loop = self._loop()
        outcome: Future[T] = loop.create_future()
        with self._guard:
            self._waiting.append((coroutine, outcome))
            start, self._driving = not self._driving, True
        if start:
            self._pool.submit(self._drive, loop)
        return await outcome

    def _drive(self, loop: AbstractEventLoop) -> None:
        """In a thread: finish what waits, all at once, until nothing waits."""
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
            loop.call_soon_threadsafe(_deliver, [outcome for _, outcome in batch], results)

    async def work(self, function: Callable[[], T], /) -> T:
        """Do work that blocks: in place if the whole call has a thread of its own, else in a thread."""
        return function() if self._pool is not None else await self._loop().run_in_executor(None, function)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


def _deliver(outcomes: list[Future[Any]], results: list[tuple[Any, BaseException | None]]) -> None:
    """On the loop: tell each task how its call ended; one that was cancelled meanwhile does not ask any more."""
    for outcome, (value, error) in zip(outcomes, results, strict=True):
        if outcome.cancelled():
            continue
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)


def blocking(method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A core method, as the blocking door has it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(method(self.core, *args, **kwargs))

    return call


def awaitable(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A core method, as the async door has it."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        hop: AsyncRunner = self.hop
        return await hop(method(self.core, *args, **kwargs))

    return call


class Listed(Coroutine[Any, Any, list[T]]):
    """What a call that lists something gives in the async colour: `await` it for a list, or go through it with
    `async for`. It is a coroutine like any other call's."""

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


def listing(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, list[T]]],
) -> Callable[Concatenate[Any, P], Listed[T]]:
    """A core method that gives a list, as the async door has it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Listed[T]:
        hop: AsyncRunner = self.hop
        return Listed(hop(method(self.core, *args, **kwargs)))

    return call


def sharing(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A core method that does a short write, as the async door has it: tasks that call it at once share a commit."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        hop: AsyncRunner = self.hop
        work = method(self.core, *args, **kwargs)
        # A snapshot of files may take its time: others shall not wait for it.
        return await (hop.together(work) if kwargs.get("files") is None else hop(work))

    return call
