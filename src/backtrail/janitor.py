"""The janitor: prunes a store at an interval, in a thread or in a task, as long as the program runs.

Of all janitors of a store, in whatever process, one works at a time: a lease says which. Errors are reported in the
status, and the next round tries again; starting or stopping twice is not an error. The status of the one that worked
last is also kept in the store, in a record under a reserved name, for whoever operates it from another process.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import uuid
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail.async_runner import AsyncRunner
from backtrail.engines.base import Taken
from backtrail.engines.coroutines import finish
from backtrail.engines.reserved_names import RESERVED
from backtrail.engines.reserved_record import record, update
from backtrail.errors import DECODE_ERRORS, BacktrailError, Corrupt, InvalidInput
from backtrail.history.context import Context
from backtrail.history.sweep import Sweeper
from backtrail.model import Pruned
from backtrail.typing import Policy

if TYPE_CHECKING:
    import asyncio

_LEASE = "janitor"
_RECORD = f"{RESERVED}janitor"
_MIN_LEASE = 60.0  # seconds: a round may take longer than the time between two of them
_log = logging.getLogger(__name__)


class JanitorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a janitor, and the results of its rounds."""

    running: bool
    every: float  #: seconds between two rounds
    rounds: int = 0  #: rounds that were done to the end
    skipped: int = 0  #: rounds left to another janitor of the same store
    errors: int = 0
    last_round: dt.datetime | None = None
    last_report: Pruned | None = None
    last_error: str | None = None
    next_round: dt.datetime | None = None  #: None if it was stopped


async def read_status(context: Context) -> JanitorStatus | None:
    """The status of the janitor that worked last in this store, in whatever process; None if none did."""
    context.check_open()
    head = await context.engine.head(_RECORD)
    if head is None:
        return None
    try:
        return msgspec.msgpack.decode(head.note, type=JanitorStatus)
    except DECODE_ERRORS as error:
        raise Corrupt("the janitor's record", str(error)) from error


class _Rounds:
    """One round, and the results of all rounds, for `Janitor` and `AsyncJanitor`."""

    def __init__(self, context: Context, every: Any, retention: Policy) -> None:
        if isinstance(every, dt.timedelta):
            every = every.total_seconds()
        if isinstance(every, bool) or not isinstance(every, (int, float)) or not 0 < every < float("inf"):
            raise InvalidInput(f"every={every!r}: a janitor needs a number of seconds above 0")
        self.context = context
        self.every = float(every)
        self._retention = retention
        self._owner = uuid.uuid4().hex
        self.results = JanitorStatus(running=False, every=self.every)

    def record(self, **changes: Any) -> None:
        self.results = msgspec.structs.replace(self.results, **changes)

    async def run_round(self) -> None:
        """Make one round. Errors are noted, and the next round tries again."""
        results = self.results
        try:
            ttl = max(2 * self.every, _MIN_LEASE)
            if isinstance(await self.context.engine.lease(_LEASE, self._owner, ttl), Taken):
                self.record(skipped=results.skipped + 1)
                return
            report = await Sweeper(self.context).prune(self._retention)
        except (BacktrailError, OSError) as error:
            _log.warning("the janitor's round failed and is tried again in %g s: %s", self.every, error)
            changes: dict[str, Any] = {
                "errors": results.errors + 1,
                "last_error": f"{type(error).__name__}: {error}",
            }
        else:
            changes = {
                "rounds": results.rounds + 1,
                "last_round": dt.datetime.now(dt.UTC),
                "last_report": report,
                "last_error": None,
            }
        due = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.every)
        self.record(**changes, running=True, next_round=due)
        await self._keep()

    async def _keep(self) -> None:
        """Keep the status in the store. It only informs: a store that cannot be written now gets it the next time."""
        value = msgspec.msgpack.encode(self.results)
        try:
            await update(self.context.engine, _RECORD, lambda known: record(_RECORD, _RECORD, "janitor", value, known))
        except (BacktrailError, OSError) as error:
            _log.warning("the janitor's status could not be kept in the store: %s", error)

    async def give_up_lease(self) -> None:
        """Let another janitor work."""
        worked = self.results.next_round is not None
        self.record(running=False, next_round=None)
        if not self.context.closed:
            if worked:
                await self._keep()
            await self.context.engine.release(_LEASE, self._owner)


class Janitor:
    """Prunes a store at an interval, in a thread of its own.

    with store.janitor(every=3600) as janitor:
        ...
        print(janitor.status)
    """

    def __init__(self, context: Context, every: float | dt.timedelta, retention: Policy) -> None:
        self._rounds = _Rounds(context, every, retention)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def status(self) -> JanitorStatus:
        """The state of the janitor, and the results of its rounds."""
        running = self._thread is not None and self._thread.is_alive()
        return msgspec.structs.replace(self._rounds.results, running=running)

    def start(self) -> Janitor:
        """Start; the first round is made at once. Starting twice is not an error."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._stopping = threading.Event()
                self._thread = threading.Thread(
                    target=self._work, args=(self._stopping,), name="backtrail-janitor", daemon=True
                )
                self._thread.start()
        return self

    def stop(self) -> None:
        """Stop, after the round that is being made. Stopping twice is not an error."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopping.set()
        if thread is not None:
            thread.join()
            finish(self._rounds.give_up_lease())

    def _work(self, stopping: threading.Event) -> None:
        while not stopping.is_set() and not self._rounds.context.closed:
            finish(self._rounds.run_round())
            stopping.wait(self._rounds.every)

    def __enter__(self) -> Janitor:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class AsyncJanitor:
    """Prunes a store at an interval, in a task of the running loop.

    async with store.janitor(every=3600) as janitor:
        ...
        print(janitor.status)
    """

    def __init__(self, context: Context, runner: AsyncRunner, every: float | dt.timedelta, retention: Policy) -> None:
        self._rounds = _Rounds(context, every, retention)
        self._runner = runner
        self._stopping: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> JanitorStatus:
        """The state of the janitor, and the results of its rounds."""
        running = self._task is not None and not self._task.done()
        return msgspec.structs.replace(self._rounds.results, running=running)

    async def start(self) -> AsyncJanitor:
        """Start; the first round is made at once. Starting twice is not an error."""
        from asyncio import Event, create_task

        if self._task is None or self._task.done():
            self._stopping = Event()
            self._task = create_task(self._work(self._stopping), name="backtrail-janitor")
        return self

    async def stop(self) -> None:
        """Stop, after the round that is being made. Stopping twice is not an error."""
        task, self._task = self._task, None
        if task is not None and self._stopping is not None:
            self._stopping.set()
            await task
            await self._runner(self._rounds.give_up_lease())

    async def _work(self, stopping: asyncio.Event) -> None:
        from asyncio import wait_for

        while not stopping.is_set() and not self._rounds.context.closed:
            await self._runner(self._rounds.run_round())
            with suppress(TimeoutError):
                await wait_for(stopping.wait(), self._rounds.every)

    async def __aenter__(self) -> AsyncJanitor:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
