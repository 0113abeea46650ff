"""A name that two lineages claim: one thread keeps it, the other gets another name, and both sides agree on which."""

from __future__ import annotations

import pytest

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


def exchanged() -> Sides:
    """On the target "x" is a fork of "p" and "y" one of "q", on the source it is the other way round."""
    sides = contested("target")
    sides.thread(sides.target, 2, "q").fork("y")
    sides.thread(sides.source, 1, "p").fork("y")
    sides.thread(sides.target, 2, "y").append("messages", ["on the target"])
    sides.thread(sides.source, 1, "y").append("messages", ["on the source"])
    return sides


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
def test_names_that_two_lineages_have_exchanged_are_told_apart(first: str) -> None:
    sides = exchanged()
    diverged = sides.merge(2, first)
    diverged += sides.merge(2, "q" if first == "p" else "p")
    assert sorted(diverged) == [("x", "x#diverged-1"), ("y", "y#diverged-1")]
    assert sides.equal() == {
        **CONTESTED,
        "x": said("p", "on the target"),
        "x#diverged-1": said("q", "on the source"),
        "y": said("q", "on the target"),
        "y#diverged-1": said("p", "on the source"),
    }


@pytest.mark.parametrize("first", ["p", "q"])
def test_a_merge_of_contested_names_that_dies_after_any_change_is_finished_by_the_next(first: str) -> None:
    died = 0
    for at in range(1, 40):
        sides, process = exchanged(), Lifetime(at)
        try:
            sides.merge(2, first, None, process.side(sides.target), process.side(sides.source))
        except Unavailable:
            died += 1
        for lineage in ("p", "q", "p"):
            sides.merge(2, lineage)
        found = sides.equal()
        assert (found["x"], found["y"]) == (said("p", "on the target"), said("q", "on the target"))
        kept = [state for name, state in found.items() if "#diverged" in name]
        assert sorted(kept, key=str) == [said("p", "on the source"), said("q", "on the source")]
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
