"""Pruned checkpoints stay deleted on both sides, even if one of them was unreachable, or behind, during the prune.
Their rows are freed on both sides or on none."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Drop
from backtrail.engines.conflicts import Deferred, Refused
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from fix_flaky import Flaky
from fix_generations import Sides
from fix_pairs import Pair

LONG = "text that is long enough to be a blob " * 100
KEEP = backtrail.Retention(keep_last=2)
NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


def steps(store: backtrail.Store, thread: str = "t") -> list[int]:
    return [checkpoint.step for checkpoint in store.thread(thread).history(all=True)]


def both(pair: Pair) -> list[list[int]]:
    return [steps(pair.alone(side)) for side in (pair.primary, pair.replica)]


def figures(*sides: Flaky) -> list[tuple[int, int]]:
    found = []
    for side in sides:
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
    pair.until(store, lambda status: not status.replica.healthy)
    kept = [thread.step - 1, thread.step] if meanwhile != "rewound" else [3, 4, 5, 6]
    before = figures(pair.primary)
    pruned = store.prune(KEEP)
    assert pruned.checkpoints
    assert (pruned.rows, pruned.blobs) == (0, 0)  # the replica could not be told apart from one that never had them
    assert figures(pair.primary) == before
    assert steps(pair.alone(pair.primary)) == kept
    pair.replica.up = True
    assert settled(pair, store).diverged == 0
    assert both(pair) == [kept, kept]
    freed = store.prune(KEEP)
    assert freed.rows > 0
    assert freed.checkpoints == 0
    pair.equal()
    assert len(set(figures(pair.primary, pair.replica))) == 1
    assert figures(pair.primary) < before
    for side in (pair.primary, pair.replica):
        assert not pair.alone(side).verify().problems


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


def test_what_lost_can_be_read_although_what_it_builds_on_was_pruned(pair: Pair) -> None:
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
        messages = pair.alone(side).thread("t#diverged-1").load(unshipped.id)["messages"]
        assert messages == [0, LONG, 1, LONG, 2, LONG, 3, LONG, "only the primary has this"]
    pair.equal()
    assert not store.verify().problems


def test_a_process_that_prunes_later_frees_what_an_earlier_one_could_not(pair: Pair) -> None:
    store = pair.open(health_every=60.0)
    for n in range(6):
        store.thread("t").save({"n": n})
    store.catch_up()
    pair.replica.up = False
    store.prune(KEEP)
    pair.replica.up = True
    # It is killed; and the next one finds what it deleted and did not free.
    again = pair.open(health_every=60.0)
    assert settled(pair, again).diverged == 0
    assert both(pair) == [[5, 6], [5, 6]]
    again.prune(KEEP)
    assert figures(pair.primary, pair.replica) == [(3, 0), (3, 0)]  # of one, its light half: the next is chained to it
    pair.equal()


# -- a drop on a mirror ------------------------------------------------------------------------------------------------


class Mirrored:
    """A mirror whose sides note in which order they drop."""

    def __init__(self, **options: Any) -> None:
        self.order: list[str] = []
        order = self.order

        class Noting(Flaky):
            name = ""

            async def drop(self, drop: Drop) -> None:
                order.append(self.name)
                await Flaky.drop(self, drop)  # type: ignore[misc]  # it is made from a list of names

        self.primary, self.replica = Noting(MemoryEngine()), Noting(MemoryEngine())
        self.primary.name, self.replica.name = "primary", "replica"
        self.store = backtrail.open(self.primary, replica=self.replica, **{**NEVER, **options})
        self.thread = self.store.thread("t")
        for n in range(6):
            self.thread.save({"n": n})
        self.store.catch_up()

    def drop(self) -> None:
        """Free the first row of the thread."""
        engine: Any = self.store._core.context.engine
        head = finish(self.primary.engine.head("t"))
        assert head is not None
        finish(engine.drop(Drop("t", [("t", head.key)], rows=[(head.branch, 1)])))

    def rows(self) -> list[int]:
        return [rows for rows, _ in figures(self.primary, self.replica)]

    def bodies(self) -> list[list[tuple[int, bool]]]:
        """The rows of each side, and whether they have a body."""
        found = []
        for side in (self.primary, self.replica):
            branches = finish(side.engine.branches("t"))
            rows = [row for branch in branches for row in finish(side.engine.rows("t", branch.id, 0, 99))]
            found.append([(row.step, bool(row.root)) for row in rows])
        return found


def test_a_drop_frees_on_the_follower_first_and_then_on_the_active_side() -> None:
    mirrored = Mirrored()
    mirrored.drop()
    assert mirrored.order == ["replica", "primary"]
    assert mirrored.rows() == [5, 5]


def test_a_drop_that_the_follower_cannot_make_is_deferred_and_frees_nothing() -> None:
    mirrored = Mirrored()
    mirrored.replica.up = False
    with pytest.raises(Deferred):
        mirrored.drop()
    assert mirrored.rows() == [6, 6]
    mirrored.replica.up = True
    with pytest.raises(Deferred):  # nobody has seen yet that it is back
        mirrored.drop()
    assert mirrored.order == []
    mirrored.store.catch_up()
    mirrored.drop()
    assert mirrored.rows() == [5, 5]


def test_a_follower_that_is_behind_is_caught_up_before_a_drop() -> None:
    mirrored = Mirrored(replication="async")
    engine: Any = mirrored.store._core.context.engine
    engine.replicator.wake = lambda: None  # nothing is shipped by itself
    mirrored.thread.save({"n": 6})
    assert mirrored.rows() == [7, 6]
    mirrored.drop()
    assert mirrored.order == ["replica", "primary"]
    assert mirrored.rows() == [6, 6]


@pytest.mark.parametrize("dies_at", ["bodies", "rows"])
def test_a_prune_that_dies_when_only_the_follower_has_freed_is_finished_by_the_next(dies_at: str) -> None:
    mirrored = Mirrored()
    mirrored.thread.append("list", ["a"])
    mirrored.thread.append("list", ["b"])
    kept = mirrored.thread.load()
    drop_on_primary: Any = mirrored.primary.drop

    class Died(Exception):
        """The process is killed."""

    async def dies(drop: Drop) -> None:
        if getattr(drop, dies_at):
            raise Died
        await drop_on_primary(drop)

    mirrored.primary.drop = dies  # type: ignore[method-assign]
    with pytest.raises(Died):
        mirrored.store.prune(backtrail.Retention(keep_last=1))
    mirrored.primary.drop = drop_on_primary  # type: ignore[method-assign]
    one, two = mirrored.bodies()
    assert one != two
    mirrored.store.prune(backtrail.Retention(keep_last=1))
    one, two = mirrored.bodies()
    assert one == two == [(7, False), (8, True)]
    for side in (mirrored.primary, mirrored.replica):
        alone = backtrail.open(side.engine)
        assert alone.thread("t").load() == kept
        assert not alone.verify().problems


def test_a_prune_in_the_middle_of_which_the_active_side_is_lost_goes_on_when_it_is_back(pair: Pair) -> None:
    store = pair.open(**NEVER)
    for n in range(6):
        store.thread("t").save({"n": n})
    primary = pair.primary.engine
    real = primary.drop

    async def lost(_: Drop) -> None:
        raise backtrail.Unavailable("the connection was cut, because a test says so")

    primary.drop = lost  # type: ignore[method-assign]
    store.prune(KEEP)
    primary.drop = real  # type: ignore[method-assign]
    pair.until(store, lambda status: status.primary.healthy and not status.behind)
    assert both(pair) == [[5, 6], [5, 6]]
    store.prune(KEEP)
    assert figures(pair.primary, pair.replica) == [(3, 0), (3, 0)]
    pair.equal()


def test_a_sweep_that_was_planned_on_the_other_side_frees_nothing() -> None:
    """The side that it was planned on follows now, and has marks that the active side has not."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    one = backtrail.open(primary, replica=replica, **NEVER)
    thread = one.thread("t")
    first = thread.save({"n": 1})
    thread.save({"n": 2})
    replica.up = False
    thread.delete(first.id)
    [head] = finish(primary.engine.heads("t"))
    planned = Drop("t", [("t", head.key)], bodies=[(head.branch, 1)])
    primary.up, replica.up = False, True
    assert one.thread("t").load() == {"n": 2}
    primary.up = True
    mirror = one._core.context.engine
    finish(mirror.failover.learn())  # type: ignore[attr-defined]
    assert mirror.may_drop  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="look again"):
        finish(mirror.drop(planned))
    row = finish(primary.engine.row("t", head.branch, 1))
    assert row is not None and row.root and row.mark is not None
    one.close()


def test_a_lineage_without_threads_is_freed_on_both_sides_whatever_garbage_each_has() -> None:
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    one = backtrail.open(primary, replica=replica, **NEVER)
    one.thread("t").append("messages", [1])
    alone = Sides()
    alone.thread(replica.engine, 2).append("messages", ["only the replica has this branch"])
    alone.delete(replica.engine, 2)
    alone.delete(primary.engine, 1)
    [branch] = finish(primary.engine.branches("t"))
    finish(one._core.context.engine.drop(Drop("t", (), branches=[branch.id])))
    for side in (primary, replica):
        assert finish(side.engine.branches("t")) == []
        assert not backtrail.open(side.engine).verify().problems
    one.close()
