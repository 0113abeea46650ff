"""Both colours of a store behind one text.

An adapter writes what it does once, as a coroutine, and wraps each call of the store in `settle`. Over a `Store` such a
coroutine never suspends, so a blocking method of a framework finishes it in place, and an async one sends it to a
thread, so that the event loop never waits for a disk. Over an `AsyncStore` it is awaited.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from backtrail.aio import AsyncStore
from backtrail.errors import InvalidInput
from backtrail.store import Store

T = TypeVar("T")


async def settle(result: Any) -> Any:
    """What a call of a store gave, whichever colour the store has."""
    return await result if inspect.isawaitable(result) else result


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is untyped
    coroutine.close()
    raise RuntimeError("a blocking store suspended: this is a defect of the adapter, please report it")


class SyncBridge:
    """Runs an adapter's coroutines as its store asks for."""

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"an adapter takes what backtrail.open() or backtrail.aio.open() gave, not {store!r}")
        self._blocking = isinstance(store, Store)
        self._loop: asyncio.AbstractEventLoop | None = None
        if not self._blocking:
            self._loop = _running()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For an async method of a framework."""
        if self._blocking:
            return await asyncio.to_thread(_finish, coroutine)
        return await coroutine

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For a blocking method of a framework."""
        if self._blocking:
            return _finish(coroutine)
        here = _running()
        if self._loop is None or here is self._loop:
            coroutine.close()
            raise InvalidInput(
                "a blocking call on an AsyncStore must come from another thread than its event loop's: "
                "use the async method, or open the store with backtrail.open()"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
