"""What a worker does next: it finds runs that are ready, due or left behind by a worker that died.

Nothing is reserved here. A run is taken by its lease, and looked at again once the lease is held, so a list that is out
of date costs a lease and never does a run twice. Several workers read the same list: each draws some of the oldest runs
at random, so they seldom meet. Runs that are ready, and those that sleep, are listed by status, which costs what is
listed; the ones asleep are remembered, and only what is new among them is read again.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from backtrail.engines.base import Head
from backtrail.errors import InvalidInput
from backtrail.history.context import Context
from backtrail.history.records import now_micros
from backtrail.history.run_status import KINDS
from backtrail.history.store_core import list_heads
from backtrail.history.validation import check_name, check_seconds
from backtrail.run.lease import TTL
from backtrail.run.listing import RUNS
from backtrail.run.run_core import LOOK_AGAIN, RunCore
from backtrail.run.submission import WAITING

_PAGE = 1000
_PAGES = 5  # of ready runs among which the oldest are looked for at once; the next ones if none is of these tasks
_SHARE = 20  # a look at all runs of a status may take one part in so many of the time
_OLDEST = 1024  # ready runs from which some are drawn
_DRAWN = 16  # of them, for each thread or task, before the list is read again: few enough that most are still there
_DRAWN_OF_ALL = 256  # of them, after all ready runs were read: more, because that took longer
_ALL_AGAIN = 60.0  # seconds after which all sleeping runs are read again, in case a clock was wrong
_NOT_AGAIN = 0.5  # seconds before a run that another worker has is tried again
_SKEW = 5_000_000  # microseconds by which the clocks of two machines may differ meanwhile
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0  #: seconds between two looks while there is nothing to do
_MARKED_AFTER = 0.05  # seconds after which a run that was taken up and has saved nothing is marked as running


class NotNow(Exception):
    """A run is not to be done after all: it has been done since it was listed. It stays as it is."""


class WorkCore:
    """Finds runs of these tasks."""

    def __init__(self, context: Context, tasks: Any, workers: int, grace: float) -> None:
        if not isinstance(tasks, Mapping) or not tasks:
            raise InvalidInput("work() takes a dict of tasks and their functions, such as {'nightly': nightly}")
        for task, function in tasks.items():
            check_name(task, "task")
            if not callable(function):
                raise InvalidInput(f"task {task!r}: a {type(function).__qualname__} is not a function")
        if type(workers) is not int or workers < 1:
            raise InvalidInput(f"workers must be an int from 1 up, not {workers!r:.40}")
        self.grace = check_seconds(grace, "grace")
        self.context = context
        self.tasks: dict[str, Callable[..., Any]] = dict(tasks)
        self.workers = workers
        self._asleep: dict[str, int] = {}  # when each run that sleeps or waits goes on
        self._looked = dict.fromkeys(WAITING, 0)  # when they were read last; 0: never
        self._read_all_at = 0.0
        self._look_behind_at = 0.0
        self._look_at_all_at = 0.0
        self._refused: dict[str, float] = {}

    async def find(self) -> list[str]:
        """Some runs to try."""
        found = await self._due() + await self._ready()
        if time.monotonic() >= self._look_behind_at:
            found += await self._left_behind()
        now = time.monotonic()
        self._refused = {id: until for id, until in list(self._refused.items()) if until > now}  # threads add to it
        return [id for id in found if id not in self._refused]

    def refused(self, id: str) -> None:
        """A run could not be taken: it is not tried again at once."""
        self._refused[id] = time.monotonic() + _NOT_AGAIN

    def suspended(self, core: RunCore) -> None:
        """A run waits. If its time has come already, it waits for a run inside of it, and is tried again later."""
        if 0 < core.due <= now_micros():
            self._refused[core.id] = time.monotonic() + LOOK_AGAIN

    async def _ours(self, head: Head) -> bool:
        return (await RUNS.schedule(self.context, head)).submitted_for in self.tasks

    async def _ready(self) -> list[str]:
        """Some of the oldest. A listing begins with the newest, so only the beginning of a long one is read, but now
        and then all of it: no run waits for ever behind newer ones."""
        heads: list[Head] = []
        async for page in self._pages("ready"):
            heads += page
            if len(heads) >= _PAGES * _PAGE:
                if time.monotonic() >= self._look_at_all_at:
                    return await self._oldest_of_all()
                if drawn := await self._draw(heads):
                    return drawn
                heads.clear()
        return await self._draw(heads)

    async def _oldest_of_all(self) -> list[str]:
        began, oldest = time.monotonic(), deque[str](maxlen=_OLDEST)
        async for page in self._pages("ready"):
            for head in page:
                if await self._ours(head):
                    oldest.append(head.thread)
        self._look_at_all_at = began + _SHARE * (time.monotonic() - began)
        return random.sample(oldest, min(len(oldest), _DRAWN_OF_ALL))

    async def _draw(self, heads: list[Head]) -> list[str]:
        """Some of the oldest of these runs that are of these tasks."""
        for end in range(len(heads), 0, -_OLDEST):
            oldest = heads[max(0, end - _OLDEST) : end]
            random.shuffle(oldest)
            drawn: list[str] = []
            for head in oldest:
                if await self._ours(head):
                    drawn.append(head.thread)
                    if len(drawn) == _DRAWN * self.workers:
                        break
            if drawn:
                return drawn
        return []

    async def _page(self, status: str, after: str | None, limit: int) -> list[Head]:
        return await list_heads(self.context, "", limit, after, KINDS[status], exact=True)

    async def _pages(self, status: str) -> AsyncIterator[list[Head]]:
        """The runs that have a status, newest first, page by page."""
        after: str | None = None
        while True:
            page = await self._page(status, after, _PAGE)
            yield page
            if len(page) < _PAGE:
                return
            after = page[-1].thread

    async def _due(self) -> list[str]:
        """Runs whose time has come. A run is read when it falls asleep, not each time that somebody looks."""
        began = time.monotonic()
        again = began >= self._read_all_at
        if again:
            self._asleep.clear()
            self._looked = dict.fromkeys(WAITING, 0)
        for status in WAITING:
            await self._read_new(status)
        if again:
            self._read_all_at = began + max(_ALL_AGAIN, _SHARE * (time.monotonic() - began))
        now = now_micros()
        due = [id for id, wakes in self._asleep.items() if wakes <= now]
        for id in due:
            del self._asleep[id]
        return due

    async def _read_new(self, status: str) -> None:
        """Read those that have changed since the last look; the clocks of other machines may be a little behind."""
        now, since = now_micros(), self._looked[status] - _SKEW
        limit, after = 64, None
        while True:
            page = await self._page(status, after, limit)
            for head in page:
                known = await RUNS.schedule(self.context, head)
                if known.due and known.submitted_for in self.tasks:
                    self._asleep[head.thread] = known.due
            if len(page) < limit or page[-1].updated < since:
                self._looked[status] = now
                return
            after, limit = page[-1].thread, _PAGE

    async def _left_behind(self) -> list[str]:
        """Runs that are marked as running. Those of living workers are refused by their leases."""
        began = time.monotonic()
        found = [head.thread async for page in self._pages("running") for head in page if await self._ours(head)]
        took = time.monotonic() - began
        self._look_behind_at = began + max(TTL / 10, _SHARE * took)
        return found

    def prepare(
        self, core: RunCore, stopping: Callable[[], bool], is_interrupt: Callable[[BaseException], bool]
    ) -> None:
        """Make ready to take up a run. It is looked at again once its lease is held: `NotNow` if it has been done
        meanwhile. One whose first step takes its time is marked as running; the others save that with their step."""
        core.stopping, core.is_interrupt, core.marked_after = stopping, is_interrupt, _MARKED_AFTER
        core.check_start = partial(self._check_start, core)

    def _check_start(self, core: RunCore) -> None:
        late = core.status in WAITING and 0 < core.due <= now_micros()
        if not (core.submitted and core.task in self.tasks and (core.status in ("ready", "running") or late)):
            raise NotNow
