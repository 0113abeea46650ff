"""A worker with threads: the loop of `Store.work`.

The calling thread finds runs and hands them out; each of the others does one at a time. To stop, no run is handed out
any more, and those under way stop before their next step: they are ready for another worker.
"""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from backtrail.engines.coroutines import finish
from backtrail.errors import LockLost, LockTimeout, RunFinished, Suspended, Unavailable
from backtrail.run.run_core import RunCore
from backtrail.run.sync_api import Run
from backtrail.run.work_core import FIRST_PAUSE, LAST_PAUSE, NotNow, WorkCore

_log = logging.getLogger("backtrail.work")


class Worker:
    """One call of `Store.work`."""

    def __init__(self, core: WorkCore, drain: bool, stop: threading.Event | None) -> None:
        self._core = core
        self._drain = drain
        self._stop = stop or threading.Event()
        self._tasks: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._going: set[str] = set()  # handed out, and not back yet
        self._changed = threading.Condition()
        self._told = False  # by a signal: its handler must not touch a lock, which this thread may hold
        self._done = 0

    def run(self) -> int:
        """Work until told to stop, or with `drain` until there is nothing to do. Returns how many runs were taken."""
        threads = [
            threading.Thread(target=self._serve, name=f"backtrail worker {n}", daemon=True)
            for n in range(1, self._core.workers + 1)
        ]
        with _stopped_by_signals(self._tell):
            for thread in threads:
                thread.start()
            try:
                self._hand_out()
            finally:
                self._stop.set()
                for _ in threads:
                    self._tasks.put(None)
                until = time.monotonic() + self._core.grace
                for thread in threads:
                    thread.join(max(0.0, until - time.monotonic()))
        return self._done

    def _tell(self) -> None:
        self._told = True

    def _stopping(self) -> bool:
        return self._told or self._stop.is_set()

    def _hand_out(self) -> None:
        found: list[str] = []
        pause = FIRST_PAUSE
        while not self._stopping():
            with self._changed:
                while len(self._going) >= self._core.workers and not self._stopping():
                    self._changed.wait(LAST_PAUSE)
            if self._stopping():
                return
            if not found:
                found = [id for id in self._find() if id not in self._going]
            if found:
                id = found.pop()
                with self._changed:
                    self._going.add(id)
                self._tasks.put(id)
                pause = FIRST_PAUSE
            elif self._drain and not self._going:
                return
            else:
                self._rest(pause)
                pause = min(2 * pause, LAST_PAUSE)

    def _find(self) -> list[str]:
        try:
            return finish(self._core.find())
        except Unavailable as error:
            if self._core.context.closed:
                raise
            _log.warning("the store cannot be read now: %s", error)
            return []

    def _rest(self, seconds: float) -> None:
        with self._changed:
            if self._going:
                self._changed.wait(seconds)
                return
        self._stop.wait(seconds)

    def _serve(self) -> None:
        while (id := self._tasks.get()) is not None:
            taken = False
            try:
                taken = not self._stop.is_set() and self._do(id)
                if not taken:
                    self._core.refused(id)
            finally:
                with self._changed:
                    self._done += taken
                    self._going.discard(id)
                    self._changed.notify_all()

    def _do(self, id: str) -> bool:
        """Do one run, if it is there to be done; True if it was taken up."""
        core = RunCore(self._core.context, id)
        # Nothing interrupts a thread: whatever a run ends with, such as sys.exit(), is its failure.
        self._core.prepare(core, self._stopping, lambda _: False)
        taken = False
        try:
            with Run(core) as run:
                taken = True
                result = self._core.tasks[core.task](run, core.input)
                if result is not None:
                    core.result = result
        except (NotNow, LockTimeout, RunFinished):
            if taken:  # of a run that this one began
                _log.exception("run %r failed", id)
        except Suspended as waits:
            self._core.suspended(core)
            _log.info("%s", waits)
        except LockLost as error:
            _log.warning("%s", error)
        except Unavailable as error:
            _log.warning("run %r: the store cannot be used now: %s", id, error)
        except BaseException:  # noqa: BLE001  # of the user: the run has failed, and the worker goes on
            _log.exception("run %r failed", id)
        return taken


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`, if this is the main thread: only that can be told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(*_: Any) -> None:
        stop()

    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
