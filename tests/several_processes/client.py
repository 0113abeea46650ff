"""What a client process does: it works on threads that it has for itself and on threads that all share, and reports
each operation before it begins and once it is acknowledged.

A report is one line in a file, written before the client goes on: it outlives the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import inspect
import logging
import os
import random
import threading
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import backtrail
import backtrail.aio
from backtrail.engines.coroutines import finish
from backtrail.engines.retry import RetryPolicy
from backtrail.history import records
from backtrail.replicate import limits
from several_processes.board import Board, Fuse
from several_processes.plan import Client, Plan
from several_processes.sides import Side, Watched

#: What a caller may see while sides come and go; anything else is a fault.
EXPECTED = (backtrail.Unavailable, backtrail.Conflict, backtrail.NotFound, backtrail.LockTimeout)
QUICK: dict[str, Any] = {"health_every": 0.05, "failback_after": 0.1, "max_failovers": 10_000, "drain": 0.2}
SETTLING = 20.0  # seconds within which a mirror without faults must have caught up
WORKERS = 2
NAMES = 4  # threads that all clients create, delete and fork into
KEEP = backtrail.Retention(keep_last=3, undo_window=dt.timedelta(0))


class Report:
    """The file into which one process writes what it does."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **facts: Any) -> None:
        os.write(self._file, msgspec.json.encode({"at": time.monotonic_ns(), **facts}) + b"\n")


def shift_clock(board: Board) -> None:
    """This process's clock is ahead of the others' by what the board says."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + board.clock / 1e9
    time.time_ns = lambda: nanoseconds() + board.clock
    records.clock = time.time_ns


def quick_limits() -> None:
    """A process that is stopped for a second has been away for longer than anybody waits for it."""
    limits.ROLE_CHANGE = RetryPolicy.seconds(0.5, pause=0.02)  # type: ignore[misc]


def log_into(path: Path, start: int) -> None:
    """The log of this process, in a file of its own, with the seconds since the start of the round."""

    def since(record: logging.LogRecord) -> bool:
        record.since = (time.monotonic_ns() - start) / 1e9
        return True

    handler = logging.FileHandler(path)
    handler.addFilter(since)
    logging.basicConfig(handlers=[handler], format="%(since)8.3f %(levelname)s %(message)s", force=True)


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def clean(status: Any) -> bool:
    """Both sides are healthy, and neither lacks anything that this process knows of."""
    spooled = status.spool is not None and (status.spool.records or status.spool.adrift)
    missing = status.behind or status.lag_records or spooled
    return bool(status.primary.healthy and status.replica.healthy and not missing)


async def catch_up(store: Any, pause: Callable[[float], Awaitable[None]]) -> Any:
    """Catch up until both sides are one; the last status, whatever it says."""
    end = time.monotonic() + SETTLING
    status = None
    while time.monotonic() < end:
        with contextlib.suppress(backtrail.Unavailable):
            if clean(status := await settled(store.catch_up())):
                return status
        await pause(0.02)
    return status


class Place(NamedTuple):
    """Where a round is played, and since when."""

    sides: tuple[Side, Side]
    folder: Path
    start: int  #: by the clock that all processes share


class Process:
    """One client process at work."""

    def __init__(self, plan: Plan, client: Client, life: int, board: Board, place: Place) -> None:
        self.plan, self.client, self.board = plan, client, board
        self.sides, folder, self.start = place
        self.report = Report(folder / f"client-{client.number}-{life}.jsonl")
        self.log = folder / f"client-{client.number}-{life}.log"
        self.name = f"{client.number}.{life}"
        self.seed = f"{client.seed} {life}"
        self.spool = None if client.spool is None else folder / f"spool-{client.spool}"
        self.writes = Fuse(client.dies_at_write if life == 0 else None)
        self.changes = Fuse(client.dies_at_change if life == 0 else None)
        self.last_calls = Fuse(client.dies_in_catch_up)
        self.mine: dict[str, list[str]] = {}  # thread -> checkpoints that were acknowledged to this process
        self.doubtful: list[tuple[str, str, str]] = []  # (thread, token, id) of saves without an answer
        self.forks: list[str] = []
        self._numbers = iter(range(1 << 30))
        self._lock = threading.Lock()

    def options(self) -> dict[str, Any]:
        options = {**QUICK, "replication": self.plan.setup.replication, "on_change": lambda _: self.changes.burn()}
        return options if self.spool is None else {**options, "spool": self.spool}

    def engine(self, side: int) -> Watched:
        engine = self.sides[side].engine(self.client.number, asynchronous=self.client.asynchronous)
        seen = None if self.sides[side].server else side  # a proxy hides a server
        return Watched(engine, self.board, seen, self.writes, self.last_calls)

    async def open(self) -> Any:
        opening: Any = backtrail.aio.open if self.client.asynchronous else backtrail.open
        while True:
            try:
                return await settled(opening(self.engine(0), replica=self.engine(1), **self.options()))
            except backtrail.Unavailable:
                await self.pause(0.02)

    async def pause(self, seconds: float) -> None:
        if self.client.asynchronous:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    def run(self) -> None:
        """The whole life of the process."""
        log_into(self.log, self.start)
        shift_clock(self.board)
        quick_limits()
        try:
            if self.client.asynchronous:
                asyncio.run(self._live_async())
            else:
                self._live_blocking()
        except BaseException as error:
            self.report.write(fault=type(error).__name__, trace=traceback.format_exc())
            raise

    async def _live_async(self) -> None:
        store = await self.open()
        await asyncio.gather(*(self.work(store, worker) for worker in range(WORKERS)))
        await self._end(store)

    def _live_blocking(self) -> None:
        store = finish(self.open())
        with ThreadPoolExecutor(WORKERS) as crew:
            list(crew.map(lambda worker: finish(self.work(store, worker)), range(WORKERS)))
        finish(self._end(store))

    async def _end(self, store: Any) -> None:
        status = await catch_up(store, self.pause)
        self.report.write(settled=bool(status and clean(status)), status=str(status))
        await settled(store.close())

    # -- operations ---------------------------------------------------------------------------------------------------

    async def work(self, store: Any, worker: int) -> None:
        """One operation after the other until everything has healed."""
        dice = random.Random(f"{self.seed} {worker}")
        kinds = {
            self.append: 50,
            self.save: 8,
            self.update: 4,
            self.annotate: 12,
            self.fork: 5,
            self.delete_thread: 5,
            self.delete_checkpoint: 5,
            self.rewind: 5,
            self.undo: 2,
            self.prune: 2,
            self.repeat: 10,
            self.read: 3,
        }
        while not self.board.healed:
            (kind,) = dice.choices(list(kinds), list(kinds.values()))
            await kind(store, dice)
            await self.pause(0.002)

    def thread_name(self, dice: random.Random) -> str:
        drawn = dice.random()
        if drawn < 0.35:
            return f"own-{self.client.number}"
        if drawn < 0.60:
            return "shared"
        if drawn < 0.88:
            return f"name-{dice.randrange(NAMES)}"
        if drawn < 0.94 and self.forks:
            return dice.choice(self.forks)
        return f"kept-{self.client.number}"

    def token(self) -> str:
        return f"{self.name}:{next(self._numbers)}"

    async def _facts(self, store: Any) -> list[Any]:
        status = await settled(store.status())
        spooling = status.spool is not None and bool(status.spool.records or status.spool.adrift)
        return [status.active, status.generation, spooling, clean(status)]

    async def _do(self, store: Any, do: str, call: Callable[[], Any], **facts: Any) -> Any:
        """One operation: its report, the call, and the report of its outcome. None if it was not acknowledged."""
        number = next(self._numbers)
        self.report.write(begin=number, do=do, before=await self._facts(store), **facts)
        try:
            answer = await settled(call())
        except EXPECTED as error:
            id = getattr(error, "id", None)
            after = await self._facts(store)
            self.report.write(end=number, error=type(error).__name__, id=id, text=str(error)[:300], after=after)
            if do == "save" and isinstance(error, backtrail.Unavailable) and (id or facts["id"]):
                with self._lock:
                    self.doubtful.append((facts["thread"], facts["token"], id or facts["id"]))
            await self.pause(0.01)
            return None
        except Exception as error:  # noqa: BLE001 - a fault; the client goes on, as a program would
            self.report.write(
                end=number, error=type(error).__name__, text=str(error)[:300], trace=traceback.format_exc()
            )
            await self.pause(0.01)
            return None
        found = answer.id if isinstance(answer, backtrail.Checkpoint) else None
        self.report.write(end=number, id=found, after=await self._facts(store))
        if do == "save" and found:
            with self._lock:
                self.mine.setdefault(facts["thread"], []).append(found)
        return answer if answer is not None else True

    async def append(self, store: Any, dice: random.Random) -> None:
        name, token = self.thread_name(dice), self.token()
        id = str(uuid.UUID(int=dice.getrandbits(128), version=4)) if dice.random() < 0.2 else None
        thread = store.thread(name)
        new = name.startswith("kept-") and name not in self.mine
        saved = await self._do(
            store,
            "save",
            lambda: thread.append("messages", [token], id=id),
            thread=name,
            token=token,
            id=id,
            by="append",
        )
        if new and saved:
            await self._do(store, "retain", lambda: thread.retain(KEEP), thread=name)

    async def save(self, store: Any, dice: random.Random) -> None:
        name, token = self.thread_name(dice), self.token()
        thread = store.thread(name)
        state = await self._do(store, "read", thread.load, thread=name) or {"messages": []}
        state = {**state, "messages": [*state["messages"], token]}
        await self._do(store, "save", lambda: thread.save(state), thread=name, token=token, id=None, by="save")

    async def update(self, store: Any, dice: random.Random) -> None:
        name, token = self.thread_name(dice), self.token()
        call = lambda: store.thread(name).update({"plan": token}, append=("messages", [token]))  # noqa: E731
        await self._do(store, "save", call, thread=name, token=token, id=None, by="update")

    async def repeat(self, store: Any, dice: random.Random) -> None:
        """Save once more what had no answer, under its id."""
        with self._lock:
            if not self.doubtful:
                return
            name, token, id = self.doubtful.pop(dice.randrange(len(self.doubtful)))
        call = lambda: store.thread(name).append("messages", [token], id=id)  # noqa: E731
        await self._do(store, "save", call, thread=name, token=token, id=id, by="append")

    def _known(self, dice: random.Random, *, prefixes: tuple[str, ...] = ("",)) -> tuple[str, str] | None:
        """A checkpoint that was acknowledged to this process, more likely a new one."""
        with self._lock:
            names = [name for name in self.mine if name.startswith(prefixes)]
            if not names:
                return None
            name = dice.choice(names)
            return name, dice.choice(self.mine[name][-8:])

    async def annotate(self, store: Any, dice: random.Random) -> None:
        if known := self._known(dice):
            name, at = known
            label = f"label {self.token()}"
            call = lambda: store.thread(name).annotate(at, label=label)  # noqa: E731
            await self._do(store, "annotate", call, thread=name, target=at, label=label)

    async def fork(self, store: Any, dice: random.Random) -> None:
        if known := self._known(dice, prefixes=("own-", "shared", "name-")):
            name, at = known
            to = f"name-{dice.randrange(NAMES)}" if dice.random() < 0.4 else f"fork-{self.token()}"
            call = lambda: store.thread(name).fork(to, at=at)  # noqa: E731
            if await self._do(store, "fork", call, thread=to, source=name, target=at) and to.startswith("fork-"):
                self.forks.append(to)

    async def delete_thread(self, store: Any, dice: random.Random) -> None:
        name = dice.choice([*(f"name-{number}" for number in range(NAMES)), *self.forks[-2:]])
        await self._do(store, "delete thread", lambda: store.thread(name).delete(), thread=name)

    async def delete_checkpoint(self, store: Any, dice: random.Random) -> None:
        if known := self._known(dice, prefixes=("own-", "shared", "name-")):
            name, at = known
            await self._do(store, "delete at", lambda: store.thread(name).delete(at), thread=name, target=at)

    async def rewind(self, store: Any, dice: random.Random) -> None:
        if known := self._known(dice, prefixes=("own-", "shared", "name-")):
            name, at = known
            await self._do(store, "rewind", lambda: store.thread(name).rewind(at), thread=name, target=at)

    async def undo(self, store: Any, dice: random.Random) -> None:
        name = self.thread_name(dice)
        await self._do(store, "undo", lambda: store.thread(name).undo(), thread=name)

    async def prune(self, store: Any, dice: random.Random) -> None:
        """What this process sees vanish from its own thread by the prune was deleted by it."""
        thread = store.thread(f"kept-{self.client.number}")
        began, facts = time.monotonic_ns(), await self._facts(store)
        look = lambda: thread.history(all=True)  # noqa: E731
        before = await self._do(store, "read", look, thread=thread.id)
        done = await self._do(store, "prune", store.prune, thread=thread.id)
        after = await self._do(store, "read", look, thread=thread.id)
        if before and done and after and await self._facts(store) == facts and not facts[2]:
            gone = {checkpoint.id for checkpoint in before} - {checkpoint.id for checkpoint in after}
            self.report.write(pruned=sorted(gone), thread=thread.id, began=began)

    async def read(self, store: Any, dice: random.Random) -> None:
        name = self.thread_name(dice)
        thread = store.thread(name)
        look = dice.choice((thread.load, lambda: thread.history(all=True), store.threads))
        await self._do(store, "read", look, thread=name)
