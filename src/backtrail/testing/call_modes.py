"""Runs an engine's coroutines in every mode that a store uses.

* *direct*: finished in place with one `send(None)`, as `Store` does. A blocking engine must never suspend.
* *threaded*: each call in some thread of a pool, as `AsyncStore` does with a blocking engine.
* *awaited*: on an event loop, as `AsyncStore` does with an engine that awaits its client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar, cast

from backtrail.engines.base import Engine

T = TypeVar("T")
Mode = Literal["direct", "threaded", "awaited"]


def step(coroutine: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine that must not suspend; `AssertionError` if it does."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise AssertionError(f"{coroutine!r} suspended: a blocking engine does its I/O in place")


def run(mode: Mode, case: Callable[[Callable[[Engine], Engine]], Coroutine[Any, Any, None]]) -> None:
    """Run `case` in one mode. It is given a function through which it must pass each engine that it opens."""
    if mode == "direct":
        step(case(lambda engine: engine))
    elif mode == "threaded":
        asyncio.run(case(lambda engine: cast("Engine", _Threaded(engine))))
    else:
        asyncio.run(case(lambda engine: engine))


async def race(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
    """Run all calls at once, as tasks if a loop is running and as threads if not; errors are returned as values."""
    if _on_a_loop():
        return list(await asyncio.gather(*calls, return_exceptions=True))
    start = threading.Barrier(len(calls))

    def one(call: Coroutine[Any, Any, T]) -> T:
        start.wait()
        return step(call)

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(one, call) for call in calls]
        return [future.exception() or future.result() for future in futures]


async def pause(seconds: float) -> None:
    """Sleep: awaited if an event loop runs, else blocking."""
    if _on_a_loop():
        await asyncio.sleep(seconds)
    else:
        threading.Event().wait(seconds)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Threaded:
    """A blocking engine, each call of which is finished in a thread of the loop's pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.properties = engine.properties

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(step, method(*args, **options))

        return call
