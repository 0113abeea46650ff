"""A save to a spool, and one right after it, builds on what is known: of the spool, of a side, or of this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.history.replication import MergeCodec
from backtrail.replicate import concurrency
from backtrail.replicate.spool import Spool
from backtrail.replicate.spool_delivery import deliver
from fix_flaky import Flaky
from fix_pairs import Pair

LONG = "text that is long enough to be kept in pieces " * 8
NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


def back(pair: Pair) -> None:
    pair.primary.up = pair.replica.up = True


class Unsteady(Flaky):
    """Gives no answer to the next so many questions where a thread stands."""

    silent = 0

    async def tip(self, thread: str) -> Any:
        if self.silent and self.up:
            self.silent -= 1
            raise backtrail.Unavailable("no answer, because a test says so")
        return await self.engine.tip(thread)


def test_a_save_that_looks_on_two_sides_while_they_come_and_go_finds_no_damage(tmp_path: Path) -> None:
    """It builds on a row of the side that is away, and reads from the other one, which lacks that."""
    primary, replica = Flaky(MemoryEngine()), Unsteady(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", ["both have this"])
    store.catch_up()
    replica.up = False
    unshipped = thread.append("messages", [LONG])
    primary.up = False
    store.thread("other").append("messages", [1])
    assert store.status().spool.adrift  # type: ignore[union-attr]
    replica.up, replica.silent = True, 1
    saved = store.thread("t").save({"messages": ["both have this", "and this is new"]})
    assert replica.silent == 0
    assert thread.load() == {"messages": ["both have this", "and this is new"]}
    primary.up = True
    while store.catch_up().behind:
        assert store.status().primary.healthy
    assert [checkpoint.id for checkpoint in thread.history()][-1] == saved.id
    assert store.thread("t#diverged-1").head.id == unshipped.id
    assert store.thread("t#diverged-1").load() == {"messages": ["both have this", LONG]}
    assert not store.verify().problems
    store.close()


def test_a_remembered_tip_that_is_old_is_not_damage_however_often_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of one program share what they remember: one may put back what another has just found to be old."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", **NEVER)
    store.thread("t").append("messages", ["both have this"])
    store.catch_up()
    replica.up, tried = False, len(replica.calls)
    store.thread("t").append("messages", [LONG])
    end = time.monotonic() + 20
    while len(replica.calls) == tried:  # or it would be delivered below, when the replica is back
        assert time.monotonic() < end
        time.sleep(0.005)
    old = store._core.context.caches.tips.peek("t")
    primary.up, replica.up = False, True
    assert store.thread("t").load() == {"messages": ["both have this"]}
    monkeypatch.setattr(store._core.context.caches.tips, "take", lambda thread: old)
    store.thread("t").save({"messages": ["both have this", "new"]})
    assert store.thread("t").load() == {"messages": ["both have this", "new"]}
    store.close()


def test_what_waits_in_the_spool_comes_before_what_is_saved_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not be delivered, because it builds on what only the primary has. When both are back another process
    begins to deliver it, and is not done when this one saves more."""
    monkeypatch.setattr(concurrency.Background, "wake", lambda _: None)  # nobody else delivers it
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", spool=tmp_path / "spool", **NEVER)
    store.thread("other").append("messages", [0])
    store.catch_up()
    thread = store.thread("t")
    replica.up = False
    thread.append("messages", [1])
    primary.up = False
    for n in (2, 3, 4):
        thread.append("messages", [n])
    replica.up = True
    assert store.catch_up().spool.records == 3  # type: ignore[union-attr]
    primary.up = True
    other = backtrail.open(Flaky(primary.engine), replica=Flaky(replica.engine), **NEVER)
    while other.catch_up().behind:
        assert other.status().primary.healthy
    spool = Spool.open(tmp_path / "spool", True)
    deliver_to = Flaky(replica.engine)
    deliver_to.lose_answers = 1
    with pytest.raises(backtrail.Unavailable):
        finish(deliver(spool, "t", [deliver_to], MergeCodec(store._core.context), 2))
    store.thread("t").append("messages", [5])
    assert thread.load() == {"messages": [1, 2, 3, 4, 5]}
    while (status := store.catch_up()).behind or status.spool.records:  # type: ignore[union-attr]
        assert status.primary.healthy
    assert status.diverged == 0
    for side in (primary, replica):
        assert backtrail.open(side.engine).thread("t").load() == {"messages": [1, 2, 3, 4, 5]}
        assert not backtrail.open(side.engine).verify().problems
    store.close()


@pytest.mark.parametrize("namespace", [None, "acme"])
@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["open", "sealed"])
def test_saves_whose_base_others_freed_are_kept_in_sealed_stores_and_namespaces(
    tmp_path: Path, key: bytes | None, namespace: str | None
) -> None:
    engines = MemoryEngine(), MemoryEngine()
    sides = [Flaky(engine) for engine in engines]
    options: dict[str, Any] = {"key": key, "namespace": namespace, **NEVER}
    store = backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **options)
    neighbour = backtrail.open(sides[0], replica=sides[1], namespace="neighbour", key=key, **NEVER)
    for each in (store, neighbour):
        each.thread("t").append("messages", [LONG])
    sides[0].up = sides[1].up = False
    saved = [store.thread("t").append("messages", [message]) for message in ("two", LONG * 2, "four")]
    store.thread("t").annotate(saved[2].id, label="said")
    other = backtrail.open(Flaky(engines[0]), replica=Flaky(engines[1]), **options)
    other.thread("t").delete()
    other.compact()
    if key is not None:
        options["key"] = bytes(reversed(key))
        other.rekey(options["key"])
    assert other.stats()["rows"] == 0
    sides[0].up = sides[1].up = True
    while (status := store.catch_up()).behind or status.spool.records or not status.replica.healthy:  # type: ignore[union-attr]
        assert status.generation < 9
    for engine in engines:
        alone = backtrail.open(engine, key=options["key"], namespace=namespace)
        assert [info.id for info in alone.threads()] == ["t#diverged-1"]
        kept = alone.thread("t#diverged-1")
        assert [(one.id, one.label) for one in kept.history(all=True)] == [
            (saved[0].id, None),
            (saved[1].id, None),
            (saved[2].id, "said"),
        ]
        assert kept.load() == {"messages": ["two", LONG * 2, "four"]}
        assert not alone.verify().problems
        beside = backtrail.open(engine, key=key, namespace="neighbour")
        assert beside.thread("t").load() == {"messages": [LONG]}
    store.close()


@pytest.mark.parametrize("what", ["append", "save"])
def test_a_fork_that_was_just_made_can_be_saved_to_while_both_sides_are_away(tmp_path: Path, what: str) -> None:
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, spool=tmp_path / "spool", **NEVER)
    store.thread("t").append("messages", [LONG])
    store.thread("t").append("messages", ["two"])
    fork = store.thread("t").fork("f")
    primary.up = replica.up = False
    if what == "append":
        fork.append("messages", ["three"])
    else:
        fork.save({"messages": ["three"]})
    assert store.status().spool.records == 1  # type: ignore[union-attr]
    primary.up = replica.up = True
    while (status := store.catch_up()).behind or status.spool.records:  # type: ignore[union-attr]
        assert status.primary.healthy
    assert status.diverged == 0
    expected = [LONG, "two", "three"] if what == "append" else ["three"]
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert alone.thread("f").load() == {"messages": expected}
        assert alone.thread("t").load() == {"messages": [LONG, "two"]}
        assert not alone.verify().problems
    store.close()


class GoneWhenRead(Flaky):
    """Goes away when a payload is read, once it is `armed`."""

    armed = False

    async def payloads(self, *args: Any) -> Any:
        if self.armed:
            self.up = False
            raise backtrail.Unavailable("the store went away, because a test took it away")
        return await self.engine.payloads(*args)


def test_a_save_that_reached_a_side_and_is_then_spooled_as_a_whole_is_made_once(tmp_path: Path) -> None:
    """Its answer was lost; the other side took over, and went away when the save was compared with what is there."""
    primary, replica = Flaky(MemoryEngine()), GoneWhenRead(MemoryEngine())
    store = backtrail.open(primary, replica=replica, spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.save({"messages": [LONG]})
    primary.lose_answers, replica.armed = 1, True
    thread.save({"messages": [LONG, LONG], "n": 1})
    assert store.status().spool.records == 1  # type: ignore[union-attr]
    primary.up = replica.up = True
    replica.armed = False
    while (status := store.catch_up()).behind or status.spool.records:  # type: ignore[union-attr]
        assert status.primary.healthy
    assert status.diverged == 0
    assert thread.load() == {"messages": [LONG, LONG], "n": 1}
    assert len(thread.history(all=True)) == 2
    assert not store.verify().problems
    store.close()


def test_a_save_that_another_of_its_process_has_overtaken_is_planned_again_before_it_is_spooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both continue the same branch. If both sides go away before the second commit, it may not take the step that the
    first one has: no side could have both."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    engine: Any = store._core.context.engine
    commit = engine.commit

    async def overtaken(planned: Any) -> None:
        monkeypatch.setattr(engine, "commit", commit)
        store.thread("t").append("messages", ["two"])
        primary.up = replica.up = False
        await commit(planned)

    monkeypatch.setattr(engine, "commit", overtaken)
    thread.append("messages", ["three"])
    assert store.status().spool.records == 1  # type: ignore[union-attr]
    primary.up = replica.up = True
    for _ in range(3):
        status = store.catch_up()
    assert (status.spool.records, status.diverged) == (0, 0)  # type: ignore[union-attr]
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert alone.thread("t").load() == {"messages": ["one", "two", "three"]}
        assert not alone.verify().problems
    store.close()
