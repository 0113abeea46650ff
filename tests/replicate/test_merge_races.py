"""Others that come in between while two sides are merged: nothing is taken back, lost or left behind."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit, Drop, Engine
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.history.replication import MergeCodec
from backtrail.replicate.head_comparison import differing
from backtrail.replicate.lineage_copy import free_all
from backtrail.replicate.merge import merge
from fix_flaky import Flaky
from fix_generations import Sides

NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


class Crossed(Flaky):
    """Others come in between: `before` and `after` say what they do next to the next call of a method."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    async def commit(self, commit: Commit) -> None:
        if "commit" in self.before and any(swap.thread == self.before["commit"][0] for swap in commit.swaps):
            self.before.pop("commit")[1]()
        await Flaky.commit(self, commit)  # type: ignore[misc]  # it is made from a list of names

    async def drop(self, drop: Drop) -> None:
        if "drop" in self.before:
            self.before.pop("drop")()
        await Flaky.drop(self, drop)  # type: ignore[misc]

    async def steps(self, *args: Any, **options: Any) -> Any:
        found = await self.engine.steps(*args, **options)
        if "steps" in self.after:
            self.after.pop("steps")()
        return found


def test_what_is_said_on_both_sides_during_a_merge_is_not_taken_back() -> None:
    sides = MemoryEngine(), MemoryEngine()
    follower = Flaky(sides[1])
    store = backtrail.open(Flaky(sides[0]), replica=follower, **NEVER)
    saved = store.thread("t").save({"n": 1})
    follower.up = False
    store.thread("t").save({"n": 2})
    follower.up = True
    active = Crossed(sides[0])
    active.after["steps"] = lambda: store.thread("t").annotate(saved.id, label="said meanwhile")
    context: Any = store._core.context
    finish(merge(active, sides[1], "t", MergeCodec(context), generation=1))
    assert not active.after
    assert [backtrail.open(side).thread("t").get(saved.id).label for side in sides] == ["said meanwhile"] * 2


@pytest.mark.usefixtures("many_rows")
def test_what_came_from_the_follower_is_there_in_the_end_although_another_process_had_it_swept() -> None:
    """Rows come before their head. Until that is there, they look like garbage to a sweep."""
    primary, replica = Flaky(MemoryEngine()), Crossed(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", **NEVER)
    store.thread("other").save({"n": 0})
    store.catch_up()
    replica.up = False
    lost = [store.thread("t").save({"n": n}) for n in range(3)]
    store.catch_up()
    primary.up, replica.up = False, True
    store.thread("t").save({"n": 3})
    branch = finish(primary.engine.branches("t"))[0].id
    found: list[int] = []

    def swept() -> None:
        found.append(len(finish(replica.engine.steps("t", branch, 0, 9))))
        heads = [(head.thread, head.key) for head in finish(replica.engine.heads("t"))]
        finish(replica.engine.drop(Drop("t", heads, branches=[branch])))

    replica.before["commit"] = ("t#diverged-1", swept)
    primary.up = True
    while (status := store.catch_up()).behind or not status.primary.healthy:
        assert status.generation == 2
    assert found == [2]  # the last one comes with the head
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert not alone.verify().problems
        assert [one.id for one in alone.thread("t#diverged-1").history()] == [one.id for one in lost]
        assert alone.thread("t#diverged-1").load() == {"n": 2}
        assert alone.thread("t").load() == {"n": 3}


@pytest.mark.parametrize("error", [Refused("t", "moved"), backtrail.Unavailable("cut")])
def test_a_thread_that_was_made_twice_goes_from_one_side_also_if_that_takes_two_attempts(error: Exception) -> None:
    primary, replica = Crossed(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, **NEVER)
    store.thread("other").save({"n": 0})
    thread = store.thread("t")
    primary.lose_answers = 1
    thread.save({"n": 1})
    assert store.status().active == "replica"
    thread.save({"n": 2})

    def refuse() -> None:
        raise error

    primary.before["drop"] = refuse
    primary.up = True
    while (status := store.catch_up()).behind or not status.primary.healthy:
        assert status.diverged == 0
    assert not primary.before
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert not alone.verify().problems
        assert [checkpoint.step for checkpoint in alone.thread("t").history(all=True)] == [1, 2]
        assert finish(side.engine.stats())["rows"] == 3


class SweptBefore(Flaky):
    """All rows of the lineage are freed right before a commit that makes the first thread; `dies`: of which the
    answer is lost, and all that comes after it."""

    def __init__(self, engine: Engine, dies: bool) -> None:
        super().__init__(engine)
        self.dies, self.swept = dies, False

    async def commit(self, commit: Commit) -> None:
        if self.swept and self.dies:
            raise backtrail.Unavailable("the process died, because a test says so")
        if not self.swept and any(swap.new is not None for swap in commit.swaps):
            self.swept = True
            await free_all(self.engine, commit.lineage)
        await self.engine.commit(commit)
        if self.swept and self.dies:
            raise backtrail.Unavailable("the process died, because a test says so")


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("swept", ["target", "source"])
def test_a_fork_whose_rows_are_freed_on_the_other_side_while_it_comes_is_whole_in_the_end(
    swept: str, dies: bool
) -> None:
    """A sweep of a lineage without threads cannot know that a merge needs its rows."""
    sides = Sides()
    other = sides.source if swept == "target" else sides.target
    sides.thread(sides.target).append("messages", ["one"])
    sides.merge()
    sides.thread(other).fork("f")
    sides.delete(other)
    sides.delete(getattr(sides, swept))
    crossed = SweptBefore(getattr(sides, swept), dies)
    with contextlib.suppress(backtrail.Unavailable):
        sides.merge(2, "t", None, *((crossed, other) if swept == "target" else (other, crossed)))
    assert crossed.swept
    if dies:
        assert finish(differing(sides.target, sides.source)) == ["t"]
        sides.merge(2)
    assert sides.equal() == {"f": {"messages": ["one"]}}


def test_a_save_whose_follower_is_in_a_newer_generation_by_the_time_it_has_caught_up_is_made_there() -> None:
    sides = MemoryEngine(), MemoryEngine()
    (seen, away), (primary, replica) = (Flaky(sides[0]), Flaky(sides[1])), (Flaky(sides[0]), Crossed(sides[1]))
    other = backtrail.open(seen, replica=away, **NEVER)
    store = backtrail.open(primary, replica=replica, **NEVER)
    store.threads()
    other.threads()
    away.up = False
    other.thread("t").save({"n": 1})  # so the next save is not simply repeated on the replica

    def switch() -> None:
        seen.up, away.up = False, True
        other.thread("t").save({"n": 3})

    # The first commit that reaches the replica is refused; the roles change before the second, which brings both saves.
    replica.before["commit"] = ("t", lambda: replica.before.update(commit=("t", switch)))
    saved = store.thread("t").save({"n": 2})
    assert store.status().active == "replica"
    assert saved in backtrail.open(sides[1]).thread("t").history()
