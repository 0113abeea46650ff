"""One core, two colours: how a front door finishes a coroutine of the core.

Everything below the front doors is written once, as `async def`, and awaits only engine methods. Over a blocking engine
those never suspend, so the blocking door finishes the coroutine with one `send(None)`, and the async door sends the
whole call to a thread. Over an engine that really suspends, the async door just awaits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from clew.engines.base import Engine
from clew.engines.stepping import finish

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")


class Hop:
    """Finishes coroutines without blocking the event loop: in a thread of its own pool, or by awaiting."""

    def __init__(self, engine: Engine) -> None:
        # Imported here: a program that only blocks starts a third faster without them.
        from asyncio import get_running_loop, wrap_future
        from concurrent.futures import ThreadPoolExecutor

        self._loop = get_running_loop
        self._wrap = wrap_future
        blocking = engine.properties.blocking
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="clew") if blocking else None

    async def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._pool is None:
            return await coroutine
        going = self._pool.submit(finish, coroutine)
        try:
            return await self._wrap(going)
        finally:
            if going.cancelled():
                coroutine.close()  # it had not begun; a call that has begun goes on to its end

    async def work(self, function: Callable[[], T], /) -> T:
        """Do work that blocks: in place if the whole call has a thread of its own, else in a thread."""
        return function() if self._pool is not None else await self._loop().run_in_executor(None, function)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


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
        hop: Hop = self.hop
        return await hop(method(self.core, *args, **kwargs))

    return call
