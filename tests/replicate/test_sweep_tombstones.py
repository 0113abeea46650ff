"""Swept rows stay swept on both sides, even if one of them was unreachable, or behind, during the sweep."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Drop
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate import sweep_tombstones
from backtrail.testing import sample_records
from fix_pairs import Pair

LONG = "text that is long enough to be a blob " * 100
KEEP = backtrail.Retention(keep_last=2)


def steps(store: backtrail.Store, thread: str = "t") -> list[int]:
    return [checkpoint.step for checkpoint in store.thread(thread).history(all=True)]


def both(pair: Pair) -> list[list[int]]:
    return [steps(pair.alone(side)) for side in (pair.primary, pair.replica)]


def figures(pair: Pair) -> list[tuple[int, int]]:
    found = []
    for side in (pair.primary, pair.replica):
        stats = finish(side.engine.stats())
        found.append((stats["rows"], stats["blobs"]))
    return found


def settled(pair: Pair, store: Any) -> Any:
    return pair.until(store, lambda status: status.replica.healthy and not status.behind and not status.lag_records)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("meanwhile", ["idle", "saved to", "rewound"])
def test_what_was_pruned_while_the_replica_was_away_does_not_come_back_from_it(
    pair: Pair, mode: str, meanwhile: str
) -> None:
    store = pair.open(replication=mode)
    thread = store.thread("t")
    for n in range(6):
        thread.save({"n": n, "big": f"{n} {LONG}"})
    settled(pair, store)
    pair.replica.up = False
    if meanwhile == "saved to":
        thread.save({"n": 6})
    elif meanwhile == "rewound":
        thread.rewind(4)
    kept = [thread.step - 1, thread.step] if meanwhile != "rewound" else [3, 4, 5, 6]
    assert store.prune(KEEP).checkpoints
    assert steps(pair.alone(pair.primary)) == kept
    pair.replica.up = True
    assert settled(pair, store).diverged == 0
    assert both(pair) == [kept, kept]
    pair.until(store, lambda _: len(set(figures(pair))) == 1)
    pair.equal()
    assert finish(sweep_tombstones.lineages(pair.primary.engine)) == set()
    assert not store.verify().problems


def test_what_was_pruned_in_async_mode_does_not_come_back_from_a_replica_that_was_on_its_way(pair: Pair) -> None:
    store = pair.open(replication="async", health_every=60.0)
    thread = store.thread("t")
    for n in range(20):
        thread.save({"n": n, "big": f"{n} {LONG}"})
    store.prune(KEEP)  # most of it has not been shipped yet
    assert settled(pair, store).diverged == 0
    assert both(pair) == [[19, 20], [19, 20]]
    pair.equal()


def test_a_thread_that_was_idle_since_an_older_generation_stays_pruned(pair: Pair) -> None:
    store = pair.open()
    for n in range(6):
        store.thread("t").save({"n": n})
    pair.primary.up = False
    store.thread("other").save({"n": 1})
    pair.primary.up = True
    assert pair.until(store, lambda status: status.active == "primary" and not status.behind).generation == 3
    pair.replica.up = False
    store.prune(KEEP)
    pair.replica.up = True
    assert settled(pair, store).diverged == 0
    assert both(pair) == [[5, 6], [5, 6]]
    pair.equal()


def test_what_lost_can_be_read_although_what_it_builds_on_was_swept(pair: Pair) -> None:
    store = pair.open(replication="async", health_every=30.0, failback_after=0.05)
    thread = store.thread("t")
    for n in range(4):
        thread.append("messages", [n, LONG])
    store.catch_up()
    pair.replica.up = False
    unshipped = thread.append("messages", ["only the primary has this"])
    pair.until(store, lambda status: not status.replica.healthy and not status.lag_records)
    pair.primary.up, pair.replica.up = False, True
    thread.save({"messages": ["all anew"]}, expect=thread.head)
    thread.save({"messages": ["all anew", "and more"]})
    store.prune(backtrail.Retention(keep_last=1))
    pair.primary.up = True
    pair.until(store, lambda status: status.active == "primary" and not status.behind)
    assert thread.load() == {"messages": ["all anew", "and more"]}
    for side in (pair.primary, pair.replica):
        messages = pair.alone(side).thread("t").load(unshipped.id)["messages"]
        assert messages == [0, LONG, 1, LONG, 2, LONG, 3, LONG, "only the primary has this"]
    pair.equal()
    assert not store.verify().problems


def test_a_process_that_finds_stones_sweeps_the_other_side(pair: Pair) -> None:
    store = pair.open(health_every=60.0)
    for n in range(6):
        store.thread("t").save({"n": n})
    store.catch_up()
    pair.replica.up = False
    store.prune(KEEP)
    pair.replica.up = True
    # It is killed; and the next one finds the heads as if nothing had happened.
    again = pair.open(health_every=60.0)
    assert settled(pair, again).diverged == 0
    assert both(pair) == [[5, 6], [5, 6]]
    assert finish(sweep_tombstones.lineages(pair.primary.engine)) == set()


def test_stones_name_everything_and_never_what_is_there_again() -> None:
    side, other = MemoryEngine(), MemoryEngine()
    own = sample_records.branch("t")
    for engine in (side, other):
        finish(engine.commit(sample_records.first(own, 200)))
    head = finish(side.head("t"))
    assert head is not None
    drop = Drop("t", [("t", head.key)], rows=[(own.id, n) for n in range(1, 150)], bodies=[(own.id, 150)])
    finish(sweep_tombstones.write(side, drop))
    finish(sweep_tombstones.write(side, drop))  # twice is no harm
    found = finish(sweep_tombstones.read(side, "t"))
    assert len(found.rows) == 149
    assert (own.id, 7) in found
    assert (own.id, 150) not in found
    assert finish(sweep_tombstones.read(side, "another")).rows == set()
    assert finish(sweep_tombstones.lineages(side)) == {"t"}
    finish(side.drop(Drop("t", [("t", head.key)], rows=[(own.id, n) for n in range(1, 100)])))
    finish(sweep_tombstones.apply(side, other, "t", found, [head]))
    assert not finish(sweep_tombstones.read(side, "t"))
    assert finish(sweep_tombstones.lineages(side)) == set()
    left = [step.step for step in finish(other.steps("t", own.id, 0, 1000))]
    assert left == list(range(100, 201))
    row = finish(other.row("t", own.id, 150))
    assert row is not None
    assert row.root


def test_a_stone_that_is_left_while_others_are_taken_away_is_not_forgotten() -> None:
    side, other = MemoryEngine(), MemoryEngine()
    own = sample_records.branch("t")
    for engine in (side, other):
        finish(engine.commit(sample_records.first(own, 9)))
    head = finish(side.head("t"))
    assert head is not None
    expect = [("t", head.key)]
    finish(sweep_tombstones.write(side, Drop("t", expect, rows=[(own.id, 1)])))
    seen = finish(sweep_tombstones.read(side, "t"))
    finish(sweep_tombstones.write(side, Drop("t", expect, rows=[(own.id, 2)])))  # by another process
    finish(side.drop(Drop("t", expect, rows=[(own.id, 1), (own.id, 2)])))
    finish(sweep_tombstones.apply(side, other, "t", seen, [head]))
    assert finish(sweep_tombstones.read(side, "t")).rows == {(own.id, 2)}
    finish(sweep_tombstones.apply(side, other, "t", finish(sweep_tombstones.read(side, "t")), [head]))
    assert not finish(sweep_tombstones.read(side, "t"))
    assert [step.step for step in finish(other.steps("t", own.id, 0, 99))] == list(range(3, 10))
