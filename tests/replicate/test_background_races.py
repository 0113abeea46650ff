"""Races between calls and the background work of a mirror: no change is overlooked, and none is made twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Commit, Engine
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.replicate import role_record
from backtrail.replicate.head_comparison import differing
from fix_flaky import Flaky
from fix_pairs import Pair

NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


class Gated(Flaky):
    """A blocking engine that lets a save wait, and whose closing waits for a test."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.free, self.reached, self.closed, self.may_close = (threading.Event() for _ in range(4))
        self.free.set()
        self.may_close.set()

    async def commit(self, commit: Commit) -> None:
        if commit.rows and not self.free.is_set():
            self.reached.set()
            self.free.wait()
        await self.engine.commit(commit)

    async def close(self) -> None:
        self.may_close.wait()
        await self.engine.close()
        self.closed.set()


def test_a_mirror_that_is_closed_during_a_save_does_not_change_sides(tmp_path: Path) -> None:
    primary, replica = (Gated(SQLiteEngine(tmp_path / name)) for name in ("a.db", "b.db"))
    store = backtrail.open(primary, replica=replica, **NEVER)
    thread = store.thread("t")
    thread.save({"n": 1})
    primary.free.clear()
    replica.may_close.clear()
    raised: list[BaseException] = []

    def save() -> None:
        try:
            thread.save({"n": 2})
        except backtrail.Unavailable as error:
            raised.append(error)

    saver, closer = threading.Thread(target=save), threading.Thread(target=store.close)
    saver.start()
    primary.reached.wait()
    closer.start()
    primary.closed.wait()
    primary.free.set()
    saver.join()  # while the replica is still open, and could take over
    replica.may_close.set()
    closer.join()
    assert "closed" in str(raised[0])
    for name in ("a.db", "b.db"):
        alone = SQLiteEngine(tmp_path / name)
        assert finish(role_record.read(alone)) == role_record.Role(1, "primary")
        finish(alone.close())


def test_a_change_that_happens_during_a_look_at_everything_is_looked_at_as_well(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pair.open(**NEVER)
    store.thread("t").save({"n": 1})
    store.catch_up()
    core = store.inner._core.context if pair.api != "blocking" else store._core.context
    following = core.engine.replicator

    async def nothing_differs(*_: Any) -> list[str]:
        following.look_soon()  # as a change of sides would
        return []

    monkeypatch.setattr("backtrail.replicate.replicator.differing", nothing_differs)
    store.catch_up()
    monkeypatch.undo()
    pair.primary.calls.clear()
    following.wake()
    pair.eventually(lambda: "threads" in pair.primary.calls)


def test_a_save_that_is_on_its_way_while_all_is_compared_leaves_nothing_to_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = (Gated(SQLiteEngine(tmp_path / name)) for name in ("a.db", "b.db"))
    store = backtrail.open(primary, replica=replica, **NEVER)
    thread = store.thread("t")
    thread.save({"n": 1})
    store.catch_up()
    replicator = store._core.context.engine.replicator  # type: ignore[attr-defined]
    seen: list[list[str]] = []

    async def arriving(*sides: Engine) -> list[str]:
        seen.append(await differing(*sides))
        replica.free.set()
        saving.join()
        return seen[-1]

    monkeypatch.setattr("backtrail.replicate.replicator.differing", arriving)
    replica.free.clear()
    saving = threading.Thread(target=thread.save, args=({"n": 2},))
    saving.start()
    replica.reached.wait()
    finish(replicator._compare_all(replicator._failover.standing))
    assert seen == [["t"]]
    assert replicator.outbox.behind == 0
    store.close()


def test_a_side_that_could_not_be_reached_is_not_well_because_it_answered_before(pair: Pair) -> None:
    store = pair.open(**NEVER)
    thread = store.thread("t")
    thread.save({"n": 1})
    store.catch_up()
    told: list[tuple[str, bool]] = []
    core = store.inner._core.context if pair.api != "blocking" else store._core.context
    mirror = core.engine
    mirror._announcer._callback = lambda status: told.append((status.active, status.primary.healthy))
    roles = mirror.failover
    asked = roles.health["primary"]  # the background asks, and gets its answer
    pair.primary.up = False
    thread.load()
    roles.note_answer("primary", asked)  # and only now comes to say so
    assert told == [("primary", False), ("replica", False)]
    assert not roles.is_healthy("primary")


def test_a_machine_that_was_just_started_looks_when_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    clock = SimpleNamespace(monotonic=lambda: 3.0, time=time.time)  # seconds since it was started
    monkeypatch.setattr("backtrail.replicate.replicator.time", clock)
    backtrail.open(sides[0].engine).thread("t").save({"n": 1})
    store = backtrail.open(sides[0], replica=sides[1], **NEVER)
    assert store.catch_up().behind == 0
    assert backtrail.open(sides[1].engine).thread("t").load() == {"n": 1}
    store.close()


def test_a_save_in_doubt_that_reaches_the_spool_after_the_others_were_delivered_does_not_wait_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    engine: Any = store._core.context.engine
    leave = engine._go_adrift

    def go_adrift_and_deliver(error: BaseException) -> None:
        leave(error)
        sides[0].up = sides[1].up = True
        finish(engine._deliver_spool())  # as the background may, in this moment

    monkeypatch.setattr(engine, "_go_adrift", go_adrift_and_deliver)
    sides[0].up = sides[1].up = False
    thread.append("messages", ["two"])
    end = time.monotonic() + 20
    while engine.status().spool.records:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert thread.load() == {"messages": ["one", "two"]}
    assert store.status().diverged == 0
    store.close()


class Busy(Flaky):
    """A side to which others write whenever this process reads rows of it."""

    act: Callable[[], object] = lambda: None

    async def steps(self, *args: Any, **options: Any) -> Any:
        found = await self.engine.steps(*args, **options)
        self.act()
        return found

    async def rows(self, *args: Any) -> Any:
        found = await self.engine.rows(*args)
        self.act()
        return found


def test_a_follower_that_missed_saves_gets_them_although_others_save_all_the_time() -> None:
    engines = MemoryEngine(), MemoryEngine()
    primary, replica = Busy(engines[0]), Flaky(engines[1])
    store = backtrail.open(primary, replica=replica, **NEVER)
    store.thread("t").append("messages", [0])
    away = Flaky(engines[1])
    other = backtrail.open(Flaky(engines[0]), replica=away, **NEVER)
    assert other.thread("t").load() == {"messages": [0]}
    away.up = replica.up = False
    store.thread("t").append("messages", [1])
    assert store.status().behind == 1
    replica.up = True
    saved: list[int] = []
    primary.act = lambda: (saved.append(len(saved)), other.thread("t").append("messages", ["meanwhile"]))
    status = store.catch_up()
    assert saved
    assert status.behind == 0
    assert backtrail.open(engines[1]).thread("t").load()["messages"][:2] == [0, 1]
    primary.act = lambda: None
    store.catch_up()
    assert backtrail.open(engines[1]).thread("t").load() == backtrail.open(engines[0]).thread("t").load()


def test_the_primary_is_active_again_although_others_save_all_the_time() -> None:
    """Two generations of a lineage can be merged only while nobody writes to it: at the latest in the pause that a
    failback makes."""
    engines = MemoryEngine(), MemoryEngine()
    primary, replica = Flaky(engines[0]), Busy(engines[1])
    store = backtrail.open(primary, replica=replica, health_every=0.05, failback_after=0.05)
    other = backtrail.open(Flaky(engines[0]), replica=Flaky(engines[1]), **NEVER)
    store.thread("t").append("messages", [0])
    primary.up = False
    store.thread("t").append("messages", [1])
    assert store.status().active == "replica"
    over, made = threading.Event(), threading.Event()
    saved: list[str] = []

    def write() -> None:
        while not over.is_set():
            saved.append(other.thread("t").append("messages", [len(saved)]).id)
            made.set()

    def wait_for_a_save() -> None:
        made.clear()
        made.wait(0.2)  # in the pause there is none

    writer = threading.Thread(target=write)
    writer.start()
    replica.act = wait_for_a_save
    primary.up = True
    end = time.monotonic() + 60
    while store.status().active == "replica":
        assert time.monotonic() < end, store.status()
        time.sleep(0.01)
    over.set()
    writer.join()
    replica.act = lambda: None
    while store.catch_up().behind:
        assert time.monotonic() < end
    for engine in engines:
        alone = backtrail.open(engine)
        assert {*saved} <= {one.id for info in alone.threads() for one in alone.thread(info.id).history(all=True)}
        assert not alone.verify().problems
    store.close()
