"""The steps behind a head that lost: those that only the follower has, and those that the active side has as well.

A caller who chooses the id of a checkpoint may save it again when it does not know whether it was saved. If the first
attempt reached a side that went away and the second one the other side, both have it, on different branches. It is one
save, by its id. Only checkpoints that were not saved again are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backtrail.engines.base import Engine, Head, Position
from backtrail.engines.branch_origins import walk_back

_MOST = 1 << 17  # ids that are looked at; a checkpoint beyond them counts as lost, which is safe
_LOW, _HIGH = bytes(16), b"\xff" * 16


class Lost(NamedTuple):
    """The way back from a head to what both sides have."""

    positions: list[Position]  #: steps that only the follower has, newest first
    branches: list[bytes]  #: of these, branches that the active side has nothing of
    newest: bytes | None  #: the id of the newest checkpoint that was not saved again; None: all of them were
    known: bytes | None  #: the id of the newest one that both have
    way: Mapping[bytes, int]  #: all branches on the way back, each with the last step that is on it


async def lost_to(active: Engine, follower: Engine, head: Head, here: Head | None) -> Lost:
    """The steps that only the follower has of a thread whose head is `head` there, and `here` on the active side."""
    lineage = head.lineage
    theirs = {branch.id: branch for branch in await follower.branches(lineage)}
    ours = {branch.id: branch for branch in await active.branches(lineage)}
    found = await active.locate(lineage, _LOW, _HIGH, _MOST) if here is not None else []
    # Only what the thread itself has there: rows may have been brought by a comparison that was cut before their head.
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
