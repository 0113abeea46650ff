"""One implementation of each adapter for sync and async stores.

An adapter writes each operation once, as a coroutine, and wraps each call of the store in `maybe_await`. Over a `Store`
such a coroutine never suspends: a sync method of a framework runs it in place, and an async one runs it in a thread, so
that the event loop, asyncio's or trio's, never waits for a disk. Over an `AsyncStore`, which needs asyncio, it is
awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio.to_thread

from backtrail.aio import AsyncStore
from backtrail.errors import InvalidInput
from backtrail.store import Store

T = TypeVar("T")


async def maybe_await(result: Any) -> Any:
    """The result of a call of a store: awaited if the store is async, as it is otherwise."""
    return await result if inspect.isawaitable(result) else result


class SyncBridge:
    """Runs an adapter's coroutines from the sync and async methods of a framework."""

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"an adapter takes what backtrail.open() or backtrail.aio.open() gave, not {store!r}")
        self._store_is_sync = isinstance(store, Store)
        self._loop: asyncio.AbstractEventLoop | None = None
        if not self._store_is_sync:
            self._loop = _running_loop()

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from an async method of a framework."""
        if self._store_is_sync:
            return await _run_in_thread(coroutine)
        return await coroutine

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from a sync method of a framework."""
        if self._store_is_sync:
            return run_in_place(coroutine)
        if self._loop is None or self._loop is _running_loop():
            coroutine.close()
            raise InvalidInput(
                "a blocking call on an AsyncStore must come from another thread than its event loop's: "
                "use the async method, or open the store with backtrail.open()"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a `Store` in a thread. If the task is cancelled meanwhile it is free at once: a call that has
    begun goes on to its end, as over an `AsyncStore`, and one that has not never does."""
    unclaimed = threading.Lock()

    def run() -> T:
        if not unclaimed.acquire(blocking=False):
            raise RuntimeError("nobody waits for this call any more")
        return run_in_place(coroutine)

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    finally:
        if unclaimed.acquire(blocking=False):
            coroutine.close()


def run_in_place(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as those over a `Store` never do."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is untyped
    coroutine.close()
    raise RuntimeError("a blocking store suspended: this is a defect of the adapter, please report it")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
