"""An event loop without threads, sockets and sleep: time jumps to the next thing that is due.

Every callback runs in the context of a process, or in none (the network, the world). A process that has died gets no
turn any more: its tasks stay where they are, as they do when a machine loses power. One that is stopped gets its turns
later, in their order.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import repeat
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MOST_TURNS = 400_000  #: a plan takes some thousands; beyond this, something runs in circles


class Process:
    """A simulated process: alive, stopped for a while, or dead; with a clock that may be wrong."""

    __slots__ = ("clock_error", "dead", "name", "stopped_until", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stopped_until = 0.0
        self.clock_error = 0.0  #: seconds
        self.waiting: list[Handle] = []  #: turns that came while it was stopped


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
NOBODY = Context()  #: of no process: for what happens on a server or in the network


class Handle(msgspec.Struct, eq=False):
    """A turn of a process, or of nobody, that can be cancelled. Much cheaper than asyncio's: a struct is made without
    a frame, and more than a thousand are made for each seed."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class Stuck(Exception):
    """Nothing is due any more, and what was waited for has not happened; or there is no end to what happens."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs what is ready, in order; then the clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.errors: list[dict[str, Any]] = []  #: of tasks that nobody awaited
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._timers_made = 0
        self._closed = False

    # -- running --------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        task = self.create_task(future, context=NOBODY)
        events._set_running_loop(self)
        try:
            NOBODY.run(self._run, task)
        finally:
            events._set_running_loop(None)
        return task.result()

    def _run(self, task: asyncio.Task[Any]) -> None:
        """Give everybody their turns until the task is done. It runs in the context of nobody, so that a turn of nobody
        (most are: every message has two) needs no change of context."""
        ready, timers, done = self._ready, self._timers, task.done
        take, take_timer = ready.popleft, heapq.heappop
        for _ in repeat(None, MOST_TURNS):
            if done():
                return
            if ready:
                handle = take()
            elif timers:
                when, _, handle = take_timer(timers)
                if handle.is_cancelled:
                    continue
                if when > self.now:
                    self.now = when
            else:
                raise Stuck("nothing is due any more")
            if handle.is_cancelled:
                continue
            context = handle.context
            try:
                if context is NOBODY:
                    handle.callback(*handle.args)
                    continue
                process = context.get(PROCESS)
                if process is not None:
                    if process.dead:
                        continue
                    if process.stopped_until > self.now:
                        process.waiting.append(handle)
                        continue
                context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  # as asyncio does
                self._failed(context, error)
        raise Stuck(f"no end after {MOST_TURNS} turns")

    def _failed(self, context: Context, error: BaseException) -> None:
        """Note what a turn raised, in its own context."""
        if context is NOBODY:
            self.call_exception_handler({"exception": error})
        else:
            context.run(self.call_exception_handler, {"exception": error})

    def stop_process(self, process: Process, seconds: float) -> None:
        """Give a process no turn for some time."""
        process.stopped_until = max(process.stopped_until, self.now + seconds)
        self.call_at(process.stopped_until, self.resume, process, context=NOBODY)

    def resume(self, process: Process) -> None:
        if process.stopped_until <= self.now:
            self._ready.extend(process.waiting)
            process.waiting.clear()

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    # -- what asyncio asks of a loop ------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    get_debug = staticmethod(bool)  # False; every future asks, and this answers without a frame

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        if not self._closed:
            self._timers_made += 1
            heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def call_nobody(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """As call_later, in no process."""
        if not self._closed:
            self._timers_made = made = self._timers_made + 1
            heapq.heappush(self._timers, (self.now + delay, made, Handle(callback, args, NOBODY)))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # those of dead processes never end
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """There are no threads here: the work is done at once, and its result arrives with the next turn."""
        future = self.create_future()
        try:
            self.call_soon(_deliver, future, func(*args), None)
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits it
            self.call_soon(_deliver, future, None, error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = PROCESS.get()
        if context.get("exception") is not None and not (process is not None and process.dead) and not self._closed:
            self.errors.append(context)


def _deliver(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
