"""The walk back along `origin`, and the row before a row."""

from __future__ import annotations

import itertools

import pytest

from backtrail.engines.base import Branch
from backtrail.engines.branch_origins import (
    first_step,
    is_complete,
    leads_through,
    previous_position,
    walk_back,
    walk_back_from_start,
)

FIRST = Branch(b"1", "l", "t", b"o")
SECOND = Branch(b"2", "l", "t", b"o", (b"1", 5))
THIRD = Branch(b"3", "l", "u", b"p", (b"2", 7))
BRANCHES = {branch.id: branch for branch in (FIRST, SECOND, THIRD)}


def test_a_walk_names_the_steps_of_each_branch_on_the_way_back() -> None:
    segments = list(walk_back((b"3", 9), BRANCHES.get))
    assert [(s.branch.id, s.first, s.last) for s in segments] == [(b"3", 8, 9), (b"2", 6, 7), (b"1", 1, 5)]
    assert is_complete(segments)


def test_a_walk_ends_where_a_branch_is_missing() -> None:
    segments = list(walk_back((b"3", 9), {b"3": THIRD, b"2": SECOND}.get))
    assert [s.branch.id for s in segments] == [b"3", b"2"]
    assert not is_complete(segments)
    assert not is_complete(list(walk_back((b"?", 1), BRANCHES.get)))


@pytest.mark.parametrize("steps", list(itertools.product((1, 2, 3, 8, 2**62), repeat=3)), ids=str)
def test_a_walk_through_branches_that_go_round_in_a_circle_ends(steps: tuple[int, int, int]) -> None:
    ids = (b"1", b"2", b"3")
    circle = {
        id: Branch(id, "l", "t", b"o", (after, step))
        for id, after, step in zip(ids, (*ids[1:], ids[0]), steps, strict=True)
    }
    segments = list(itertools.islice(walk_back((b"1", 2**62 + 1), circle.get), 4))
    assert len(segments) < 4
    assert not is_complete(segments)


def test_a_walk_ends_at_a_position_before_the_first_step_of_its_branch() -> None:
    early = {**BRANCHES, b"3": Branch(b"3", "l", "t", b"o", (b"2", 5))}
    segments = list(walk_back((b"3", 9), early.get))
    assert [s.branch.id for s in segments] == [b"3"]
    assert not is_complete(segments)


def test_a_walk_from_the_start_of_a_branch_has_one_step_of_it() -> None:
    segments = list(walk_back_from_start(b"3", BRANCHES.get))
    assert [(s.branch.id, s.first, s.last) for s in segments] == [(b"3", 8, 8), (b"2", 6, 7), (b"1", 1, 5)]
    assert list(walk_back_from_start(b"?", BRANCHES.get)) == []


def test_a_position_leads_through_those_before_it_and_no_others() -> None:
    assert leads_through((b"3", 9), (b"3", 9), BRANCHES.get)
    assert leads_through((b"3", 9), (b"1", 5), BRANCHES.get)
    assert not leads_through((b"3", 9), (b"1", 6), BRANCHES.get)
    assert not leads_through((b"1", 5), (b"3", 8), BRANCHES.get)
    assert leads_through((b"?", 2), (b"?", 1), BRANCHES.get)


def test_the_row_before_the_first_of_a_branch_is_its_origin() -> None:
    assert (first_step(FIRST), first_step(SECOND)) == (1, 6)
    assert previous_position(FIRST, 1) is None
    assert previous_position(FIRST, 2) == (b"1", 1)
    assert previous_position(SECOND, 6) == (b"1", 5)
    assert previous_position(SECOND, 7) == (b"2", 6)
