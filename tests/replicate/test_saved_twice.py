"""A repeated save is one save, on whichever side it was made: always under an id chosen by the caller, and during the
call under an id made by backtrail."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.encode.frame import Frames
from backtrail.engines.base import Commit, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.history.records import bump_version, start_branch
from backtrail.replicate.lineage_copy import new_row
from backtrail.replicate.spool import Spool
from fix_flaky import Flaky
from fix_pairs import Pair

LONG = "text that is long enough to be kept in pieces " * 8
NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


def chosen() -> str:
    return str(uuid.uuid4())


def home(pair: Pair, store: Any) -> Any:
    pair.primary.up = pair.replica.up = True
    return pair.until(store, lambda status: status.active == "primary" and not status.behind and not status.lag_records)


def settled(store: Any) -> Any:
    """Both sides are equal, and nothing waits anywhere; how it stands."""
    for _ in range(100):
        status = store.catch_up()
        if not status.behind and not (status.spool and status.spool.records):
            return status
    raise AssertionError(status)


def ids(store: Any, thread: str = "t") -> list[str]:
    return [checkpoint.id for checkpoint in store.thread(thread).history(all=True)]


def test_a_save_that_was_repeated_on_the_other_side_is_there_once(pair: Pair) -> None:
    store = pair.open()
    thread = store.thread("t")
    first, second, third = chosen(), chosen(), chosen()
    thread.save({"n": 1, "text": [LONG]}, id=first)
    pair.primary.lose_answers = 1
    thread.save({"n": 2, "text": [LONG, LONG]}, id=second)  # the primary has it, and so has the replica
    assert store.status().active == "replica"
    thread.save({"n": 3, "text": [LONG, LONG]}, id=third)
    assert home(pair, store).diverged == 0
    assert ids(store) == [first, second, third]
    assert thread.save({"n": 2}, id=second, expect=third).step == 2
    assert thread.load() == {"n": 3, "text": [LONG, LONG]}
    pair.equal()
    assert not store.verify().problems
    assert not pair.alone(pair.replica).verify().problems


def test_a_call_that_had_to_change_sides_saves_once(pair: Pair) -> None:
    store = pair.open()
    thread = store.thread("t")
    saved = [thread.append("text", [LONG])]
    pair.primary.lose_answers = 1
    saved.append(thread.append("text", ["the primary has it, and nobody knows"]))
    assert store.status().active == "replica"
    saved.append(thread.save({"text": [LONG], "n": 3}))
    assert home(pair, store).diverged == 0
    assert ids(store) == [checkpoint.id for checkpoint in saved]
    pair.equal()
    assert not store.verify().problems


def test_a_thread_whose_first_save_was_repeated_is_one_thread(pair: Pair) -> None:
    store = pair.open()
    store.thread("other").save({"n": 0})
    pair.primary.lose_answers = 1
    first, second = chosen(), chosen()
    store.thread("t").save({"n": 1}, id=first)
    store.thread("t").save({"n": 2}, id=second)
    assert home(pair, store).diverged == 0
    assert [info.id for info in store.threads()] == ["other", "t"]
    assert ids(store) == [first, second]
    pair.equal()
    assert not store.verify().problems


def test_what_stands_before_a_save_that_was_repeated_is_kept(pair: Pair) -> None:
    store = pair.open(replication="async", health_every=30.0, failback_after=0.05)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    store.catch_up()
    pair.replica.up = False
    unshipped = thread.append("messages", ["only the primary has this"])
    pair.until(store, lambda status: not status.replica.healthy and not status.lag_records)
    second = chosen()
    pair.replica.up = True
    pair.primary.lose_answers = 1
    thread.append("messages", ["two"], id=second)
    assert store.status().active == "replica"
    assert home(pair, store).diverged == 1
    assert thread.load()["messages"] == ["one", "two"]
    assert store.thread("t#diverged-1").load(unshipped.id)["messages"] == ["one", "only the primary has this"]
    for name in ("t", "t#diverged-1"):
        assert len(ids(store, name)) == len({*ids(store, name)})
    assert second in ids(store)
    pair.equal()
    assert not store.verify().problems


class Headless(Flaky):
    """Takes rows, and while `cut` moves no head of a thread."""

    cut = False

    async def commit(self, commit: Commit) -> None:
        if not self.up or (self.cut and any(swap.thread == "t" for swap in commit.swaps)):
            raise backtrail.Unavailable("the connection was cut, because a test says so")
        await Flaky.commit(self, commit)  # type: ignore[misc]  # it is made from a list of names


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize("again", [True, False])
def test_what_a_comparison_brought_before_it_was_cut_is_counted_and_named_when_it_loses(again: bool) -> None:
    """The replica has the rows, and its head does not know of them; then it takes over."""
    primary, replica = Flaky(MemoryEngine()), Headless(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", **NEVER)
    thread = store.thread("t")
    first = thread.append("messages", ["one"])
    store.catch_up()
    replica.up = False
    unshipped = [thread.append("messages", [f"only the primary has this: {n}"]) for n in range(3)]
    store.catch_up()
    replica.up = replica.cut = True
    store.catch_up()
    assert len(backtrail.open(replica.engine).thread("t").history()) == 1
    replica.cut = False
    primary.lose_answers = int(again)
    primary.up = again
    last = thread.append("messages", ["two"], id=chosen())
    assert store.status().active == "replica"
    primary.up = True
    assert settled(store).diverged == 1
    assert [checkpoint.id for checkpoint in thread.history()] == [first.id, last.id]
    assert {*ids(store)} == {first.id, last.id, *(checkpoint.id for checkpoint in unshipped)}
    kept = store.thread("t#diverged-1")
    found = [checkpoint.id for checkpoint in kept.history()]
    assert found[:4] == [first.id, *(checkpoint.id for checkpoint in unshipped)]
    assert found[4:] == ([last.id] if again else [])  # the repeated save is on top of them there
    assert kept.load(unshipped[-1].id)["messages"][-1] == "only the primary has this: 2"
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert not alone.verify().problems
        assert alone.thread("t").history(all=True) == thread.history(all=True)
        assert alone.thread("t#diverged-1").history(all=True) == kept.history(all=True)


@pytest.mark.usefixtures("many_rows")
def test_a_thread_whose_rows_a_comparison_brought_without_their_head_is_kept_under_another_name() -> None:
    """The replica takes over and makes a thread of the same name, with a save that is repeated. What came before that
    on the primary was not."""
    primary, replica = Flaky(MemoryEngine()), Headless(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", **NEVER)
    store.thread("other").append("messages", [0])
    store.catch_up()
    replica.up = False
    first = [store.thread("t").append("messages", [n]) for n in range(3)]
    store.catch_up()
    replica.up = replica.cut = True
    store.catch_up()
    assert finish(replica.engine.stats())["rows"] == 3  # the last one comes with its head
    replica.cut = False
    primary.lose_answers = 1
    second = store.thread("t").append("messages", ["two"], id=chosen())
    assert store.status().active == "replica"
    primary.up = True
    settled(store)
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert [info.id for info in alone.threads()] == ["other", "t", "t#diverged-1"]
        assert ids(alone) == [second.id]
        assert ids(alone, "t#diverged-1")[:3] == [checkpoint.id for checkpoint in first]
        assert alone.thread("t#diverged-1").load(first[-1].id) == {"messages": [0, 1, 2]}
        assert not alone.verify().problems


def test_of_two_that_are_one_save_each_side_may_take_the_other_away_and_one_stays() -> None:
    primary, replica = Headless(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", **{**NEVER, "max_failovers": 10})
    first = store.thread("t").append("messages", ["one"])
    store.catch_up()
    replica.up = False
    unshipped = store.thread("t").append("messages", ["only the primary has this"])
    store.catch_up()
    replica.up = True
    primary.lose_answers = 1
    second = store.thread("t").append("messages", ["two"])
    assert store.status().active == "replica"
    primary.up = primary.cut = True
    store.catch_up()  # the replica takes the primary's away, and the primary hears of no more than the rows
    primary.cut, replica.up = False, False
    third = store.thread("t").append("messages", ["three"])
    assert store.status().active == "primary"
    replica.up = True
    settled(store)
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        found = [first.id, unshipped.id, second.id, third.id]
        assert sorted(ids(alone)) == sorted(found)
        assert [checkpoint.id for checkpoint in alone.thread("t").history()] == found
        assert alone.thread("t").load()["messages"] == ["one", "only the primary has this", "two", "three"]
        assert not alone.verify().problems


def test_what_builds_on_one_of_two_that_are_one_save_is_delivered_when_the_other_stays(tmp_path: Path) -> None:
    """The spool has it, and nobody knows of that when the sides are compared."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    options = {**NEVER, "max_failovers": 10}
    store = backtrail.open(primary, replica=replica, spool=tmp_path / "spool", **options)
    thread = store.thread("t")
    saved = [thread.append("messages", ["one"])]
    primary.lose_answers = 1
    saved.append(thread.append("messages", ["two"]))
    assert store.status().active == "replica"
    replica.up = False
    saved.append(thread.append("messages", ["three"]))  # on the replica's "two"
    assert store.status().spool.records == 1  # type: ignore[union-attr]
    primary.up = True
    saved.append(store.thread("t").append("messages", ["four"]))  # on the primary's
    replica.up = True
    settled(store)
    for side in (primary, replica):
        alone = backtrail.open(side.engine)
        assert sorted(ids(alone)) == sorted(checkpoint.id for checkpoint in saved)
        assert alone.thread("t").load(saved[2].id)["messages"] == ["one", "two", "three"]
        assert not alone.verify().problems


def test_a_spooled_save_is_not_thought_to_be_made_because_a_row_without_a_head_has_its_id(tmp_path: Path) -> None:
    sides, store, second = spooled(tmp_path)
    spool = Spool.open(tmp_path / "spool", True)
    head = finish(spool.engine.head("t"))
    assert head is not None
    saved = new_row(head.branch, finish(spool.engine.rows("t", head.branch, head.step, head.step))[0])
    orphan = start_branch(Frames(), b"orphan".ljust(16), "t", "t", b"nobody".ljust(16))
    stray = saved._replace(branch=orphan.id, step=1)
    finish(sides[0].engine.commit(Commit("t", rows=[stray], branches=[orphan])))
    other = backtrail.open(Flaky(sides[0].engine), replica=Flaky(sides[1].engine), **NEVER)
    other.thread("t").append("messages", ["somebody else's"])
    assert landed(store, sides).diverged == 1
    assert store.thread("t#diverged-1").load(second)["messages"] == ["one", "two"]


class Refusing(Flaky):
    """Answers questions, and takes no save while `refusing`."""

    refusing = False

    async def commit(self, commit: Commit) -> None:
        if self.refusing or not self.up:
            raise backtrail.Unavailable("no save is taken, because a test says so")
        await self.engine.commit(commit)


def landed(store: backtrail.Store, sides: tuple[Refusing, Refusing]) -> Any:
    for side in sides:
        side.up, side.refusing = True, False
    return settled(store)


def spooled(folder: Path) -> tuple[tuple[Refusing, Refusing], backtrail.Store, str]:
    """Two sides that take no saves, the store over them, and the id of what is in its spool; "one" came before."""
    sides = Refusing(MemoryEngine()), Refusing(MemoryEngine())
    store = backtrail.open(sides[0], replica=sides[1], spool=folder / "spool", **NEVER)
    thread, second = store.thread("t"), chosen()
    thread.append("messages", ["one"])
    for side in sides:
        side.refusing = True
    thread.append("messages", ["two"], id=second)
    return sides, store, second


def test_a_spooled_save_that_others_have_made_is_not_made_again(tmp_path: Path) -> None:
    sides, store, second = spooled(tmp_path)
    thread = store.thread("t")
    assert store.status().spool.records == 1  # type: ignore[union-attr]
    other = backtrail.open(Flaky(sides[0].engine), replica=Flaky(sides[1].engine), **NEVER)
    other.thread("t").append("messages", ["somebody else's"])
    other.thread("t").append("messages", ["two"], id=second)  # its caller, who was not told of the first one
    assert landed(store, sides).diverged == 0
    assert thread.load()["messages"] == ["one", "somebody else's", "two"]
    assert len(ids(store)) == len({*ids(store)}) == 3
    assert not store.verify().problems
    assert backtrail.open(sides[1].engine).thread("t").history(all=True) == thread.history(all=True)


def test_what_builds_on_a_spooled_save_that_others_have_made_is_kept_beside_and_the_save_is_there_once(
    tmp_path: Path,
) -> None:
    sides, store, second = spooled(tmp_path)
    thread = store.thread("t")
    later = thread.append("messages", ["and more"])
    assert store.status().spool.records == 2  # type: ignore[union-attr]
    other = backtrail.open(Flaky(sides[0].engine), replica=Flaky(sides[1].engine), **NEVER)
    other.thread("t").append("messages", ["somebody else's"])
    other.thread("t").append("messages", ["two"], id=second)
    assert landed(store, sides).diverged == 1
    assert thread.load()["messages"] == ["one", "somebody else's", "two"]
    assert thread.load(second)["messages"] == ["one", "somebody else's", "two"]
    assert store.thread("t#diverged-1").load(later.id)["messages"] == ["one", "two", "and more"]
    assert len(ids(store)) == len({*ids(store)}) == 4
    for side in sides:
        alone = backtrail.open(side.engine)
        assert not alone.verify().problems
        assert alone.thread("t").history(all=True) == thread.history(all=True)


class Unsure(Flaky):
    """Once another process has been there, does not tell where a checkpoint is, so many times."""

    silent = 0
    visit: Any = None

    async def tip(self, thread: str) -> Any:
        if self.visit is not None:
            self.visit, visit = None, self.visit
            visit()
        return await self.engine.tip(thread)

    async def locate(self, *args: Any, **options: Any) -> Any:
        if self.silent:
            self.silent -= 1
            raise backtrail.Unavailable("no answer, because a test says so")
        return await self.engine.locate(*args, **options)


def test_a_save_whose_earlier_attempt_cannot_be_looked_up_is_not_made_on_top_of_it() -> None:
    primary, replica = Flaky(MemoryEngine()), Unsure(MemoryEngine())
    store = backtrail.open(primary, replica=replica, **NEVER)
    store.thread("t").append("messages", ["one"])
    other = backtrail.open(Flaky(primary.engine), replica=Flaky(replica.engine), **NEVER)
    primary.lose_answers = 1  # it is made on the primary, and not answered

    def visit() -> None:
        other.catch_up()  # then the replica gets it, too
        other.thread("t").append("messages", ["another"])

    replica.visit, replica.silent = visit, 1
    with pytest.raises(backtrail.Unavailable) as caught:
        store.thread("t").append("messages", ["two"])
    primary.up = True
    store.thread("t").append("messages", ["two"], id=caught.value.id)
    assert settled(store).diverged == 0
    assert store.thread("t").load() == {"messages": ["one", "two", "another"]}
    other.close()
    store.close()


class Leaving(Flaky):
    """Goes away right after it has told where a thread is."""

    leaves = False

    async def tip(self, thread: str) -> Any:
        found = await super().tip(thread)
        if self.leaves:
            self.up = self.leaves = False
        return found


class Visited(Flaky):
    """Is visited by another process right after it has told that it has no such checkpoint."""

    visit: Any = None

    async def locate(self, *args: Any, **options: Any) -> Any:
        found = await super().locate(*args, **options)
        if self.visit is not None and not found:
            self.visit, visit = None, self.visit
            visit()
        return found


def test_a_save_whose_earlier_attempt_is_looked_up_on_the_other_side_than_the_head_is_not_made_on_top_of_it() -> None:
    primary, replica = Leaving(MemoryEngine()), Visited(MemoryEngine())
    store = backtrail.open(primary, replica=replica, **NEVER)
    store.thread("t").append("messages", ["one"])
    primary.lose_answers, replica.up = 1, False
    with pytest.raises(backtrail.Unavailable) as caught:
        store.thread("t").append("messages", ["two"])
    primary.up = True
    far = Flaky(replica.engine)
    far.up = False
    other = backtrail.open(Flaky(primary.engine), replica=far, **NEVER)
    other.thread("t").append("messages", ["another"])
    replica.up = far.up = True
    primary.leaves, replica.visit = True, other.catch_up
    store.thread("t").append("messages", ["two"], id=caught.value.id)
    primary.up = True
    assert settled(store).diverged == 0
    assert store.thread("t").load() == {"messages": ["one", "two", "another"]}
    other.close()
    store.close()


def test_a_change_whose_head_was_read_in_an_earlier_generation_is_looked_at_again() -> None:
    """Whatever else it read may come from a side that was not equal yet."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, **NEVER)
    store.thread("t").append("messages", ["one"])
    mirror: Any = store._core.context.engine
    head = finish(mirror.head("t"))
    primary.up = False
    finish(mirror.ping())
    assert mirror.generation == 2
    commit = Commit("t", [Swap("t", head.key, bump_version(Frames(), 2, head, head.updated))])
    with pytest.raises(Refused, match="look again"):
        finish(mirror.commit(commit))
    assert finish(mirror.head("t")) == head
    finish(mirror.commit(commit))
    store.close()
