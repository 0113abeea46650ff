"""What a worker does next: it finds runs that are ready, due or left behind by a worker that died.

Nothing is reserved here. A run is taken by its lease, and looked at again once the lease is held, so a list that is out
of date costs a read and never does a run twice. Runs that are ready, and those that sleep, are listed by status, which
costs what is listed; the ones asleep are remembered, and only what is new among them is read again.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from backtrail.errors import InvalidInput
from backtrail.history.context import Context
from backtrail.history.records import now_micros
from backtrail.history.run_status import KINDS, status_of
from backtrail.history.store_core import list_heads
from backtrail.history.validation import check_name, check_seconds
from backtrail.run.lease import TTL
from backtrail.run.listing import RUNS, RunInfo
from backtrail.run.run_core import RunCore
from backtrail.run.submission import WAITING

_PAGE = 1000
_PAGES = 5  # of ready runs that are read to find the oldest; more if none of them is of these tasks
_SHARE = 20  # a look for runs left behind may take one part in so many of the time
_CHUNK = 64  # runs that are tried before the list is read again
_ALL_AGAIN = 60.0  # seconds after which all sleeping runs are read again, in case a clock was wrong
_NOT_AGAIN = 0.5  # seconds before a run that another worker has is tried again
_SKEW = 5_000_000  # microseconds by which the clocks of two machines may differ meanwhile
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0  #: seconds between two looks while there is nothing to do


class NotNow(BaseException):
    """Leaves the block of a run that is not to be done after all; the run stays as it is."""


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
        self._seen = dict.fromkeys(WAITING, 0)  # the newest change among them that was read
        self._read_all = -_ALL_AGAIN
        self._look_behind_at = 0.0
        self._refused: dict[str, float] = {}

    async def find(self) -> list[str]:
        """Some runs to try."""
        found = await self._due() + await self._ready()
        if time.monotonic() >= self._look_behind_at:
            found += await self._left_behind()
        now = time.monotonic()
        self._refused = {id: until for id, until in self._refused.items() if until > now}
        return [id for id in found if id not in self._refused]

    def refused(self, id: str) -> None:
        """A run could not be taken: it is not tried again at once."""
        self._refused[id] = time.monotonic() + _NOT_AGAIN

    def _ours(self, info: RunInfo) -> bool:
        return info.submitted and info.task in self.tasks and info.damage is None

    async def _ready(self) -> list[str]:
        found: list[str] = []
        pages = 0
        async for page in self._pages("ready"):
            found += page
            pages += 1
            if found and pages >= _PAGES:
                break
        oldest = found[-_CHUNK * self.workers :]
        random.shuffle(oldest)  # several workers that read the same list do not all begin with the same run
        return oldest

    async def _page(self, status: str, after: str | None = None, limit: int = _PAGE) -> list[RunInfo]:
        heads = await list_heads(self.context, "", limit, after, KINDS[status], exact=True)
        return [await RUNS.info(self.context, head) for head in heads]

    async def _pages(self, status: str) -> AsyncIterator[list[str]]:
        """The runs of these tasks that have a status, newest first, page by page."""
        after: str | None = None
        while True:
            page = await self._page(status, after)
            yield [info.id for info in page if self._ours(info)]
            if len(page) < _PAGE:
                return
            after = page[-1].id

    async def _due(self) -> list[str]:
        """Runs whose time has come. A run is read when it falls asleep, not each time that somebody looks."""
        if time.monotonic() - self._read_all >= _ALL_AGAIN:
            self._read_all = time.monotonic()
            self._asleep.clear()
            self._seen = dict.fromkeys(self._seen, 0)
        for status in WAITING:
            await self._read_new(status)
        now = now_micros()
        due = [id for id, wakes in self._asleep.items() if wakes <= now]
        for id in due:
            del self._asleep[id]
        return due

    async def _read_new(self, status: str) -> None:
        seen, limit, after = self._seen[status], 64, None
        while True:
            page = await self._page(status, after, limit)
            for info in page:
                if self._ours(info) and info.due_at is not None:
                    self._asleep[info.id] = round(info.due_at.timestamp() * 1_000_000)
                self._seen[status] = max(self._seen[status], _micros(info))
            if len(page) < limit or _micros(page[-1]) < seen - _SKEW:
                return
            after, limit = page[-1].id, _PAGE

    async def _left_behind(self) -> list[str]:
        """Runs that are marked as running. Those of living workers are refused by their leases."""
        began = time.monotonic()
        found = [id async for page in self._pages("running") for id in page]
        took = time.monotonic() - began
        self._look_behind_at = began + max(TTL / 10, _SHARE * took)
        return found

    async def worth_trying(self, id: str) -> bool:
        """False if a run is certainly not to be done now: it was done since it was listed."""
        head = await self.context.engine.head(id)
        return head is not None and status_of(head.kind) in ("ready", "running", *WAITING)

    def check_taken(self, core: RunCore) -> None:
        """Look again, now that the lease is held: `NotNow` if the run has been done meanwhile."""
        late = core.status in WAITING and 0 < core.due <= now_micros()
        if not (core.submitted and core.task in self.tasks and (core.status in ("ready", "running") or late)):
            raise NotNow


def _micros(info: RunInfo) -> int:
    return round(info.updated_at.timestamp() * 1_000_000)
