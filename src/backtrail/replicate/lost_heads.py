"""The steps up to a head that lost: those that only the follower has, and those that the active side has as well.

A caller that chooses the id of a checkpoint may repeat a save whose outcome is unknown. If the first attempt reached a
side that then failed and the second one the other side, both have it, on different branches. By its id it is one save.
Only checkpoints that were not saved again are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backtrail.engines.base import Engine, Head, Position
from backtrail.engines.branch_origins import walk_back

_MOST = 1 << 17  # ids that are compared; a checkpoint beyond them counts as lost, which is safe
_LOW, _HIGH = bytes(16), b"\xff" * 16


class Lost(NamedTuple):
    """The walk back from a head to the steps that both sides have."""

    positions: list[Position]  #: steps that only the follower has, newest first
    branches: list[bytes]  #: branches of these of which the active side has no step
    newest: bytes | None  #: the id of the newest checkpoint that was not saved again; None: all of them were
    known: bytes | None  #: the id of the newest one that both have
    way: Mapping[bytes, int]  #: all branches of the walk, each with its last step


async def lost_to(active: Engine, follower: Engine, head: Head, here: Head | None) -> Lost:
    """The steps that only the follower has of a thread whose head is `head` there, and `here` on the active side."""
    lineage = head.lineage
    theirs = {branch.id: branch for branch in await follower.branches(lineage)}
    ours = {branch.id: branch for branch in await active.branches(lineage)}
    found = await active.locate(lineage, _LOW, _HIGH, _MOST) if here is not None else []
    # Only steps in the thread's history count: a comparison may have been interrupted after the rows, before the head.
    again = {id for branch, _, id in found if here is not None and branch in ours and ours[branch].owner == here.owner}
    way = {segment.branch.id: segment.last for segment in walk_back(head.position, theirs.get)}
    lost = Lost([], [], None, None, way)
    for branch, last in lost.way.items():
        known = await active.steps(lineage, branch, 0, last)
        for step in reversed(await follower.steps(lineage, branch, known[-1].step + 1 if known else 1, last)):
            lost.positions.append((branch, step.step))
            if lost.newest is None and step.id not in again:
                lost = lost._replace(newest=step.id)
        if branch in ours:
            return lost._replace(known=known[-1].id if known else None)
        lost.branches.append(branch)
    return lost
