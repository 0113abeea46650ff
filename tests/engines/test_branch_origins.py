"""The walk back along `origin`, and the row before a row."""

from __future__ import annotations

from backtrail.engines.base import Branch
from backtrail.engines.branch_origins import first_step, is_complete, leads_through, previous_position, walk_back

FIRST = Branch(b"1", "l", "t", b"o")
SECOND = Branch(b"2", "l", "t", b"o", (b"1", 5))
THIRD = Branch(b"3", "l", "u", b"p", (b"2", 5))  # begins where the second did: none of its rows are on the way
BRANCHES = {branch.id: branch for branch in (FIRST, SECOND, THIRD)}


def test_a_walk_names_the_steps_of_each_branch_on_the_way_back() -> None:
    segments = list(walk_back((b"3", 9), BRANCHES.get))
    assert [(s.branch.id, s.first, s.last) for s in segments] == [(b"3", 6, 9), (b"2", 6, 5), (b"1", 1, 5)]
    assert is_complete(segments)


def test_a_walk_ends_where_a_branch_is_missing() -> None:
    segments = list(walk_back((b"3", 9), {b"3": THIRD, b"2": SECOND}.get))
    assert [s.branch.id for s in segments] == [b"3", b"2"]
    assert not is_complete(segments)
    assert not is_complete(list(walk_back((b"?", 1), BRANCHES.get)))


def test_a_walk_through_branches_that_go_round_in_a_circle_ends() -> None:
    circle = {b"1": Branch(b"1", "l", "t", b"o", (b"2", 3)), b"2": Branch(b"2", "l", "t", b"o", (b"1", 3))}
    segments = list(walk_back((b"1", 9), circle.get))
    assert [s.branch.id for s in segments] == [b"1", b"2"]
    assert not is_complete(segments)


def test_a_position_leads_through_those_before_it_and_no_others() -> None:
    assert leads_through((b"3", 9), (b"3", 9), BRANCHES.get)
    assert leads_through((b"3", 9), (b"1", 5), BRANCHES.get)
    assert not leads_through((b"3", 9), (b"1", 6), BRANCHES.get)
    assert not leads_through((b"1", 5), (b"3", 6), BRANCHES.get)
    assert leads_through((b"?", 2), (b"?", 1), BRANCHES.get)


def test_the_row_before_the_first_of_a_branch_is_its_origin() -> None:
    assert (first_step(FIRST), first_step(SECOND)) == (1, 6)
    assert previous_position(FIRST, 1) is None
    assert previous_position(FIRST, 2) == (b"1", 1)
    assert previous_position(SECOND, 6) == (b"1", 5)
    assert previous_position(SECOND, 7) == (b"2", 6)
