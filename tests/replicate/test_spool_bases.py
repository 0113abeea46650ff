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


def test_what_waits_in_the_spool_comes_before_what_is_saved_next(tmp_path: Path) -> None:
    """It could not be delivered, because it builds on what only the primary has. When both are back another process
    begins to deliver it, and is not done when this one saves more."""
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
        finish(deliver(spool, "t", deliver_to, [deliver_to], MergeCodec(store._core.context), 2))
    store.thread("t").append("messages", [5])
    assert thread.load() == {"messages": [1, 2, 3, 4, 5]}
    while (status := store.catch_up()).behind or status.spool.records:  # type: ignore[union-attr]
        assert status.primary.healthy
    assert status.diverged == 0
    for side in (primary, replica):
        assert backtrail.open(side.engine).thread("t").load() == {"messages": [1, 2, 3, 4, 5]}
        assert not backtrail.open(side.engine).verify().problems
    store.close()
