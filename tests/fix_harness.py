"""Fault injection for a mirror while writers write: the sides, the faults, and a checker that knows every acknowledged
save and delete.

Each round injects a fault into one side, the other, both, the network to them, the clock, or the writing process
itself; then everything is repaired, and each side is checked alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Engine
from backtrail.engines.coroutines import finish
from backtrail.engines.jsonl import JSONLEngine
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.history import records
from backtrail.testing.servers import PostgresServer, RedisServer
from fix_children import Child
from fix_flaky import Flaky
from fix_proxy import Proxy

WRITERS = 8
ROUND = 0.35  # seconds that writers write
SHORT: dict[str, Any] = {"connect_timeout": 1.0, "read_timeout": 0.25, "retries": 1, "deadline": 0.6}
QUICK: dict[str, Any] = {"health_every": 0.05, "failback_after": 0.1, "max_failovers": 10_000, "drain": 0.2}


class Side:
    """One side: how it is reached, hurt, healed, and asked alone."""

    faults: tuple[str, ...]

    def engine(self, asynchronous: bool) -> Engine:
        raise NotImplementedError

    def alone(self) -> backtrail.Store:
        raise NotImplementedError

    def hurt(self, fault: str) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError


class File(Side):
    """A store that no server stands behind: it can be made unreachable, and its answers can be lost."""

    faults = ("away", "lost answer")

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._open: list[Flaky] = []

    def engine(self, asynchronous: bool) -> Engine:
        made = Flaky(self._make())
        self._open = [*self._open[-4:], made]
        return made

    def alone(self) -> backtrail.Store:
        return backtrail.open(self._make())

    def hurt(self, fault: str) -> None:
        for engine in self._open:
            if fault == "away":
                engine.up = False
            else:
                engine.lose_answers = 1

    def heal(self) -> None:
        for engine in self._open:
            engine.up, engine.lose_answers = True, 0


class Lasting(MemoryEngine):
    """A dict that outlives the stores that are opened on it, as a file does."""

    async def close(self) -> None:
        """Keep what is in it for the next one who opens it."""


class Machine(Side):
    """A server behind a proxy."""

    faults = ("killed", "paused", "cut", "slow", "silent", "lost answer")

    def __init__(self, server: RedisServer | PostgresServer, proxy: Proxy) -> None:
        self.server, self.proxy = server, proxy
        self._paused = self._killed = False

    def engine(self, asynchronous: bool) -> Engine:
        url = self.server.url.replace(str(self.server.port), str(self.proxy.port))
        make: Any = RedisEngine if isinstance(self.server, RedisServer) else PostgresEngine
        made: Engine = make(url, asynchronous=asynchronous, **SHORT)
        return made

    def alone(self) -> backtrail.Store:
        return backtrail.open(self.server.url)

    def hurt(self, fault: str) -> None:
        if fault == "killed":
            self.server.kill()
            self._killed = True
        elif fault == "paused" and not self._killed:
            self.server.signal(signal.SIGSTOP)
            self._paused = True
        elif fault == "cut":
            self.proxy.refusing = True
            self.proxy.cut()
        elif fault == "slow":
            self.proxy.delay = 0.05
        elif fault == "silent":
            self.proxy.silent = True
        elif fault == "lost answer":
            self.proxy.cut_next_answers(2)

    def heal(self) -> None:
        if self._paused:
            self.server.signal(signal.SIGCONT)
        if self._killed:
            self.server.start()
        self._paused = self._killed = False
        was_silent, self.proxy.silent = self.proxy.silent, False
        self.proxy.refusing, self.proxy.delay = False, 0.0
        self.proxy.cut_next_answers(0)
        if was_silent:
            self.proxy.cut()


class Ledger:
    """All that was acknowledged."""

    def __init__(self) -> None:
        self.saves: dict[str, tuple[str, str]] = {}  # checkpoint id -> (thread, token)
        self.deleted: set[str] = set()
        self.doubtful: set[str] = set()  # threads whose deletion was tried, and not acknowledged
        self._lock = threading.Lock()

    def note(self, entry: list[str]) -> None:
        with self._lock:
            kind, thread, *rest = entry
            if kind == "save":
                self.saves[rest[0]] = (thread, rest[1])
            elif kind == "delete":
                self.deleted.add(thread)
                self.doubtful.discard(thread)
            else:
                self.doubtful.add(thread)


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def write(store: Any, name: str, seed: int, until: float, note: Callable[[list[str]], None]) -> None:
    """One writer: appends to its own thread and to one that all share, saves, forks away, makes and deletes threads."""
    dice = random.Random(seed)
    number = 0
    own = f"own-{name}"
    while time.monotonic() < until:
        number += 1
        token = f"{name}:{number}"
        choice = dice.random()
        thread_id = own if choice < 0.5 else "shared" if choice < 0.8 else f"short-{name}-{number}"
        thread = store.thread(thread_id)
        try:
            saved = await settled(thread.append("messages", [token, "x" * dice.choice((10, 1000))]))
            note(["save", thread_id, saved.id, token])
            if choice >= 0.9:
                note(["trying", thread_id])
                await settled(thread.delete())
                note(["delete", thread_id])
            elif choice < 0.05:
                await settled(thread.annotate(saved.id, label=token))
        except (backtrail.Unavailable, backtrail.Conflict, backtrail.NotFound):
            number += 1  # an operation that was not acknowledged may have been done: its token is not used again
        await asyncio.sleep(0.01) if _has_loop() else time.sleep(0.01)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Harness:
    """Rounds over one pair of sides."""

    def __init__(self, primary: Side, replica: Side, seed: int, spool: Path | None = None) -> None:
        self.primary, self.replica = primary, replica
        self.options: dict[str, Any] = QUICK if spool is None else {**QUICK, "spool": spool}
        self.dice = random.Random(seed)
        self.ledger = Ledger()
        self.rounds = 0

    def open(self, **options: Any) -> backtrail.Store:
        return backtrail.open(
            self.primary.engine(False), replica=self.replica.engine(False), **{**self.options, **options}
        )

    def round(self, mode: str, *, asynchronous: bool = False, child: bool = False) -> None:
        """Write while something breaks, heal, wait until both sides are one, and check."""
        self.rounds += 1
        if child:
            self._in_a_child(mode)
        elif asynchronous:
            self._in_tasks(mode)
        else:
            self._in_threads(mode)
        self.heal()
        self.settle(mode)

    def heal(self) -> None:
        self.primary.heal()
        self.replica.heal()

    def _faults(self) -> None:
        """Hurt something in the middle of a round, and perhaps heal it and hurt the other."""
        for _ in range(self.dice.choice((1, 1, 2))):
            time.sleep(self.dice.uniform(0.02, 0.12))
            both = [self.primary, self.replica]
            sides = self.dice.choice(
                ([self.primary], both if "spool" in self.options else [self.primary], both[1:], both)
            )
            for side in sides:
                side.hurt(self.dice.choice(side.faults))
            time.sleep(self.dice.uniform(0.1, 0.25))
            if self.dice.random() < 0.5:
                for side in sides:
                    side.heal()

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        """Every fourth round the clock steps by an hour, one way or the other."""
        if self.rounds % 4:
            yield
            return
        true, step = records.clock, self.dice.choice((-1, 1)) * 3_600_000_000_000
        records.clock = lambda: true() + step
        try:
            yield
        finally:
            records.clock = true

    def _names(self) -> list[str]:
        return [f"{self.rounds % 3}-{n}" for n in range(WRITERS)]

    def _in_threads(self, mode: str) -> None:
        stores = [self.open(replication=mode) for _ in range(2)]  # as two processes: each has its own idea of the roles
        end = time.monotonic() + ROUND
        crew = [
            threading.Thread(
                target=lambda n=n, name=name: finish(
                    write(stores[n % 2], f"{self.rounds}.{name}", self.dice.random(), end, self.ledger.note)
                )
            )
            for n, name in enumerate(self._names())
        ]
        with self._clock():
            for writer in crew:
                writer.start()
            self._faults()
            for writer in crew:
                writer.join()
        for store in stores:
            store.close()

    def _in_tasks(self, mode: str) -> None:
        async def crew() -> None:
            primary, replica = self.primary.engine(True), self.replica.engine(True)
            async with await backtrail.aio.open(primary, replica=replica, replication=mode, **self.options) as store:
                end = time.monotonic() + ROUND
                writers = [
                    write(store, f"{self.rounds}.{name}", self.dice.random(), end, self.ledger.note)
                    for name in self._names()
                ]
                await asyncio.gather(asyncio.to_thread(self._faults), *writers)

        with self._clock():
            asyncio.run(crew())

    def _in_a_child(self, mode: str) -> None:
        """The writing process is killed, too: what it had acknowledged came through a pipe before."""
        seed = self.dice.randrange(1 << 30)
        names = self._names()

        def work(send: Callable[[bytes], None]) -> None:
            store = self.open(replication=mode)
            lock = threading.Lock()

            def note(entry: list[str]) -> None:
                with lock:
                    send(json.dumps(entry).encode() + b"\n")

            crew = [
                threading.Thread(
                    target=lambda n=n, name=name: finish(
                        write(store, f"{self.rounds}.{name}", seed + n, time.monotonic() + 30, note)
                    )
                )
                for n, name in enumerate(names)
            ]
            for writer in crew:
                writer.start()
            for writer in crew:
                writer.join()

        child = Child(work)
        sent = b""
        while sent.count(b"\n") < 2 * WRITERS and (more := child.read(1)):
            sent += more
        self._faults()
        sent += child.kill()
        for line in sent.split(b"\n")[:-1]:
            self.ledger.note(json.loads(line))

    def settle(self, mode: str) -> None:
        """A new process opens the pair; in the end the primary is active and nothing is missing anywhere."""
        end = time.monotonic() + 30
        while True:
            store = None
            try:
                store = self.open(replication=mode)
                while True:
                    status = store.catch_up()
                    well = status.primary.healthy and status.replica.healthy
                    well &= status.spool is None or not status.spool.records
                    if well and status.active == "primary" and not status.behind and not status.lag_records:
                        return
                    assert time.monotonic() < end, status
                    time.sleep(0.01)
            except backtrail.Unavailable:
                assert time.monotonic() < end
                time.sleep(0.05)
            finally:
                if store is not None:
                    store.close()

    def check(self) -> None:
        """Both sides alone: equal, complete, and without what was deleted."""
        with self.primary.alone() as one, self.replica.alone() as two:
            heads = one.threads()
            assert heads == two.threads()
            names = {info.id for info in heads}
            returned = names & self.ledger.deleted
            assert not returned, [info for info in heads if info.id in returned]
            known: dict[str, set[str]] = {}
            for name in names:
                here, there = one.thread(name), two.thread(name)
                history = here.history(all=True)
                assert history == there.history(all=True)
                known[name] = {checkpoint.id for checkpoint in history}
                assert here.load() == there.load()
            gone = self.ledger.deleted | self.ledger.doubtful
            for number, (id, (thread, token)) in enumerate(self.ledger.saves.items()):
                if thread in gone:
                    continue
                assert id in known.get(thread, ()) or any(
                    id in ids for name, ids in known.items() if name.startswith(f"{thread}#diverged-")
                ), f"{thread} lost {id} ({token})"
                if number % 29 == 0:  # equal histories have equal ids: a sample of the states is enough
                    name = next(n for n in (thread, *known) if id in known.get(n, ()) and n.startswith(thread))
                    assert token in one.thread(name).load(id)["messages"]
                    assert token in two.thread(name).load(id)["messages"]
            assert not one.verify().problems
            assert not two.verify().problems


@pytest.fixture
def make_side(
    own_redis: Callable[..., RedisServer],
    own_postgres: Callable[..., PostgresServer],
    proxy_to: Callable[[int], Proxy],
    tmp_path: Path,
) -> Callable[[str], Side]:
    def make(kind: str) -> Side:
        if kind.startswith("sqlite"):
            return File(lambda: SQLiteEngine(tmp_path / f"{kind}.db", durability="normal"))
        if kind.startswith("jsonl"):
            return File(lambda: JSONLEngine(tmp_path / kind, durability="normal"))
        if kind == "memory":
            return File(partial(_itself, Lasting()))
        server = own_redis() if kind == "redis" else own_postgres("-c", "fsync=off")
        return Machine(server, proxy_to(server.port))

    return make


def _itself(engine: Engine) -> Engine:
    return engine
