"""Merging: the rules by which one lineage becomes equal on two sides, and nothing that was saved is lost."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.errors import Unavailable
from backtrail.replicate.lineage_copy import free_all, new_row
from backtrail.replicate.merge_rules import Apart, OursUnlessAhead, Outdated
from fix_flaky import Flaky
from fix_generations import Lifetime, Sides


@pytest.fixture
def sides() -> Sides:
    return Sides()


def common(sides: Sides, *messages: str, name: str = "t") -> None:
    """Both sides have a thread with these messages."""
    for message in messages:
        sides.thread(sides.target, 1, name).append("messages", [message])
    sides.merge(1, name)


def said(*messages: str) -> dict[str, list[str]]:
    return {"messages": list(messages)}


# -- heads that win ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["target", "source"])
def test_a_thread_that_one_side_never_had_is_adopted(sides: Sides, side: str) -> None:
    thread = sides.thread(getattr(sides, side))
    for n in range(5):
        thread.append("messages", [n])
    thread.save({"messages": [1], "large": "large " * 2000})
    assert sides.merge() == []
    assert sides.equal() == {"t": {"messages": [1], "large": "large " * 2000}}
    assert sides.head(sides.source) == sides.head(sides.target)


@pytest.mark.parametrize(("side", "generation"), [("target", 1), ("source", 1), ("target", 2), ("source", 2)])
def test_the_head_of_a_side_that_only_went_on_is_adopted(sides: Sides, side: str, generation: int) -> None:
    common(sides, "one")
    sides.thread(getattr(sides, side), generation).append("messages", ["two"])
    assert sides.merge(2) == []
    assert sides.equal() == {"t": said("one", "two")}


def test_a_rewind_is_adopted_and_loses_nothing(sides: Sides) -> None:
    common(sides, "one", "two", "three")
    sides.thread(sides.source, 2).rewind(1)
    assert sides.merge(2) == []
    assert sides.equal() == {"t": said("one")}
    assert len(sides.thread(sides.target).history(all=True)) == 3


def test_equal_sides_are_left_as_they_are(sides: Sides) -> None:
    common(sides, "one")
    nothing = Lifetime(0)
    assert sides.merge(1, "t", None, nothing.side(sides.target), nothing.side(sides.source)) == []


# -- heads that lose ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", ["target", "source"])
def test_of_two_heads_of_a_thread_that_of_the_newer_generation_counts_and_the_other_becomes_a_fork(
    sides: Sides, newer: str
) -> None:
    common(sides, "one")
    older = "source" if newer == "target" else "target"
    sides.thread(getattr(sides, older), 1).append("messages", ["older"])
    sides.thread(getattr(sides, newer), 2).append("messages", ["newer"])
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("one", "newer"), "t#diverged-1": said("one", "older")}
    fork, thread = sides.head(sides.target, "t#diverged-1"), sides.head(sides.target)
    assert fork.owner != thread.owner
    assert fork.lineage == thread.lineage
    assert sides.merge(2) == []


def test_a_head_that_loses_again_gets_the_next_free_name(sides: Sides) -> None:
    common(sides, "one")
    for generation in (2, 4):
        sides.thread(sides.source, generation - 1).append("messages", [f"in {generation - 1}"])
        sides.thread(sides.target, generation).append("messages", [f"in {generation}"])
        sides.merge(generation)
    assert [*sides.equal()] == ["t", "t#diverged-1", "t#diverged-2"]


def test_the_other_of_two_threads_that_were_created_under_one_name_keeps_its_incarnation(sides: Sides) -> None:
    sides.thread(sides.source, 1).append("messages", ["older"])
    sides.thread(sides.target, 2).append("messages", ["newer"])
    owner = sides.head(sides.source).owner
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("newer"), "t#diverged-1": said("older")}
    assert sides.head(sides.target, "t#diverged-1").owner == owner


def test_two_stores_that_are_no_mirror_keep_the_head_of_the_target_unless_the_source_continued_it(
    sides: Sides,
) -> None:
    sides.thread(sides.source, 2).append("messages", ["theirs"])
    sides.thread(sides.target, 1).append("messages", ["ours"])
    assert sides.merge(0, "t", OursUnlessAhead()) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("ours"), "t#diverged-1": said("theirs")}
    sides.thread(sides.source, 3).append("messages", ["went on"])
    assert sides.merge(0, "t", OursUnlessAhead()) == []
    assert sides.equal()["t"] == said("ours", "went on")


# -- deletions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["target", "source"])
def test_a_thread_that_one_side_deleted_stays_deleted(sides: Sides, side: str) -> None:
    common(sides, "one")
    sides.delete(getattr(sides, side))
    assert sides.merge() == []
    assert sides.equal() == {}
    assert finish(sides.target.branches("t")) == finish(sides.source.branches("t")) == []


def test_a_deletion_that_was_not_made_has_no_effect(sides: Sides) -> None:
    from backtrail.replicate.deleted_threads import write_tombstone

    common(sides, "one")
    finish(write_tombstone(sides.target, sides.head(sides.target), 1))
    sides.thread(sides.target, 1).append("messages", ["two"])
    assert sides.merge() == []
    assert sides.equal() == {"t": said("one", "two")}


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_a_save_of_a_newer_generation_that_the_deletion_could_not_know_keeps_the_name(
    sides: Sides, deleted: str
) -> None:
    common(sides, "one")
    other = sides.source if deleted == "target" else sides.target
    sides.delete(getattr(sides, deleted), 1)
    sides.thread(other, 2).append("messages", ["newer"])
    assert sides.merge(2) == []
    assert sides.equal() == {"t": said("one", "newer")}
    assert [one.step for one in sides.thread(sides.target).history(all=True)] == [2]  # what was seen stays deleted


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_a_save_of_an_older_generation_that_the_deletion_did_not_know_is_kept_under_another_name(
    sides: Sides, deleted: str
) -> None:
    common(sides, "one")
    other = sides.source if deleted == "target" else sides.target
    sides.thread(other, 1).append("messages", ["older"])
    sides.delete(getattr(sides, deleted), 2)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t#diverged-1": said("one", "older")}


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_a_deletion_knows_its_rows_after_they_were_freed(sides: Sides, deleted: str) -> None:
    common(sides, "one")
    here, other = (sides.target, sides.source) if deleted == "target" else (sides.source, sides.target)
    sides.thread(here, 2).append("messages", ["two"])  # on a branch of its own
    sides.delete(here, 2)
    finish(free_all(here, "t"))
    assert sides.merge(2) == []
    assert sides.equal() == {}
    common(sides, "one", name="continued")
    sides.delete(here, 2, "continued")
    finish(free_all(here, "continued"))
    sides.thread(other, 3, "continued").append("messages", ["newer"])
    assert sides.merge(3, "continued") == []
    assert sides.equal() == {"continued": said("one", "newer")}
    assert [one.step for one in sides.thread(sides.target, 3, "continued").history(all=True)] == [2]


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_rows_that_came_after_a_deletion_were_not_seen_by_it(sides: Sides, deleted: str) -> None:
    common(sides, "one")
    here, other = (sides.target, sides.source) if deleted == "target" else (sides.source, sides.target)
    sides.delete(here, 1)
    thread = sides.thread(other, 2)
    for message in ("two", "three", "four"):
        thread.append("messages", [message])
    branch = sides.head(other).branch
    [made] = [each for each in finish(other.branches("t")) if each.id == branch]
    rows = [new_row(branch, row) for row in finish(other.rows("t", branch, 1, 3))]
    finish(here.commit(Commit("t", rows=rows, branches=[made])))  # a merge that ended before it came to the head
    assert sides.merge(2) == []
    assert sides.equal() == {"t": said("one", "two", "three", "four")}
    assert [one.step for one in sides.thread(sides.target, 3).history(all=True)] == [2, 3, 4]


def test_a_save_that_was_deleted_and_made_again_stays_for_a_fork_of_it(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)
    sides.delete(sides.source, 1)
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).fork("fork")
    for name in ("t", "fork"):
        sides.thread(sides.target, 2, name).append("messages", ["three"])
    assert sides.merge(2) == []
    assert sides.equal() == {"fork": said("one", "two", "three"), "t": said("one", "two", "three")}
    assert id in {one.id for one in sides.thread(sides.target, 2, "fork").history()}


def test_a_fork_keeps_a_save_that_was_made_again_whatever_becomes_of_the_thread(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)  # its answer was lost
    sides.delete(sides.source, 1)
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).fork("fork")
    for message in ("three", "four"):
        sides.thread(sides.target, 2).append("messages", [message])
    assert sides.merge(2) == []
    sides.thread(sides.source, 3).append("messages", ["five"])
    sides.thread(sides.target, 4).undo()
    sides.thread(sides.target, 4, "fork").append("messages", ["six"])
    assert sides.merge(4) == [("t", "t#diverged-1")]
    assert sides.equal()["fork"] == said("one", "two", "six")
    assert id in {one.id for one in sides.thread(sides.target, 4, "fork").history()}


def test_a_save_that_was_made_twice_and_pruned_in_a_newer_generation_is_gone_from_what_is_kept_beside_the_thread(
    sides: Sides,
) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)  # its answer was lost
    sides.thread(sides.source, 1).append("messages", ["three"])
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).append("messages", ["four"])
    sides.thread(sides.target, 2).delete(id)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("one", "two", "four"), "t#diverged-1": said("one", "two", "three")}
    for name in ("t", "t#diverged-1"):
        assert id not in {one.id for one in sides.thread(sides.target, 3, name).history(all=True)}


def test_a_fork_that_lost_its_name_is_kept_although_its_only_save_was_made_again_by_the_other_thread(
    sides: Sides,
) -> None:
    common(sides, "one", "two")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).fork("fork")
    sides.thread(sides.source, 1, "fork").append("messages", ["three"], id=id)  # its answer was lost
    first = sides.thread(sides.target, 2).history()[0].id
    sides.thread(sides.target, 2).fork("fork", at=first)
    sides.thread(sides.target, 2, "fork").append("messages", ["three"], id=id)
    assert sides.merge(2) == [("fork", "fork#diverged-1")]
    assert sides.equal() == {
        "t": said("one", "two"),
        "fork": said("one", "three"),
        "fork#diverged-1": said("one", "two", "three"),
    }


def test_a_thread_that_outlives_a_deletion_of_its_name_has_no_copy_of_a_save_that_was_deleted_with_the_other(
    sides: Sides,
) -> None:
    id = str(uuid.uuid4())
    sides.thread(sides.target, 1).append("messages", ["one"], id=id)  # its answer was lost
    sides.thread(sides.source, 2).append("messages", ["one"], id=id)
    sides.delete(sides.source, 2)
    sides.thread(sides.source, 2).append("messages", ["another thread"])
    newer = sides.thread(sides.target, 3).append("messages", ["two"]).id
    assert sides.merge(3) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("one", "two"), "t#diverged-1": said("another thread")}
    assert [one.id for one in sides.thread(sides.target, 3).history(all=True)] == [newer]


def test_a_save_that_was_made_twice_can_be_read_whichever_copy_counts_after_a_sweep(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)  # its answer was lost
    other = sides.thread(sides.source, 1).save({"messages": ["another"]})  # it needs nothing of the one before
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).append("messages", ["three"])
    assert sides.merge(2) == [("t", "t#diverged-1")]
    for side in (sides.target, sides.source):
        sides.store(side, 2).prune()
    sides.thread(sides.target, 2).rewind(other.id)  # now the first copy is in its history
    sides.merge(2)
    assert sides.equal()["t"] == {"messages": ["another"]}
    for side in (sides.target, sides.source):
        assert sides.thread(side, 3).load(id) == said("one", "two")
        assert [one.id for one in sides.thread(side, 3).history(all=True)].count(id) == 1


def test_the_other_copy_of_a_save_that_was_deleted_and_swept_does_not_come_back(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)  # its answer was lost
    sides.thread(sides.source, 1).fork("fork").save({"messages": ["its own"]})  # only the chain leads through the copy
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.merge(2)
    sides.thread(sides.target, 2).delete(id)
    sides.merge(2)
    for side in (sides.target, sides.source):
        sides.store(side, 2).prune()
    sides.thread(sides.target, 4).append("messages", ["three"])
    sides.merge(4)
    assert sides.equal()["t"] == said("one", "three")
    for side in (sides.target, sides.source):
        assert id not in {one.id for one in sides.thread(side, 5).history(all=True)}
        assert not sides.store(side, 5).verify().problems


def test_a_thread_that_waits_for_its_name_counts_what_was_deleted_of_it_meanwhile(sides: Sides) -> None:
    common(sides, "one")
    sides.thread(sides.target, 1).fork("fork")
    sides.thread(sides.target, 1, "fork").append("messages", ["known"])
    sides.merge(1)
    sides.delete(sides.target, 1, "fork")
    sides.thread(sides.target, 1, "fork").append("messages", ["another thread of that name"])
    sides.thread(sides.source, 2, "fork").append("messages", ["newer"])
    sides.merge(2)
    assert sides.equal()["fork"] == said("one", "known", "newer")
    assert sides.head(sides.target, "fork").count == 1
    assert not sides.store(sides.target, 3).verify().problems


def test_a_save_that_was_made_again_after_it_was_deleted_stays(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).append("messages", ["three"])
    sides.thread(sides.target, 2).delete(id)
    sides.merge(2)
    sides.thread(sides.target, 4).append("messages", ["two"], id=id)
    sides.thread(sides.target, 4).append("messages", ["four"])
    sides.merge(4)
    assert sides.equal()["t"] == said("one", "two", "three", "two", "four")
    assert [one.id for one in sides.thread(sides.target, 5).history(all=True)].count(id) == 1


def test_undone_saves_of_a_thread_that_loses_its_name_are_kept_although_its_others_were_made_again(
    sides: Sides,
) -> None:
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["one"], id=id)  # its answer was lost
    undone = sides.thread(sides.source, 1).append("messages", ["undone"])
    sides.thread(sides.source, 1).undo()
    sides.thread(sides.target, 2).append("messages", ["one"], id=id)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("one"), "t#diverged-1": said("one")}
    assert undone.id in {one.id for one in sides.thread(sides.target, 3, "t#diverged-1").history(all=True)}


def test_another_thread_of_a_name_that_was_deleted_in_a_newer_generation_is_kept_under_another_name(
    sides: Sides,
) -> None:
    sides.thread(sides.source, 1).append("messages", ["older"])
    sides.thread(sides.target, 2).append("messages", ["deleted"])
    sides.delete(sides.target, 2)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t#diverged-1": said("older")}


def test_a_save_that_was_made_again_and_deleted_stays_deleted_beside_one_that_the_deletion_did_not_know(
    sides: Sides,
) -> None:
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["older"])
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)  # its answer was lost
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.delete(sides.target, 2)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t#diverged-1": said("older")}
    assert [one.step for one in sides.thread(sides.target, 3, "t#diverged-1").history(all=True)] == [1]


@pytest.mark.parametrize("deleted", [4, 2])
def test_a_deletion_knew_a_save_that_was_made_again_in_an_older_generation_but_not_in_a_newer_one(
    sides: Sides, deleted: int
) -> None:
    id = str(uuid.uuid4())
    sides.thread(sides.target, 2).append("messages", ["one"], id=id)
    sides.delete(sides.target, deleted)
    again = sides.thread(sides.source, 3)
    again.append("messages", ["one"], id=id)
    again.append("messages", ["two"])
    sides.merge(5)
    name, kept = ("t#diverged-1", ["two"]) if deleted == 4 else ("t", ["one", "two"])
    assert sides.equal() == {name: said("one", "two")}
    thread = sides.thread(sides.target, 5, name)
    assert [thread.load(one.id)["messages"][-1] for one in thread.history(all=True)] == kept


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_a_save_below_others_that_was_made_again_and_deleted_with_its_thread_stays_deleted(
    sides: Sides, deleted: str
) -> None:
    id = str(uuid.uuid4())
    common(sides, "one")
    here, other = (sides.target, sides.source) if deleted == "target" else (sides.source, sides.target)
    sides.thread(other, 1).append("messages", ["two"], id=id)  # its answer was lost
    sides.thread(other, 1).append("messages", ["older"])
    sides.thread(here, 2).append("messages", ["two"], id=id)
    sides.delete(here, 2)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t#diverged-1": said("one", "two", "older")}
    assert [one.step for one in sides.thread(sides.target, 3, "t#diverged-1").history(all=True)] == [3]


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_a_save_that_was_repeated_after_its_first_attempt_was_deleted_with_the_thread_is_there(
    sides: Sides, deleted: str
) -> None:
    common(sides, "one")
    away, kept = (sides.target, sides.source) if deleted == "target" else (sides.source, sides.target)
    id = str(uuid.uuid4())
    sides.thread(away, 1).append("messages", ["two"], id=id)
    sides.delete(away, 1)
    sides.thread(kept, 2).append("messages", ["two"], id=id)
    assert sides.merge(2) == []
    assert sides.equal() == {"t": said("one", "two")}
    assert id in [one.id for one in sides.thread(sides.target).history(all=True)]


@pytest.mark.parametrize("written", ["target", "source"])
def test_a_name_that_is_given_to_a_thread_and_deleted_during_a_merge_stays_deleted(sides: Sides, written: str) -> None:
    here, other = (sides.target, sides.source) if written == "target" else (sides.source, sides.target)
    sides.thread(other, 1).append("messages", ["older"])

    class Busy(Flaky):
        """A side on which a thread is created and deleted just before the first row is copied to it."""

        done = False

        async def blob_ids(self, *arguments: Any) -> Any:
            if not self.done:
                self.done = True
                sides.thread(self.engine, 2).append("messages", ["deleted"])
                sides.delete(self.engine, 2)
            return await self.engine.blob_ids(*arguments)

    busy = Busy(here)
    pair = (busy, sides.source) if written == "target" else (sides.target, busy)
    assert sides.merge(2, "t", None, *pair) == [("t", "t#diverged-1")]
    assert busy.done
    assert sides.equal() == {"t#diverged-1": said("older")}


def test_a_thread_that_only_one_side_came_to_rename_is_not_kept_twice(sides: Sides) -> None:
    sides.thread(sides.source, 1).append("messages", ["older"])
    sides.thread(sides.target, 2).append("messages", ["deleted"])
    sides.delete(sides.target, 2)
    lifetime = Lifetime(1)
    with pytest.raises(Unavailable):
        sides.merge(2, "t", None, lifetime.side(sides.target), lifetime.side(sides.source))
    assert sides.merge(3, "t", None, sides.source, sides.target) == []
    assert sides.equal() == {"t#diverged-1": said("older")}


def test_a_name_that_was_deleted_and_created_again_is_the_new_thread(sides: Sides) -> None:
    common(sides, "old")
    sides.delete(sides.target)
    sides.thread(sides.target, 1).append("messages", ["new"])
    assert sides.merge() == []
    assert sides.equal() == {"t": said("new")}


def test_forks_of_a_deleted_thread_keep_what_they_inherited(sides: Sides) -> None:
    common(sides, "one", "two")
    sides.thread(sides.target, 1).fork("f")
    sides.merge()
    sides.delete(sides.source)
    assert sides.merge() == []
    assert sides.equal() == {"f": said("one", "two")}


# -- marks and duplicates ----------------------------------------------------------------------------------------------


def test_of_two_annotations_of_a_checkpoint_the_later_one_counts(sides: Sides) -> None:
    common(sides, "one", "two", "three")
    sides.thread(sides.target, 1).annotate(1, label="earlier")
    sides.thread(sides.source, 1).annotate(1, label="later")
    sides.thread(sides.source, 1).annotate(2, label="only here")
    assert sides.merge(1) == []
    sides.equal()
    assert [one.label for one in sides.thread(sides.target).history()] == ["later", "only here", None]


@pytest.mark.parametrize("first", ["deleted", "annotated"])
def test_a_deleted_checkpoint_stays_deleted_although_it_was_annotated_on_the_other_side(
    sides: Sides, first: str
) -> None:
    common(sides, "one", "two", "three")
    changes = [
        lambda: sides.thread(sides.target, 1).delete(2),
        lambda: sides.thread(sides.source, 1).annotate(2, label="said"),
    ]
    for change in changes if first == "deleted" else changes[::-1]:
        change()
    assert sides.merge(1) == []
    sides.equal()
    assert [one.step for one in sides.thread(sides.target).history(all=True)] == [1, 3]


def test_a_save_that_was_repeated_on_the_other_side_counts_once(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    assert sides.merge(2) == []
    assert sides.equal() == {"t": said("one", "two")}
    assert [one.id for one in sides.thread(sides.target).history(all=True)][1:] == [id]
    assert sides.head(sides.target).count == 2


def test_what_came_before_a_repeated_save_on_the_side_that_lost_is_kept(sides: Sides) -> None:
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["unshipped"])
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t": said("one", "two"), "t#diverged-1": said("one", "unshipped", "two")}
    ids = [one.id for one in sides.thread(sides.target).history(all=True)]
    assert len(ids) == len(set(ids))


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_two_stores_that_continued_one_branch_are_left_as_they_are(sides: Sides) -> None:
    common(sides, "one")
    sides.thread(sides.target, 1).append("messages", ["here"])
    sides.thread(sides.source, 1).append("messages", ["there"])
    with pytest.raises(Apart, match="in both stores"):
        sides.merge(1)
    assert sides.thread(sides.target).load() == said("one", "here")
    assert sides.thread(sides.source).load() == said("one", "there")


def test_a_merge_in_a_generation_that_is_over_is_refused(sides: Sides) -> None:
    common(sides, "one")
    sides.thread(sides.source, 2).append("messages", ["newer"])
    with pytest.raises(Outdated, match="generation 2"):
        sides.merge(1)
    assert sides.thread(sides.target).load() == said("one")


def test_a_lineage_that_keeps_moving_is_given_up_for_now(sides: Sides) -> None:
    common(sides, "one")

    class Moving(Flaky):
        """A side that is saved to before each commit."""

        async def commit(self, commit: Any) -> None:
            sides.thread(self.engine, 2).append("messages", ["again"])
            await self.engine.commit(commit)

    sides.thread(sides.source, 2).append("messages", ["two"])
    with pytest.raises(Refused, match="kept moving"):
        sides.merge(2, "t", None, Moving(sides.target), sides.source)


# -- interruptions -----------------------------------------------------------------------------------------------------


def built(kind: str) -> Sides:
    """Two sides that differ in one way each."""
    sides = Sides()
    common(sides, "one", "two")
    if kind == "diverged":
        for n in range(3):
            sides.thread(sides.source, 1).append("messages", [f"older {n}", "large " * 500])
            sides.thread(sides.target, 2).append("messages", [f"newer {n}"])
    elif kind == "created twice":
        for n in range(3):
            sides.thread(sides.source, 1, "t").fork(f"f{n}")
            sides.thread(sides.target, 2, "t").fork(f"f{n}")
            sides.thread(sides.target, 2, f"f{n}").append("messages", ["newer"])
            sides.thread(sides.source, 1, f"f{n}").append("messages", ["older"])
    elif kind == "deleted":
        sides.thread(sides.target, 1).fork("f")
        sides.merge()
        sides.thread(sides.source, 1).append("messages", ["unseen"])
        sides.delete(sides.target, 2)
    elif kind == "only that was deleted":
        sides.thread(sides.source, 1).append("messages", ["unseen"])
        sides.delete(sides.target, 2)
    elif kind == "of a name that was deleted":
        sides = Sides()
        sides.thread(sides.source, 1).append("messages", ["older"])
        sides.thread(sides.target, 2).append("messages", ["deleted"])
        sides.delete(sides.target, 2)
    else:
        id = str(uuid.uuid4())
        sides.thread(sides.source, 1).append("messages", ["three"], id=id)
        sides.thread(sides.target, 2).append("messages", ["three"], id=id)
        sides.thread(sides.source, 1).annotate(1, label="said")
    return sides


KINDS = (
    "diverged",
    "created twice",
    "deleted",
    "only that was deleted",
    "of a name that was deleted",
    "repeated",
)


@pytest.mark.parametrize("rows", ["few", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_that_dies_after_any_change_and_is_made_again_ends_the_same(
    kind: str, rows: str, request: pytest.FixtureRequest
) -> None:
    if rows == "many":
        request.getfixturevalue("many_rows")
    whole = built(kind)
    whole.merge(2)
    expected = whole.equal()
    died = 0
    for at in range(1, 30):
        sides = built(kind)
        process = Lifetime(at)
        try:
            sides.merge(2, "t", None, process.side(sides.target), process.side(sides.source))
        except Unavailable:
            died += 1
            for side in (backtrail.open(sides.target), backtrail.open(sides.source)):
                for info in side.threads():
                    side.thread(info.id).load()  # no head stands on a row that has not come yet
        sides.merge(2)
        assert sides.equal() == expected
        if process.left > 0:
            break
    assert died >= 2


# -- found by rounds of several processes and by the simulation --------------------------------------------------------


@pytest.mark.parametrize("deleted", ["target", "source"])
def test_saves_that_were_undone_outlive_a_deletion_that_did_not_know_them(sides: Sides, deleted: str) -> None:
    common(sides, "one")
    other = sides.source if deleted == "target" else sides.target
    sides.delete(getattr(sides, deleted), 1)
    thread = sides.thread(other, 2)
    undone = thread.append("messages", ["undone"])
    thread.undo()
    assert sides.merge(2) == [("t", "t#diverged-1")]
    assert sides.equal() == {"t#diverged-1": said("one", "undone")}
    assert [one.id for one in sides.thread(sides.target, 2, "t#diverged-1").history(all=True)] == [undone.id]


def test_a_thread_that_was_deleted_stays_deleted_if_it_was_only_moved_elsewhere(sides: Sides) -> None:
    common(sides, "one", "two")
    sides.delete(sides.target, 1)
    sides.thread(sides.source, 2).rewind(1)
    assert sides.merge(2) == []
    assert sides.equal() == {}


def test_an_annotation_survives_if_the_save_was_repeated_on_the_other_side(sides: Sides) -> None:
    """Of two rows of one save, one was annotated, and the other one counts."""
    common(sides, "one")
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["two"], id=id)
    sides.thread(sides.source, 1).annotate(id, label="named")
    sides.thread(sides.target, 2).append("messages", ["two"], id=id)
    sides.thread(sides.target, 2).append("messages", ["three"])
    sides.merge(2)
    sides.equal()
    assert [one.label for one in sides.thread(sides.target, 2).history(all=True)] == [None, "named", None]


def test_an_annotation_of_a_thread_that_lost_its_name_survives_in_the_one_that_repeated_its_save(sides: Sides) -> None:
    id = str(uuid.uuid4())
    sides.thread(sides.source, 1).append("messages", ["one"], id=id)
    sides.thread(sides.source, 1).annotate(id, label="named")
    sides.thread(sides.target, 2).append("messages", ["one"], id=id)
    assert sides.merge(2) == []
    sides.equal()
    assert sides.thread(sides.target, 2).get(id).label == "named"
    before = sides.head(sides.target)
    sides.merge(2)
    assert sides.head(sides.target) == before  # it is settled once and for all


def test_a_checkpoint_that_is_restored_keeps_the_annotation_of_the_other_side(sides: Sides) -> None:
    common(sides, "one", "two")
    id = sides.thread(sides.target, 1).history()[0].id
    sides.thread(sides.source, 1).delete(id)
    thread = sides.thread(sides.target, 2)
    thread.annotate(id, label="named")
    thread.rewind(id)
    sides.merge(2)
    sides.equal()
    assert sides.thread(sides.target, 2).head.label == "named"


def test_a_sweep_notices_a_thread_that_a_merge_has_added(sides: Sides) -> None:
    """The thread that lost keeps its rows: a sweep that read the heads before would delete them, and not count it."""
    common(sides, "one")
    sides.thread(sides.target, 1).fork("fork")
    sides.merge(1)
    before = {head.thread: head for head in finish(sides.target.heads("t"))}
    sides.thread(sides.source, 1).append("messages", ["older"])
    sides.delete(sides.target, 2)
    sides.merge(2)
    after = {head.thread: head for head in finish(sides.target.heads("t"))}
    assert after.keys() == {"fork", "t#diverged-1"}
    assert after["fork"].version > before["fork"].version
    sides.equal()


def test_marks_are_compared_even_if_the_head_that_told_of_them_is_deleted_on_both_sides(sides: Sides) -> None:
    common(sides, "one")
    sides.thread(sides.target, 1).fork("fork")
    sides.merge(1)
    id = sides.thread(sides.source, 2).head.id
    sides.thread(sides.source, 2).annotate(id, label="named")
    sides.delete(sides.source, 2)
    sides.delete(sides.target, 1)
    sides.merge(2)
    sides.equal()
    assert sides.thread(sides.target, 2, "fork").head.label == "named"


@pytest.mark.parametrize("side", ["target", "source"])
def test_what_a_fork_has_abandoned_comes_with_the_rows_that_it_hangs_on(sides: Sides, side: str) -> None:
    """They belong to a thread that was deleted, and are in the history of no head."""
    engine = getattr(sides, side)
    for message in ("one", "two", "three"):
        sides.thread(engine, 1).append("messages", [message])
    sides.thread(engine, 1).fork("fork")
    fork = sides.thread(engine, 1, "fork")
    fork.append("messages", ["abandoned"])
    fork.rewind(1)
    fork.append("messages", ["instead"])
    sides.delete(engine, 1)
    sides.merge(1)
    assert sides.equal() == {"fork": said("one", "instead")}
