"""Cuts: a mirror that is played through a scenario while calls to its sides fail, and a checker of what it has then.

A cut is a call at which something happens: it fails before its work or after it, its side becomes unreachable until
the end, or another process saves something or makes the sides equal at that moment. Nothing runs in the background, so
a scenario makes the same calls every time, and a call can be named by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Engine
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.retry import RetryPolicy
from backtrail.engines.sqlite import SQLiteEngine
from fix_stores import Stepped

OWN_WAYS = ("away", "before", "after", "away after")
OTHERS = ("others save", "others compare")
Scenario = Callable[["World"], None]
OPTIONS: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0, "max_failovers": 1000}
NEVER = 0  # no call has this number
SETTLED = 60  # looks until both sides are one


class Calls:
    """The calls of both sides, counted; what happens at some of them, by their numbers."""

    def __init__(self, cuts: Mapping[int, str] | None = None) -> None:
        self.cuts = cuts or {}
        self.made = 0
        self.others: Callable[[str], None] = lambda _: None

    @property
    def with_others(self) -> bool:
        """Another process has a part in it."""
        return any(way in OTHERS for way in self.cuts.values())

    def next(self) -> str | None:
        self.made += 1
        return self.cuts.get(self.made)


class Side(Engine):
    """An engine that is cut when it is told to."""

    def __init__(self, engine: Engine, calls: Calls, awaiting: bool) -> None:
        self.engine, self.calls, self.awaiting = engine, calls, awaiting
        self.properties = msgspec.structs.replace(engine.properties, blocking=not awaiting)
        self.up, self.lose_answers = True, 0


def _passing(name: str) -> Any:
    async def call(self: Side, *args: Any, **options: Any) -> Any:
        if self.awaiting:
            await asyncio.sleep(0)
        way = self.calls.next() if name != "close" else None
        if way in OTHERS:
            self.calls.others(way)
            way = None
        self.up = self.up and way != "away"
        if (not self.up and name != "close") or way == "before":
            raise backtrail.Unavailable(f"cut before {name}, because a test says so")
        answer = await getattr(self.engine, name)(*args, **options)
        if name == "commit" and self.lose_answers:
            self.lose_answers -= 1
            way = "away after"
        self.up = self.up and way != "away after"
        if way is not None:
            raise backtrail.Unavailable(f"cut after {name}, because a test says so")
        return answer

    return call


for _name in Engine.__abstractmethods__:
    setattr(Side, _name, _passing(_name))
Side.__abstractmethods__ = frozenset()


class World:
    """Two sides, a store over them, and what it has acknowledged."""

    def __init__(self, calls: Calls, api: str, make: Callable[[], Engine] = MemoryEngine, **options: Any) -> None:
        self.engines = make(), make()
        self.primary, self.replica = (Side(engine, calls, api == "awaiting") for engine in self.engines)
        self.loop = asyncio.new_event_loop() if api == "awaiting" else None
        self.saves: dict[str, tuple[str, str]] = {}  # text -> thread, id
        self.labels: dict[str, str] = {}  # id -> label
        self.taken: dict[str, tuple[int, bool]] = {}  # id -> the generation that took it, and if it is surely there
        self.gone: set[tuple[str, str, bool]] = set()  # thread, id of what was deleted, and if with its thread
        self.pruned = False
        self.texts = 0
        self.store: Any = None
        self.other: backtrail.Store | None = None  # another process, for which nothing is ever cut
        if calls.with_others:
            one, two = (Side(engine, Calls(), awaiting=False) for engine in self.engines)
            self.other = backtrail.open(one, replica=two, **OPTIONS, replication=options.get("replication", "sync"))
            self.other.catch_up()
            calls.others = self._others
        while self.store is None:
            self.heal()
            with contextlib.suppress(backtrail.Unavailable):
                self.store = self._open(api, {**OPTIONS, **options})

    def _others(self, way: str) -> None:
        assert self.other is not None
        if way == "others compare":
            for _ in range(3):
                self.other.catch_up()
        else:
            self.texts += 1
            text = f"somebody else's {self.texts}"
            self.saves[text] = ("t", self.other.thread("t").append("messages", [text]).id)

    def _open(self, api: str, options: dict[str, Any]) -> Any:
        if self.loop is None:
            return backtrail.open(self.primary, replica=self.replica, **options)
        opening = backtrail.aio.open(self.primary, replica=self.replica, **options)
        return Stepped(self.loop.run_until_complete(opening), self.loop)

    def append(self, thread: str) -> str | None:
        """Append a text that occurs once; the checkpoint's id, if it was acknowledged."""
        self.texts += 1
        text = f"{thread}:{self.texts}"
        with contextlib.suppress(backtrail.Unavailable):
            saved: str = self.store.thread(thread).append("messages", [text]).id
            self.saves[text] = (thread, saved)
            self.taken[saved] = self._generation()
            return saved
        return None

    def _generation(self) -> tuple[int, bool]:
        status = self.store.status()
        return status.generation, status.spool is None or not (status.spool.adrift or status.spool.records)

    def delete_checkpoint(self, id: str | None) -> None:
        if id is not None:
            self._delete("t", id, [text for text, (_, saved) in self.saves.items() if saved == id])

    def delete_thread(self, thread: str) -> None:
        self._delete(thread, None, [text for text, (name, _) in self.saves.items() if name == thread])

    def _delete(self, thread: str, at: str | None, meant: list[str]) -> None:
        """What the side that did it had in this generation must stay away; what it may have had may be missing."""
        before = self._generation()
        try:
            self.store.thread(thread).delete(at)
        except (backtrail.Unavailable, backtrail.NotFound):  # a side may have done it
            before = (0, False)
        for text in meant:
            saved = self.saves.pop(text)[1]
            if self.taken.get(saved) == before == self._generation() and before[1]:
                self.gone.add((thread, saved, at is None))

    def label(self, id: str | None, label: str) -> None:
        with contextlib.suppress(backtrail.Unavailable, backtrail.NotFound):
            if id is not None:
                self.store.thread("t").annotate(id, label=label)
                self.labels[id] = label

    def prune(self) -> None:
        """From now on, saves may be missing."""
        self.pruned = True
        with contextlib.suppress(backtrail.Unavailable):
            self.store.prune(backtrail.Retention(keep_last=2))

    def fork(self) -> None:
        with contextlib.suppress(backtrail.Unavailable, backtrail.NotFound, backtrail.Conflict):
            self.store.thread("t").fork("fork")

    def catch_up(self) -> Any:
        with contextlib.suppress(backtrail.Unavailable):
            return self.store.catch_up()
        return None

    def heal(self) -> None:
        for side in (self.primary, self.replica):
            side.up, side.lose_answers = True, 0

    def settle(self) -> None:
        for _ in range(SETTLED):
            self.heal()
            statuses = [self.catch_up()]
            if self.other is not None:  # it looks, too, and both at what the other may have had to do
                statuses += [self.other.catch_up(), self.catch_up(), self.other.catch_up()]
            if all(map(_settled, statuses)):
                break
        else:
            raise AssertionError(statuses)

    def check(self) -> None:
        one, two = (backtrail.open(engine) for engine in self.engines)
        infos = one.threads()
        assert infos == two.threads()
        found: dict[str, list[backtrail.Checkpoint]] = {}
        for info in infos:
            found[info.id] = one.thread(info.id).history(all=True)
            assert found[info.id] == two.thread(info.id).history(all=True)
            assert (
                one.thread(info.id).load() == two.thread(info.id).load()
            )  # of the others, verify compares the digests
            parents = {checkpoint.parent_id for checkpoint in found[info.id]}
            for checkpoint in found[info.id]:
                if checkpoint.id not in parents:  # it has all that its parents have
                    state = one.thread(info.id).load(checkpoint.id)
                    assert len({*state["messages"]}) == len(state["messages"]), "a save was made twice"
            ids = [checkpoint.id for checkpoint in found[info.id]]
            assert len({*ids}) == len(ids)
        for text, (thread, id) in ({} if self.pruned else self.saves).items():
            names = [name for name in found if name == thread or name.startswith(f"{thread}#diverged-")]
            assert any(id == checkpoint.id for name in names for checkpoint in found[name]), f"{text} is lost"
        gone = {id for _, id, _ in self.gone}
        for thread, id, whole in self.gone:
            for name in [name for name in found if name == thread or name.startswith(f"{thread}#diverged-")]:
                ids = {checkpoint.id for checkpoint in found[name]}
                at_head = one.thread(name).head.id == id  # then it is not deleted
                # A save that the side which deleted the thread did not know is kept with what it builds on.
                assert id not in ids or at_head or (whole and ids - gone), (
                    f"{id} was deleted from {thread!r}: it is back in {name!r}"
                )
        for id, label in self.labels.items():
            assert label in {one.label for several in found.values() for one in several if one.id == id}
        assert not one.verify().problems
        assert not two.verify().problems

    def close(self) -> None:
        self.store.close()
        if self.loop is not None:
            self.loop.close()
        if self.other is not None:
            self.other.close()
        for engine in self.engines:
            finish(engine.close())


def _settled(status: Any) -> bool:
    """Nothing is left to do for a store."""
    if status is None or status.behind or status.lag_records or (status.spool and status.spool.records):
        return False
    return bool(status.primary.healthy and status.replica.healthy)


class Kind(NamedTuple):
    """A kind of mirror. `sides`: both are in memory, or SQLite files."""

    api: str
    replication: str
    spool: bool = False
    sides: str = "memory"

    def __str__(self) -> str:
        return f"{self.sides}-{self.api}-{self.replication}{'-spool' if self.spool else ''}"

    @property
    def ways(self) -> tuple[str, ...]:
        """Other processes are played by the same thread, which an event loop would not let them use."""
        return (*OWN_WAYS, *OTHERS) if self.api == "blocking" else OWN_WAYS


KINDS = [Kind("blocking", "sync"), Kind("blocking", "async", spool=True), Kind("awaiting", "sync")]
FILES = [kind._replace(sides="sqlite") for kind in KINDS]


def play(scenario: Scenario, kind: Kind, folder: Path, cuts: Mapping[int, str] | None = None) -> int:
    """Play a scenario with these cuts, and check; the number of calls that it made."""
    calls = Calls(cuts)
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"replication": kind.replication}
        if kind.spool or kind.sides == "sqlite":
            fresh = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        if kind.spool:
            options["spool"] = fresh / "spool"
        if kind.sides == "sqlite":
            names = iter(("primary.db", "replica.db"))
            options["make"] = lambda: SQLiteEngine(fresh / next(names), durability="normal")
        try:
            world = World(calls, kind.api, **options)
            stack.callback(world.close)
            scenario(world)
            world.settle()
            world.check()
        except BaseException as error:
            error.add_note(f"{scenario.__name__}, {kind}, cuts {cuts}")
            raise
    return calls.made


def cut_everywhere(scenario: Scenario, kind: Kind, folder: Path) -> None:
    """Each fault at each call."""
    for way in kind.ways:
        calls = play(scenario, kind, folder, {NEVER: way})
        for at in range(1, calls + 1):
            play(scenario, kind, folder, {at: way})


@pytest.fixture
def by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens by itself, and nothing is waited for."""
    monkeypatch.setattr("backtrail.replicate.concurrency.Background.wake", lambda _: None)
    monkeypatch.setattr("backtrail.replicate.limits.ROLE_CHANGE", RetryPolicy.seconds(0.03, pause=0.02))
    monkeypatch.setattr("backtrail.history.retry.RACES", RetryPolicy.seconds(1.0, at_least=8))
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # thousands of lines that nobody reads


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where flushing costs nothing; elsewhere, on the disk."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="backtrail-cuts-", dir="/dev/shm") as folder:
        yield Path(folder)
