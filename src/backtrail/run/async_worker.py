"""A worker with tasks: the loop of `AsyncStore.work`. As in `sync_worker`, one task finds runs, others do them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from backtrail.async_runner import AsyncRunner
from backtrail.errors import LockLost, LockTimeout, RunFinished, Suspended, Unavailable
from backtrail.run.async_api import AsyncRun
from backtrail.run.failures import single
from backtrail.run.run_core import RunCore
from backtrail.run.work_core import FIRST_PAUSE, LAST_PAUSE, NotNow, WorkCore

_log = logging.getLogger("backtrail.work")


class AsyncWorker:
    """One call of `AsyncStore.work`."""

    def __init__(self, core: WorkCore, runner: AsyncRunner, drain: bool, stop: asyncio.Event | None) -> None:
        self._core = core
        self._runner = runner
        self._drain = drain
        self._stop = stop or asyncio.Event()
        self._going: dict[str, asyncio.Task[bool]] = {}
        self._done = 0

    async def run(self) -> int:
        """Work until told to stop, or with `drain` until there is nothing to do. Returns how many runs were taken."""
        with _stopped_by_signals(self._stop.set):
            try:
                await self._hand_out()
            finally:
                self._stop.set()
                if self._going:
                    _, late = await asyncio.wait(list(self._going.values()), timeout=self._core.grace)
                    for task in late:
                        task.cancel()
                    await asyncio.gather(*late, return_exceptions=True)
        return self._done

    async def _hand_out(self) -> None:
        found: list[str] = []
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            if len(self._going) >= self._core.workers:
                await self._rest(LAST_PAUSE)
                continue
            if not found:
                found = [id for id in await self._find() if id not in self._going]
            if found:
                id = found.pop()
                task = self._going[id] = asyncio.create_task(self._do(id), name=f"backtrail work {id}")
                task.add_done_callback(lambda _, id=id: self._going.pop(id, None))  # type: ignore[misc]  # a value for each
                pause = FIRST_PAUSE
            elif self._drain and not self._going:
                return
            else:
                await self._rest(pause)
                pause = min(2 * pause, LAST_PAUSE)

    async def _find(self) -> list[str]:
        try:
            return await self._runner(self._core.find())
        except Unavailable as error:
            if self._core.context.closed:
                raise
            _log.warning("the store cannot be read now: %s", error)
            return []

    async def _rest(self, seconds: float) -> None:
        """Wait for some seconds, for a run to end, or for the stop."""
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([stopped, *self._going.values()], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    async def _do(self, id: str) -> bool:
        """Do one run, if it is there to be done; True if it was taken up."""
        core = RunCore(self._core.context, id)
        self._core.prepare(core, self._stop.is_set, partial(_is_interrupt, asyncio.current_task()))
        taken = False
        try:
            async with AsyncRun(core, self._runner) as run:
                taken = True
                self._done += 1
                result = self._core.tasks[core.task](run, core.input)
                result = await result if inspect.isawaitable(result) else result
                if result is not None:
                    core.result = result
        except (NotNow, LockTimeout, RunFinished):
            if taken:  # of a run that this one began
                _log.exception("run %r failed", id)
            else:
                self._core.refused(id)
        except Suspended as waits:
            self._core.suspended(core)
            _log.info("%s", waits)
        except LockLost as error:
            _log.warning("%s", error)
        except Unavailable as error:
            _log.warning("run %r: the store cannot be used now: %s", id, error)
        except BaseException as error:  # of the user: the run has failed, and the worker goes on
            if core.is_interrupt(error):
                raise
            _log.exception("run %r failed", id)
        return taken


def _is_interrupt(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    """True if the task that does a run was cancelled, or the whole program interrupted. Anything else that a run ends
    with, such as `sys.exit()`, is its failure."""
    cancelled = task is not None and task.cancelling() > 0
    return any(
        isinstance(one, KeyboardInterrupt) or (cancelled and isinstance(one, asyncio.CancelledError))
        for one in single(error)
    )


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`, where the event loop can be told of them: on Unix, in the main thread."""
    loop = asyncio.get_running_loop()
    told: list[signal.Signals] = []
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
            told.append(number)
    except (NotImplementedError, RuntimeError, ValueError):
        _log.debug("signals do not reach this event loop: use stop=")
    try:
        yield
    finally:
        for number in told:
            loop.remove_signal_handler(number)
