"""The way back from a position, along the `origin` of each branch: the one walk that every layer uses.

It is pure: the caller says where records of branches are found. A thread's history is the way back from its head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from backtrail.engines.base import Branch, Position

BranchLookup = Callable[[bytes], Branch | None]


class Segment(NamedTuple):
    """Steps first..last of a branch; none if `last` is smaller."""

    branch: Branch
    first: int
    last: int


def walk_back(position: Position, branch_of: BranchLookup) -> Iterator[Segment]:
    """The parts of branches on the way from `position` to the first row of all, newest first.

    Ends early where a branch is missing or comes a second time; see `is_complete`."""
    following: Position | None = position
    passed: set[bytes] = set()
    while following is not None and following[0] not in passed:
        branch = branch_of(following[0])
        if branch is None:
            return
        passed.add(branch.id)
        yield Segment(branch, first_step(branch), following[1])
        following = branch.origin


def is_complete(segments: list[Segment]) -> bool:
    """True if a walk came to the first row of all."""
    return bool(segments) and segments[-1].branch.origin is None


def leads_through(position: Position, target: Position, branch_of: BranchLookup) -> bool:
    """True if `target` is on the way back from `position`, or is that position."""
    if position[0] == target[0]:
        return position[1] >= target[1]
    origins = (segment.branch.origin for segment in walk_back(position, branch_of))
    return any(origin is not None and origin[0] == target[0] and origin[1] >= target[1] for origin in origins)


def first_step(branch: Branch) -> int:
    """The number of a branch's first step."""
    return 1 if branch.origin is None else branch.origin[1] + 1


def previous_position(branch: Branch, step: int) -> Position | None:
    """The position of the row before this one, to which it is chained; None for the first of all."""
    if step > first_step(branch):
        return (branch.id, step - 1)
    return branch.origin
