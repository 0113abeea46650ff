"""Fast-forward: ships new saves to a follower that only lags behind, and declines everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backtrail.engines.base import Commit, Engine
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.errors import Unavailable
from backtrail.replicate.fast_forward import fast_forward
from backtrail.testing import sample_records
from fix_flaky import Flaky
from fix_generations import Lifetime, Sides


def forward(sides: Sides, generation: int = 1, follower: Engine | None = None) -> bool:
    """Ship the lineage "t" from the target to the source, with all blobs."""
    have = {id for id, _ in finish(sides.source.blob_ids("t"))}
    blobs = [id for id, _ in finish(sides.target.blob_ids("t")) if id not in have]
    return finish(fast_forward(sides.target, follower or sides.source, "t", blobs, generation))


@pytest.fixture
def sides() -> Sides:
    """Both sides have a thread with two saves."""
    made = Sides()
    for n in range(2):
        made.thread(made.target).append("messages", [n])
    assert forward(made)
    return made


def test_appends_are_shipped_in_one_commit(sides: Sides) -> None:
    for n in range(5):
        sides.thread(sides.target).append("messages", [n])
    follower = Flaky(sides.source)
    assert forward(sides, follower=follower)
    assert follower.calls.count("commit") == 1
    assert sides.equal() == {"t": {"messages": [0, 1, 0, 1, 2, 3, 4]}}
    assert forward(sides, follower=follower)
    assert follower.calls.count("commit") == 1  # nothing is left to be shipped


def test_blobs_are_shipped_with_the_saves_that_wrote_them(sides: Sides) -> None:
    sides.thread(sides.target).save({"large": "large " * 5000})
    assert finish(sides.target.blob_ids("t"))
    assert forward(sides)
    assert sides.equal() == {"t": {"large": "large " * 5000}}
    assert finish(sides.source.blob_ids("t")) == finish(sides.target.blob_ids("t"))


def test_a_label_that_a_save_was_given_is_shipped_with_it(sides: Sides) -> None:
    saved = sides.thread(sides.target).save({"n": 1}, label="first")
    assert forward(sides)
    assert sides.thread(sides.source).find(label="first") == [saved]


def test_a_new_thread_is_shipped(sides: Sides) -> None:
    made = Sides()
    for n in range(3):
        made.thread(made.target).append("messages", [n])
    assert forward(made)
    assert made.equal() == {"t": {"messages": [0, 1, 2]}}


def test_the_first_save_after_a_failover_is_left_to_a_merge(sides: Sides) -> None:
    """Versions of two generations were made on two sides: their numbers tell nothing."""
    saved = sides.thread(sides.source).head
    sides.thread(sides.source).annotate(saved.id, label="on one side")
    sides.thread(sides.target, 2).annotate(saved.id, label="on the other side")
    sides.thread(sides.target, 2).append("messages", [2])
    assert not forward(sides, 2)
    sides.merge(2)
    sides.thread(sides.target, 2).append("messages", [3])
    assert forward(sides, 2)
    sides.equal()


def _two_branches(thread: Any) -> None:
    thread.rewind(1)
    thread.append("messages", ["a"])
    thread.append("messages", ["b"])


CHANGES: dict[str, Callable[[Sides], object]] = {
    "an annotation": lambda sides: sides.thread(sides.target).annotate(1, label="said"),
    "a rewind": lambda sides: sides.thread(sides.target).rewind(1),
    "a save after a rewind": lambda sides: _two_branches(sides.thread(sides.target)),
    "a deleted checkpoint": lambda sides: sides.thread(sides.target).delete(1),
    "a deleted thread": lambda sides: sides.delete(sides.target),
    "a fork": lambda sides: sides.thread(sides.target).fork("f"),
    "a save of the follower's own": lambda sides: sides.thread(sides.source, 2).append("messages", ["there"]),
    "saves and an annotation": lambda sides: (
        sides.thread(sides.target).append("messages", ["two"]),
        sides.thread(sides.target).annotate(1, label="said"),
    ),
    "a save of an older generation": lambda sides: sides.thread(sides.target, 0).append("messages", ["older"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_more_than_saves_is_left_to_a_merge(sides: Sides, change: str) -> None:
    generation = 2 if change == "a save of an older generation" else 1
    CHANGES[change](sides)
    before = finish(sides.source.heads("t"))
    assert not forward(sides, generation)
    assert finish(sides.source.heads("t")) == before
    sides.merge(2)
    sides.equal()


@pytest.mark.usefixtures("many_rows")
def test_many_saves_come_in_parts_and_an_interrupted_copy_is_continued(sides: Sides) -> None:
    for n in range(4):
        sides.thread(sides.target).save({"n": n}, label=f"number {n}")
    with pytest.raises(Unavailable):
        forward(sides, follower=Lifetime(2).side(sides.source))
    assert len(finish(sides.source.heads("t"))) == 1
    assert sides.thread(sides.source).load() == {"messages": [0, 1]}
    assert forward(sides)
    assert sides.equal() == {"t": {"n": 3}}
    assert [one.label for one in sides.thread(sides.source).history()] == [
        None,
        None,
        *(f"number {n}" for n in range(4)),
    ]


@pytest.mark.parametrize("rows", ["few", "many"])
@pytest.mark.parametrize("change", ["a save", "an annotation"])
def test_only_saves_may_be_made_meanwhile(sides: Sides, rows: str, change: str, request: pytest.FixtureRequest) -> None:
    """A follower would have a mark that its heads do not know of."""
    if rows == "many":
        request.getfixturevalue("many_rows")
    thread = sides.thread(sides.target)
    saved = [thread.save({"n": n}, label="labelled") for n in range(3)]

    class Busy(Flaky):
        """Somebody changes the thread whenever its rows are read."""

        async def rows(self, *args: Any) -> Any:
            self._act()
            return await self.engine.rows(*args)

        async def steps(self, *args: Any, **options: Any) -> Any:
            self._act()
            return await self.engine.steps(*args, **options)

        def _act(self) -> None:
            if change == "a save":
                thread.save({"n": "meanwhile"})
            else:
                thread.annotate(saved[0].id, label="said meanwhile")

    done = finish(fast_forward(Busy(sides.target), sides.source, "t", None, 1))
    assert done is (change == "a save")
    assert sides.thread(sides.source).load() == ({"n": 2} if done else {"messages": [0, 1]})
    sides.merge(1)
    sides.equal()


def test_a_follower_that_has_a_branch_more_is_left_to_a_merge_if_it_is_not_known_what_it_lacks(sides: Sides) -> None:
    """A merge was stopped before it had dropped that."""
    sides.thread(sides.target).append("messages", ["two"])
    finish(sides.source.commit(Commit("t", branches=[sample_records.branch("t")])))
    assert not finish(fast_forward(sides.target, sides.source, "t", None, 1))
    sides.merge(1)
    assert sides.equal() == {"t": {"messages": [0, 1, "two"]}}
    assert len(finish(sides.source.branches("t"))) == 1


def test_a_follower_that_moves_meanwhile_refuses(sides: Sides) -> None:
    sides.thread(sides.target).append("messages", ["two"])

    class Moving(Flaky):
        """Another process ships right before this one."""

        async def commit(self, commit: Any) -> None:
            await self.engine.commit(commit)
            await self.engine.commit(commit)

    with pytest.raises(Refused):
        forward(sides, follower=Moving(sides.source))
    assert sides.equal() == {"t": {"messages": [0, 1, "two"]}}
