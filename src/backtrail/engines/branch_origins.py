"""The walk from a position back along the `origin` of each branch: the only one, used by every layer.

It does no I/O: the caller passes a lookup of branch records. A thread's history is the walk back from its head. Steps
strictly descend along the way, because a branch follows a row that exists; where they do not, the walk ends. So it ends
in any store, whatever somebody wrote into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from backtrail.engines.base import Branch, Position

BranchLookup = Callable[[bytes], Branch | None]


class Segment(NamedTuple):
    """Steps first..last of a branch; none if `last` is smaller."""

    branch: Branch
    first: int
    last: int


def walk_back(position: Position, branch_of: BranchLookup) -> Iterator[Segment]:
    """The segments of branches from `position` back to the thread's first row, newest first.

    Ends early at a position that no row can have: in a branch that is missing, or before its first step; see
    `is_complete`."""
    following: Position | None = position
    while following is not None:
        branch = branch_of(following[0])
        if branch is None or following[1] < first_step(branch):
            return
        yield Segment(branch, first_step(branch), following[1])
        following = branch.origin


def walk_back_from_start(id: bytes, branch_of: BranchLookup) -> Iterator[Segment]:
    """The walk back from the first step of a branch."""
    branch = branch_of(id)
    return iter(()) if branch is None else walk_back((id, first_step(branch)), branch_of)


def furthest(positions: Iterable[Position], branch_of: BranchLookup) -> dict[bytes, int]:
    """The highest step of each branch in the walks back from these positions. All steps of the branch up to it are in
    one of them. Each branch is passed once, however many walks lead through it."""
    found: dict[bytes, int] = {}
    for position in positions:
        for segment in walk_back(position, branch_of):
            id = segment.branch.id
            passed = id in found
            found[id] = max(segment.last, found.get(id, 0))
            if passed:
                break
    return found


def is_complete(segments: list[Segment]) -> bool:
    """True if a walk reached the thread's first row."""
    return bool(segments) and segments[-1].branch.origin is None


def leads_through(position: Position, target: Position, branch_of: BranchLookup) -> bool:
    """True if `target` is an ancestor of `position`, or is that position."""
    if position[0] == target[0]:
        return position[1] >= target[1]
    origins = (segment.branch.origin for segment in walk_back(position, branch_of))
    return any(origin is not None and origin[0] == target[0] and origin[1] >= target[1] for origin in origins)


def first_step(branch: Branch) -> int:
    """The number of a branch's first step."""
    return 1 if branch.origin is None else branch.origin[1] + 1


def previous_position(branch: Branch, step: int) -> Position | None:
    """The position of the row before this one, to which its digest is chained; None for a thread's first row."""
    if step > first_step(branch):
        return (branch.id, step - 1)
    return branch.origin
