"""Delivering a spool: each save arrives once, whoever delivers it and however often, or stays in the spool."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit, Drop, Engine, Swap
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Corrupt, Unavailable
from backtrail.history.replication import MergeCodec
from backtrail.replicate.deleted_threads import write_tombstone
from backtrail.replicate.lineage_copy import free_all, new_row
from backtrail.replicate.spool import FILE, Spool
from backtrail.replicate.spool_delivery import Stranded, deliver
from fix_flaky import Flaky
from fix_generations import Lifetime, Sides

NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


class Adrift:
    """A mirror of which both sides are away after a first save to "t", and whose saves go to a spool."""

    def __init__(self, folder: Path, first: str = "one") -> None:
        self.sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
        self.active: MemoryEngine = self.sides[0].engine  # type: ignore[assignment]
        self.store = backtrail.open(self.sides[0], replica=self.sides[1], spool=folder, **NEVER)
        self.thread = self.store.thread("t")
        self.thread.append("messages", [first])
        self.sides[0].up = self.sides[1].up = False
        self.spool = Spool.open(folder, True)
        self.codec = MergeCodec(self.store._core.context)  # type: ignore[arg-type]

    def save(self, *messages: str) -> list[str]:
        """Spool these messages; the ids of their checkpoints."""
        return [self.thread.append("messages", [message]).id for message in messages]

    def deliver(
        self, active: Engine | None = None, lineage: str = "t", generation: int = 1, *, detach: bool = False
    ) -> list[tuple[str, str]]:
        side = active or self.active
        return finish(deliver(self.spool, lineage, [side], self.codec, generation, detach=detach)).diverged

    def alone(self) -> backtrail.Store:
        """What the active side has."""
        store = backtrail.open(self.active)
        assert not store.verify().problems
        return store

    def said(self, thread: str = "t") -> list[str]:
        messages: list[str] = self.alone().thread(thread).load()["messages"]
        return messages

    def elsewhere(self) -> Any:
        """The same thread for a process that reaches the active side."""
        return Sides().thread(self.active, 1)

    def left(self) -> int:
        return finish(self.spool.survey()).records


@pytest.fixture
def adrift(tmp_path: Path) -> Iterator[Adrift]:
    made = Adrift(tmp_path)
    yield made
    finish(made.spool.engine.close())


def test_saves_arrive_in_order_and_leave_the_spool(adrift: Adrift) -> None:
    ids = adrift.save("two", "three")
    assert adrift.deliver() == []
    assert adrift.said() == ["one", "two", "three"]
    assert [one.id for one in adrift.alone().thread("t").history(all=True)][1:] == ids
    assert adrift.left() == 0
    assert finish(adrift.spool.engine.branches("t")) == []


@pytest.mark.parametrize("rows", ["few", "many"])
def test_a_delivery_that_dies_after_any_change_is_finished_by_another_process(
    tmp_path: Path, rows: str, request: pytest.FixtureRequest
) -> None:
    if rows == "many":
        request.getfixturevalue("many_rows")
    died = 0
    for at in range(1, 20):
        adrift, process = Adrift(tmp_path / str(at)), Lifetime(at)
        ids = adrift.save("two", "three", "four")
        try:
            assert adrift.deliver(process.side(adrift.active)) == []
        except Unavailable:
            died += 1
        assert adrift.deliver() == []
        assert adrift.said() == ["one", "two", "three", "four"]
        assert [one.id for one in adrift.alone().thread("t").history(all=True)][1:] == ids
        assert adrift.left() == 0
        finish(adrift.spool.engine.close())
        if process.left > 0:
            break
    assert died >= 1


def test_a_save_that_was_delivered_in_a_new_generation_outlives_a_deletion_that_did_not_know_it(adrift: Adrift) -> None:
    thread, spooled, primary = adrift.store.thread("new"), adrift.spool.engine, adrift.active
    replica: MemoryEngine = adrift.sides[1].engine  # type: ignore[assignment]
    thread.append("messages", ["one"])  # it had reached the primary as well, whose answer was lost
    head = finish(spooled.head("new"))
    assert head is not None
    rows = [new_row(head.branch, row) for row in finish(spooled.rows("new", head.branch, 1, 1))]
    branches = [branch for branch in finish(spooled.branches("new")) if branch.id == head.branch]
    finish(primary.commit(Commit("new", [Swap("new", None, head)], rows, branches)))
    sides = Sides()
    sides.thread(primary, 1, "new").append("messages", ["another"])
    sides.delete(primary, 1, "new")
    second = thread.append("messages", ["two"]).id  # the head has changed as often as the one that was deleted
    assert adrift.deliver(replica, "new", 2) == []
    assert sides.merge(2, "new", None, replica, primary) == []
    for side in (replica, primary):
        store = backtrail.open(side)
        assert [one.id for one in store.thread("new").history(all=True)] == [second]
        assert not store.verify().problems


def test_what_was_spooled_of_a_deleted_thread_does_not_bring_it_back_although_the_side_that_deleted_it_is_away(
    adrift: Adrift, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave(_: Commit) -> None:
        adrift.sides[0].up = adrift.sides[1].up = False
        raise Unavailable("both sides went away, because a test took them away")

    adrift.sides[0].up = adrift.sides[1].up = True
    with monkeypatch.context() as patched:
        patched.setattr(adrift.sides[0], "commit", leave)
        with contextlib.suppress(Unavailable):  # it cannot be read back
            adrift.thread.annotate(-1, label="spooled")
    assert adrift.left() == 1
    head = finish(adrift.active.head("t"))
    assert head is not None
    finish(adrift.active.commit(Commit("t", [Swap("t", head.key, None)])))  # shipped by the side with the tombstone
    adrift.elsewhere().append("messages", ["created anew"])
    with pytest.raises(Stranded):  # the other side may still have the thread
        adrift.deliver()
    assert adrift.deliver(detach=True) == []
    assert adrift.said() == ["created anew"]
    assert [info.id for info in adrift.alone().threads()] == ["t"]
    assert adrift.left() == 0


def test_what_was_spooled_comes_without_the_deleted_checkpoints_it_builds_on_once_the_side_that_deleted_them_is_back(
    adrift: Adrift,
) -> None:
    primary: MemoryEngine = adrift.sides[1].engine  # type: ignore[assignment]
    sides = Sides()
    [second] = adrift.save("two")
    sides.delete(primary, 2)
    head = sides.head(adrift.active)
    finish(adrift.active.commit(Commit("t", [Swap("t", head.key, None)])))  # by a merge of both
    sides.thread(adrift.active, 2).append("messages", ["created anew"])
    assert adrift.deliver(generation=2) == [("t", "t#diverged-1")]
    assert len(list(sides.thread(adrift.active, 2, "t#diverged-1").history())) == 2  # nobody here knows of the deletion
    sides.merge(2, "t", None, adrift.active, primary)
    for side in (adrift.active, primary):
        store = backtrail.open(side)
        assert store.thread("t").load() == {"messages": ["created anew"]}
        assert store.thread("t#diverged-1").load() == {"messages": ["one", "two"]}
        assert [one.id for one in store.thread("t#diverged-1").history(all=True)] == [second]
        assert not store.verify().problems


def test_a_save_whose_base_a_sweep_frees_while_it_is_delivered_stays_in_the_spool(adrift: Adrift) -> None:
    """The sweep has deleted the checkpoint before, and moved the head: only its rows go now, which no head tells."""

    class Sweeping(Flaky):
        def __init__(self, engine: Engine) -> None:
            super().__init__(engine)
            self.planned: list[Drop] = []
            self.begun = False

        async def drop(self, drop: Drop) -> None:
            if self.begun:
                await self.engine.drop(drop)
            else:
                self.planned.append(drop)

        async def commit(self, commit: Commit) -> None:
            if commit.rows and self.planned and not self.begun:
                self.begun = True
                for drop in self.planned:
                    await self.engine.drop(drop)
            await self.engine.commit(commit)

    [spooled] = adrift.save("spooled")
    sweeping = Sweeping(adrift.active)
    store = Sides().store(sweeping)
    for message in ("two", "three"):
        store.thread("t").append("messages", [message])
    store.thread("t").save({"messages": ["all new"]})
    store.prune(backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
    with pytest.raises(Stranded):
        adrift.deliver(sweeping)
    assert sweeping.begun
    assert [head.thread for head in finish(adrift.active.heads("t"))] == ["t"]
    assert adrift.deliver(detach=True) == [("t", "t#diverged-1")]
    assert [one.id for one in adrift.alone().thread("t#diverged-1").history()] == [spooled]
    assert adrift.said("t#diverged-1")[-1] == "spooled"


def test_two_processes_that_deliver_at_once_deliver_once(adrift: Adrift) -> None:
    adrift.save("two", "three")

    class Beside(Flaky):
        """Another process delivers the same right before this one commits."""

        async def commit(self, commit: Commit) -> None:
            if not self.calls.count("delivered"):
                self.calls.append("delivered")
                assert adrift.deliver() == []
            await self.engine.commit(commit)

    assert adrift.deliver(Beside(adrift.active)) == []
    assert adrift.said() == ["one", "two", "three"]
    assert len(adrift.alone().thread("t").history(all=True)) == 3
    assert adrift.deliver() == []


def test_a_save_that_is_spooled_during_the_delivery_is_delivered_as_well(adrift: Adrift) -> None:
    adrift.save("two")

    class Beside(Flaky):
        """A process that is still adrift saves meanwhile."""

        async def commit(self, commit: Commit) -> None:
            await self.engine.commit(commit)
            if not self.calls.count("saved"):
                self.calls.append("saved")
                adrift.save("three")

    assert adrift.deliver(Beside(adrift.active)) == []
    assert adrift.said() == ["one", "two", "three"]
    assert adrift.left() == 0


def test_where_others_wrote_meanwhile_the_spooled_head_loses_and_is_kept(adrift: Adrift) -> None:
    adrift.save("two", "three")
    adrift.elsewhere().append("messages", ["somebody else's"])
    assert adrift.deliver() == [("t", "t#diverged-1")]
    assert adrift.said() == ["one", "somebody else's"]
    assert adrift.said("t#diverged-1") == ["one", "two", "three"]


def test_what_others_annotated_or_deleted_meanwhile_is_no_save_of_theirs(adrift: Adrift) -> None:
    first = adrift.elsewhere().head.id
    ids = adrift.save("two", "three")
    adrift.elsewhere().annotate(first, label="said meanwhile")
    assert adrift.deliver() == []
    history = adrift.alone().thread("t").history()
    assert [(one.id, one.label) for one in history] == [(first, "said meanwhile"), *((id, None) for id in ids)]


def test_a_save_that_its_caller_has_repeated_elsewhere_is_not_made_again(adrift: Adrift) -> None:
    [id] = adrift.save("two")
    adrift.elsewhere().append("messages", ["somebody else's"])
    adrift.elsewhere().append("messages", ["two"], id=id)
    assert adrift.deliver() == []
    assert adrift.said() == ["one", "somebody else's", "two"]
    assert [one.id for one in adrift.alone().thread("t").history(all=True)].count(id) == 1
    assert adrift.left() == 0


def test_a_save_from_which_others_went_on_has_arrived(adrift: Adrift) -> None:
    """Its answer was lost, and whoever read the thread then has saved to it."""
    adrift.save("two")
    head = finish(adrift.spool.engine.head("t"))
    assert head is not None
    before = finish(adrift.active.head("t"))
    assert before is not None
    process = Lifetime(1)
    with pytest.raises(Unavailable):
        adrift.deliver(process.side(adrift.active))
    Sides().thread(adrift.active, 2).append("messages", ["went on"])
    assert adrift.deliver(generation=2) == []
    assert adrift.said() == ["one", "two", "went on"]
    assert adrift.left() == 0


def test_a_rewind_to_a_save_that_was_delivered_is_not_undone_by_a_second_delivery(adrift: Adrift) -> None:
    adrift.save("two", "three")
    with pytest.raises(Unavailable):
        adrift.deliver(Lifetime(1).side(adrift.active))  # it dies before it has cleared the spool
    adrift.elsewhere().rewind(2)
    assert adrift.deliver() == []
    assert adrift.said() == ["one", "two"]
    assert len(adrift.alone().thread("t").history(all=True)) == 3


def test_saves_of_an_older_generation_are_delivered_one_after_the_other(adrift: Adrift) -> None:
    adrift.save("two")
    side = Lifetime(1).side(adrift.active)
    with pytest.raises(Unavailable):
        adrift.deliver(side, generation=2)
    adrift.save("three")
    assert adrift.deliver(generation=2) == []
    assert adrift.said() == ["one", "two", "three"]


def test_what_builds_on_a_row_that_is_not_there_stays_in_the_spool(adrift: Adrift) -> None:
    adrift.save("two")
    other = adrift.store.thread("other")
    other.append("messages", ["a thread of its own"])
    empty = MemoryEngine()
    with pytest.raises(Stranded, match="stays in the spool"):
        adrift.deliver(empty)
    assert finish(empty.heads("t")) == []
    assert adrift.left() == 2
    assert adrift.deliver(empty, "other") == []  # which does not wait for it
    assert backtrail.open(empty).thread("other").load() == {"messages": ["a thread of its own"]}
    assert adrift.deliver() == []
    assert adrift.said() == ["one", "two"]


def free(adrift: Adrift) -> None:
    """Delete the thread as others do, and free its rows."""
    delete(adrift)
    branches = [branch.id for branch in finish(adrift.active.branches("t"))]
    finish(adrift.active.drop(Drop("t", (), branches=branches)))


def test_what_builds_on_a_row_whose_body_was_freed_waits_for_a_side_that_has_it(adrift: Adrift) -> None:
    head = finish(adrift.active.head("t"))
    assert head is not None
    adrift.save("two")
    finish(adrift.active.drop(Drop("t", [("t", head.key)], bodies=[head.position])))
    with pytest.raises(Stranded, match="builds on a step"):
        adrift.deliver()
    assert adrift.left() == 1


@pytest.fixture
def on_long(tmp_path: Path) -> Iterator[Adrift]:
    """One whose first save is too long to be repeated in the roots of the next ones."""
    made = Adrift(tmp_path, "a message that is long enough to be kept in pieces " * 8)
    yield made
    finish(made.spool.engine.close())


def test_saves_whose_base_is_gone_keep_what_they_brought_themselves(on_long: Adrift) -> None:
    adrift = on_long
    ids = adrift.save("two", "three")
    saved = adrift.thread.update({"plan": "large " * 2000, "small": 1}, label="named", tags=["tag"], custom={"n": 1})
    adrift.thread.annotate(saved.id, label="annotated")
    free(adrift)
    with pytest.raises(Stranded):
        adrift.deliver()
    assert adrift.deliver(detach=True) == [("t", "t#diverged-1")]
    kept = adrift.alone().thread("t#diverged-1")
    assert [one.id for one in kept.history(all=True)] == [*ids, saved.id]
    assert [kept.load(id) for id in ids] == [{"messages": ["two"]}, {"messages": ["two", "three"]}]
    assert kept.load() == {"messages": ["two", "three"], "plan": "large " * 2000, "small": 1}
    assert (kept.head.label, kept.head.tags, kept.head.custom) == ("annotated", ("tag",), {"n": 1})
    assert adrift.left() == 0


def test_long_lists_and_large_values_of_saves_whose_base_is_gone_are_kept(on_long: Adrift) -> None:
    adrift = on_long
    long = [f"message {n} of a list that is kept in pieces" for n in range(40)]
    for message in long:
        adrift.save(message)
    adrift.thread.save({"messages": ["rewritten"], "more": long})
    free(adrift)
    adrift.deliver(detach=True)
    kept = adrift.alone().thread("t#diverged-1")
    states = [kept.load(one.id) for one in kept.history(all=True)]
    assert states[39] == {"messages": long}
    assert states[40] == {"messages": ["rewritten"], "more": long}


def test_every_kind_of_change_between_saves_whose_base_is_gone_is_kept(on_long: Adrift) -> None:
    adrift, thread = on_long, on_long.thread
    long = [f"message {n} of a list that is kept in pieces" for n in range(40)]
    state: dict[str, Any] = {"one": long[:20], "two": long[:10], "gone soon": "large " * 2000, "same": long}
    ids, states = [thread.save(state).id], [state]
    for n in range(20, 24):
        thread.append("one", [long[n]])
    for change in (
        {"two": long},  # rewritten: an adrift save writes all of it
        {"one": long[5:], "two": [*long, *long]},
        {"one": "no list any more"},
        {"one": [], "two": None, "nested": {"list": long, "deep": {"text": "large " * 2000}}},
        {"nested": {"list": long[1:], "deep": {"text": "large " * 2000}}},
    ):
        state = {key: value for key, value in {**state, **change}.items() if key != "gone soon"}
        ids.append(thread.save(state).id)
        states.append(state)
    for n in range(3):
        state = {**state, "same": [*state["same"], n], "more": n}
        ids.append(thread.update({"more": n, "same": state["same"]}).id)
        states.append(state)
    thread.append("same", ["last"])
    free(adrift)
    adrift.deliver(detach=True)
    kept = adrift.alone().thread("t#diverged-1")
    assert [kept.load(id) for id in ids] == states
    assert kept.load() == {**state, "same": [*state["same"], "last"]}


@pytest.mark.parametrize("changes", range(1, 6))
def test_a_delivery_of_saves_without_a_base_may_die_anywhere_and_is_repeated(adrift: Adrift, changes: int) -> None:
    ids = adrift.save("two", "three")
    free(adrift)
    with contextlib.suppress(Unavailable):
        adrift.deliver(Lifetime(changes).side(adrift.active), detach=True)
    adrift.deliver(detach=True)
    assert [info.id for info in adrift.alone().threads()] == ["t#diverged-1"]
    assert [one.id for one in adrift.alone().thread("t#diverged-1").history(all=True)] == ids


def delete(adrift: Adrift, name: str = "t", generation: int = 1) -> None:
    """Delete a thread as a mirror does while the other side is away: its rows are not freed."""
    head = finish(adrift.active.head(name))
    assert head is not None
    finish(write_tombstone(adrift.active, head, generation))
    finish(adrift.active.commit(Commit(head.lineage, (Swap(name, head.key, None),))))


def test_what_was_saved_to_a_thread_that_others_deleted_is_kept_under_another_name(adrift: Adrift) -> None:
    adrift.save("two")
    delete(adrift)
    assert adrift.deliver() == [("t", "t#diverged-1")]
    assert [info.id for info in adrift.alone().threads()] == ["t#diverged-1"]
    assert adrift.said("t#diverged-1") == ["one", "two"]


class SweptBefore(Flaky):
    """What no thread needs is freed right before the first commit of a thread; `dies`: after that nothing is done."""

    def __init__(self, engine: Engine, left: int) -> None:
        super().__init__(engine)
        self.left, self.swept = left, False

    async def commit(self, commit: Commit) -> None:
        if commit.swaps and not self.swept:
            self.swept = True
            await free_all(self.engine, commit.lineage)
        await self._change(self.engine.commit(commit))

    async def drop(self, drop: Drop) -> None:
        await self._change(self.engine.drop(drop))

    async def _change(self, change: Any) -> None:
        if self.left <= 0:
            change.close()
            raise Unavailable("the process died, because a test says so")
        self.left -= 1
        await change


@pytest.mark.parametrize("changes", [1, 2, 3, 99])
def test_a_save_whose_base_is_freed_at_the_moment_when_it_comes_is_taken_back_and_kept(
    adrift: Adrift, changes: int
) -> None:
    """The thread was deleted, so a sweep cannot know that the save needs its rows."""
    ids = adrift.save("two", "three")
    delete(adrift)
    swept = SweptBefore(adrift.active, changes)
    with pytest.raises((Stranded, Unavailable)):
        adrift.deliver(swept)
    assert swept.swept
    assert adrift.left() == 2
    with pytest.raises(Stranded):
        adrift.deliver()
    assert adrift.alone().threads() == []
    assert adrift.deliver(detach=True) == [("t", "t#diverged-1")]
    assert [one.id for one in adrift.alone().thread("t#diverged-1").history(all=True)] == ids
    assert adrift.left() == 0


class SweptAfter(Flaky):
    """What no thread needs is freed right after it was found that a row is there."""

    swept = False

    async def row(self, lineage: str, *at: Any) -> Any:
        found = await self.engine.row(lineage, *at)
        if not self.swept:
            self.swept = True
            await free_all(self.engine, lineage)
        return found


def test_a_save_whose_base_is_freed_right_after_it_was_found_stays_in_the_spool(adrift: Adrift) -> None:
    ids = adrift.save("two", "three")
    delete(adrift)
    swept = SweptAfter(adrift.active)
    with pytest.raises(Stranded):
        adrift.deliver(swept)
    assert swept.swept
    assert adrift.left() == 2
    assert adrift.alone().threads() == []
    assert adrift.deliver(detach=True) == [("t", "t#diverged-1")]
    assert [one.id for one in adrift.alone().thread("t#diverged-1").history(all=True)] == ids


def test_undone_saves_that_were_kept_of_a_deleted_thread_outlive_the_delivery_of_others_to_it(adrift: Adrift) -> None:
    """Of the thread that was deleted, another side had saves that the deletion did not know."""
    adrift.save("two")
    other = Sides()
    other.target, other.source = adrift.active, adrift.sides[1].engine  # type: ignore[assignment]
    undone = other.thread(other.source).append("messages", ["undone"])
    other.thread(other.source).undo()
    kept = other.thread(other.source).append("messages", ["kept"])
    delete(adrift, generation=2)
    assert other.merge(2) == [("t", "t#diverged-1")]
    ids = {one.id for one in adrift.alone().thread("t#diverged-1").history(all=True)}
    assert {undone.id, kept.id} <= ids
    adrift.deliver(generation=2)
    assert {undone.id, kept.id} <= {one.id for one in adrift.alone().thread("t#diverged-1").history(all=True)}


def test_a_thread_of_the_spool_that_was_delivered_and_then_deleted_is_not_made_anew(adrift: Adrift) -> None:
    adrift.store.thread("new").append("messages", ["in the spool"])
    process = Lifetime(1)
    with pytest.raises(Unavailable):
        adrift.deliver(process.side(adrift.active), "new")
    delete(adrift, "new")
    assert adrift.deliver(lineage="new") == []
    assert finish(adrift.active.head("new")) is None
    assert adrift.left() == 0


def test_saves_after_one_that_reached_a_side_and_was_deleted_there_are_kept(adrift: Adrift) -> None:
    spooled = adrift.store.thread("new")
    spooled.append("messages", ["one"])
    with pytest.raises(Unavailable):  # it had arrived, as far as the side is concerned
        adrift.deliver(Lifetime(1).side(adrift.active), "new")
    adrift.alone().thread("new").append("messages", ["of another process"])
    spooled.append("messages", ["two"])
    delete(adrift, "new")
    finish(free_all(adrift.active, "new"))
    assert adrift.deliver(lineage="new") == [("new", "new#diverged-1")]
    assert adrift.said("new#diverged-1") == ["one", "two"]
    assert adrift.left() == 0


def test_a_name_that_others_gave_to_another_thread_is_left_to_that(adrift: Adrift) -> None:
    adrift.store.thread("new").append("messages", ["in the spool"])
    Sides().thread(adrift.active, 1, "new").append("messages", ["somebody else's"])
    assert adrift.deliver(lineage="new") == [("new", "new#diverged-1")]
    assert adrift.said("new") == ["somebody else's"]
    assert adrift.said("new#diverged-1") == ["in the spool"]


def test_an_annotation_arrives_on_the_row_that_it_was_made_for(adrift: Adrift) -> None:
    new = adrift.store.thread("new")
    first = new.append("messages", ["one"])
    new.append("messages", ["two"])
    new.annotate(first.id, label="said in the spool")
    assert adrift.deliver(lineage="new") == []
    assert [one.label for one in adrift.alone().thread("new").history()] == ["said in the spool", None]


@pytest.mark.parametrize("what", ["a row", "the journal"])
def test_what_is_damaged_in_the_spool_is_not_delivered(adrift: Adrift, tmp_path: Path, what: str) -> None:
    adrift.save("two")
    column, order = ("meta", "min") if what == "a row" else ("payload", "max")
    with sqlite3.connect(tmp_path / FILE) as damage:
        table = "steps" if what == "a row" else _table_with(damage, column)
        damage.execute(
            f"UPDATE {table} SET {column} = CAST(x'00' || {column} AS BLOB) "
            f"WHERE pos = (SELECT {order}(pos) FROM {table})"
        )
    damage.close()
    with pytest.raises(Corrupt, match="digest"):
        adrift.deliver()
    assert adrift.said() == ["one"]
    assert adrift.left() == 1


def _table_with(database: sqlite3.Connection, column: str) -> str:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    [found] = [name for name in tables if column in {row[1] for row in database.execute(f"PRAGMA table_info({name})")}]
    return str(found)
