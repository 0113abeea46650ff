"""What a merge counts: each checkpoint once, for the one head of its thread, and only while it is not deleted."""

from __future__ import annotations

from typing import Any

import pytest

from backtrail.engines.base import Commit, Swap, next_version
from backtrail.engines.coroutines import finish
from backtrail.history.replication import MergeCodec
from fix_generations import Sides

OTHER = "t#diverged-1"


@pytest.fixture
def sides() -> Sides:
    """Both sides have a thread, and an earlier merge that was interrupted has given it another name on the target."""
    sides = Sides()
    sides.thread(sides.target).append("messages", ["one"])
    sides.merge()
    head = sides.head(sides.target)
    context: Any = sides.store(sides.target)._core.context
    version = next_version(head.version)
    renamed = MergeCodec(context).rewrite(head, version=version, count=head.count, name=OTHER, owner=head.owner)
    finish(sides.target.commit(Commit("t", (Swap("t", head.key, None), Swap(OTHER, None, renamed)))))
    return sides


def said(*messages: str) -> dict[str, list[str]]:
    return {"messages": list(messages)}


def test_a_thread_that_was_renamed_on_one_side_counts_what_the_other_side_saved_under_the_old_name(
    sides: Sides,
) -> None:
    sides.thread(sides.source, 2).append("messages", ["two"])
    assert sides.merge(2) == [("t", "t#diverged-2")]
    assert sides.equal() == {OTHER: said("one"), "t#diverged-2": said("one", "two")}
    assert sides.head(sides.target, OTHER).count == 2


def test_of_two_heads_of_one_incarnation_one_becomes_a_fork_so_that_each_counts_its_own(sides: Sides) -> None:
    sides.thread(sides.target).append("messages", ["of another thread"])
    sides.thread(sides.source, 2).append("messages", ["two"])
    assert sides.merge(2) == [("t", "t#diverged-2")]
    there = {"t": said("one", "two"), OTHER: said("one"), "t#diverged-2": said("of another thread")}
    assert sides.equal() == there
    sides.thread(sides.target, 2).append("messages", ["three"])
    sides.thread(sides.target, 2, OTHER).append("messages", ["beside it"])
    sides.merge(2)
    assert sides.equal() == there | {"t": said("one", "two", "three"), OTHER: said("one", "beside it")}
    assert sides.head(sides.target).owner != sides.head(sides.target, OTHER).owner


def test_a_head_that_stands_on_a_checkpoint_which_the_other_side_deleted_restores_it() -> None:
    sides = Sides()
    for message in ("one", "two"):
        sides.thread(sides.target).append("messages", [message])
    sides.merge()
    sides.thread(sides.target).delete(2)
    sides.thread(sides.source, 2).annotate(2, label="kept")
    sides.merge(2)
    assert sides.equal() == {"t": said("one", "two")}
    sides.thread(sides.target, 2).append("messages", ["three"])
    sides.merge(2)
    assert [one.step for one in sides.thread(sides.target).history()] == [1, 2, 3]
    sides.equal()
