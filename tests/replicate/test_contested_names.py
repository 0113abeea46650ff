"""A name that two lineages claim: one thread keeps it, the other gets another name, and both sides agree on which."""

from __future__ import annotations

import pytest

import backtrail
from backtrail.errors import Unavailable
from fix_generations import Lifetime, Sides


def said(*messages: str) -> dict[str, list[str]]:
    return {"messages": list(messages)}


def contested(newer: str) -> Sides:
    """Two sides with threads "p" and "q". On the target "x" is a fork of "p", on the source it is one of "q"."""
    sides = Sides()
    for name in ("p", "q"):
        sides.thread(sides.target, 1, name).append("messages", [name])
        sides.merge(1, name)
    for side, parent in (("target", "p"), ("source", "q")):
        generation = 2 if side == newer else 1
        sides.thread(getattr(sides, side), generation, parent).fork("x")
        sides.thread(getattr(sides, side), generation, "x").append("messages", [f"on the {side}"])
    return sides


def exchanged(newer: str) -> Sides:
    """On the target "x" is a fork of "p" and "y" one of "q", on the source it is the other way round."""
    sides = contested(newer)
    for side, parent in (("target", "q"), ("source", "p")):
        generation = 2 if side == newer else 1
        sides.thread(getattr(sides, side), generation, parent).fork("y")
        sides.thread(getattr(sides, side), generation, "y").append("messages", [f"on the {side}"])
    return sides


def told_apart(sides: Sides, newer: str) -> None:
    """Both sides have all four threads, and those of the newer generation have the names."""
    found = sides.equal()
    older = "source" if newer == "target" else "target"
    for name in ("x", "y"):
        assert found.pop(name)["messages"][1] == f"on the {newer}"
        assert found.pop(f"{name}#diverged-1")["messages"][1] == f"on the {older}"
    assert found == CONTESTED


CONTESTED = {
    "p": said("p"),
    "q": said("q"),
}


@pytest.mark.parametrize("first", ["p", "q"])
@pytest.mark.parametrize("newer", ["target", "source"])
def test_the_thread_of_the_newer_generation_keeps_the_name_whichever_lineage_is_merged_first(
    newer: str, first: str
) -> None:
    sides = contested(newer)
    diverged = sides.merge(2, first)
    diverged += sides.merge(2, "q" if first == "p" else "p")
    assert diverged == [("x", "x#diverged-1")]
    one, two = said("p", "on the target"), said("q", "on the source")
    winner, loser = (one, two) if newer == "target" else (two, one)
    assert sides.equal() == {**CONTESTED, "x": winner, "x#diverged-1": loser}
    assert sides.merge(2, "p") == sides.merge(2, "q") == []


@pytest.mark.parametrize("first", ["p", "q"])
@pytest.mark.parametrize("newer", ["target", "source"])
def test_names_that_two_lineages_have_exchanged_are_told_apart(newer: str, first: str) -> None:
    sides = exchanged(newer)
    diverged = sides.merge(2, first)
    diverged += sides.merge(2, "q" if first == "p" else "p")
    assert sorted(diverged) == [("x", "x#diverged-1"), ("y", "y#diverged-1")]
    told_apart(sides, newer)


@pytest.mark.parametrize("first", ["p", "q"])
@pytest.mark.parametrize("newer", ["target", "source"])
def test_a_merge_of_contested_names_that_dies_after_any_change_is_finished_by_the_next(newer: str, first: str) -> None:
    died = 0
    for at in range(1, 40):
        sides, process = exchanged(newer), Lifetime(at)
        try:
            sides.merge(2, first, None, process.side(sides.target), process.side(sides.source))
        except Unavailable:
            died += 1
        for lineage in ("p", "q", "p"):
            sides.merge(2, lineage)
        told_apart(sides, newer)
        if process.left > 0:
            break
    assert died >= 2


def test_a_thread_that_was_created_under_the_name_of_a_fork_is_told_apart_from_it() -> None:
    sides = Sides()
    sides.thread(sides.target, 1, "p").append("messages", ["p"])
    sides.merge(1, "p")
    sides.thread(sides.target, 1, "p").fork("x")
    sides.thread(sides.source, 2, "x").append("messages", ["new"])
    diverged = sides.merge(2, "p") + sides.merge(2, "x")
    assert diverged == [("x", "x#diverged-1")]
    assert sides.equal() == {"p": said("p"), "x": said("new"), "x#diverged-1": said("p")}


def test_a_thread_comes_with_its_row_although_a_fork_that_stands_on_the_same_row_waits_for_its_name() -> None:
    died = 0
    for at in range(1, 20):
        sides, process = Sides(), Lifetime(at)
        sides.thread(sides.source, 1, "x").append("messages", ["older"])
        sides.thread(sides.target, 2, "p").append("messages", ["p"])
        sides.thread(sides.target, 2, "p").fork("x")
        try:
            sides.merge(2, "p", None, process.side(sides.target), process.side(sides.source))
        except Unavailable:
            died += 1
        for side in (sides.target, sides.source):
            for info in backtrail.open(side).threads():
                assert backtrail.open(side).thread(info.id).load()
        sides.merge(2, "p")
        assert sides.equal() == {"p": said("p"), "x": said("p"), "x#diverged-1": said("older")}
        if process.left > 0:
            break
    assert died >= 2
