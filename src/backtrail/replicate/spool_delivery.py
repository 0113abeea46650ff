"""Delivers a spool: the active side absorbs what was saved while no side was reachable.

A spooled head becomes the thread's head if that is still the one that the first spooled save was built on. If others
wrote to the thread meanwhile, it loses, and is kept as any head that lost. A save that had already reached the side
(its answer was lost, or a delivery was interrupted and is repeated) is recognized by its row, one that its caller has
repeated elsewhere by its id. A save that builds on a step that the active side does not have stays in the spool:
without that step it could not be read. A lineage that has to wait does not delay others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from backtrail.engines.base import Engine, Head, HeadKey, Step
from backtrail.engines.branch_origins import previous_position
from backtrail.engines.conflicts import Refused
from backtrail.replicate import limits
from backtrail.replicate.absorption import Absorption, Merged
from backtrail.replicate.deleted_threads import Deletions, Fate
from backtrail.replicate.lineage_copy import Copied, LineageRecords
from backtrail.replicate.merge_rules import Codec, Rule
from backtrail.replicate.spool import Spool, SpooledLineage


class Stranded(Refused):
    """A save in the spool cannot be delivered: it builds on a step that the active side does not have."""

    def __init__(self, lineage: str, reason: str) -> None:
        super().__init__(lineage, f"what was spooled for {lineage!r} stays in the spool: {reason}")


class IfNobodyElseWrote(Rule):
    """For a spool: its head becomes the thread's if that is the one that its first save was built on."""

    whole = False

    def __init__(self, bases: Mapping[str, HeadKey | None], side: LineageRecords) -> None:
        self._bases, self._side = bases, side

    def wins(self, theirs: Head, ours: Head, *, ours_seen: bool) -> bool:
        # If the spool has the row at the thread's head, that is one of these saves, which had reached the side; unless
        # all of them had, and somebody moved the head back.
        continues = ours_seen and self._side.step(theirs.position) is None
        return continues or self._bases[theirs.thread] == ours.key

    def begins(self, theirs: Head) -> bool:
        return self._bases[theirs.thread] is None

    def fate(self, theirs: Head, deletions: Deletions) -> Fate:
        if deletions.own is None:
            return Fate.ALIVE
        # A thread that was created in the spool can only have been deleted after it had been delivered; but another
        # process may have spooled more of it since.
        delivered = self.begins(theirs) and theirs.version <= deletions.own.version
        return Fate.DEAD if delivered else Fate.UNSEEN


async def deliver(
    spool: Spool, lineage: str, active: Engine, sides: Collection[Engine], codec: Codec, generation: int
) -> Merged:
    """Have the active side absorb the spooled saves of a lineage, and delete them here. Safe to interrupt at any point
    and to repeat, even by two processes at once. `sides`: all that can be reached."""
    for _ in limits.DELIVERY.attempts():
        spooled = await spool.read(lineage)
        if spooled is None:
            return Merged(Copied())  # another process has delivered it
        try:
            merged = await _deliver(spool, spooled, lineage, active, sides, codec, generation)
        except Stranded:
            raise
        except Refused:
            continue  # others write to the same threads
        if await spool.clear(lineage, spooled.journal):
            return merged
    raise Refused(lineage, f"lineage {lineage!r} kept moving while the spool was delivered: it is tried again")


async def _deliver(
    spool: Spool,
    spooled: SpooledLineage,
    lineage: str,
    active: Engine,
    sides: Collection[Engine],
    codec: Codec,
    generation: int,
) -> Merged:
    heads = {head.thread: head for head in await active.heads(lineage)}
    ours = await LineageRecords.read(active, lineage, heads)
    theirs = await _records(spool, spooled, lineage, ours)
    await _check_bases(active, lineage, ours, theirs)
    merged, rule = Merged(Copied()), IfNobodyElseWrote(spooled.bases, ours)
    absorption = Absorption(active, spool.engine, lineage, codec, generation, rule, merged, sides)
    await absorption.decide(ours, theirs)
    await absorption.commit()
    return merged


async def _records(spool: Spool, spooled: SpooledLineage, lineage: str, ours: LineageRecords) -> LineageRecords:
    """The spool as if it were a side: with the branches that its rows continue, and the rows that it has marked."""
    all_heads = {**spooled.heads, spooled.journal.thread: spooled.journal}
    found = await LineageRecords.read(spool.engine, lineage, all_heads)
    branches = {id: branch for id, branch in found.branches.items() if branch.thread}
    steps: dict[bytes, dict[int, Step]] = {}
    for id, rows in found.steps.items():
        if id == spooled.journal.branch:
            continue
        steps[id] = dict(rows)
        if id not in branches:
            if id not in ours.branches:
                raise Stranded(lineage, f"the active side does not have branch {id.hex()}")
            branches[id] = ours.branches[id]
    for mark in spooled.marks:
        known = ours.step((mark.branch, mark.step))
        if known is not None and found.step((mark.branch, mark.step)) is None:
            branches[mark.branch] = ours.branches[mark.branch]
            steps.setdefault(mark.branch, {})[mark.step] = known._replace(mark=mark.data)
    return LineageRecords(spooled.heads, branches, steps)


async def _check_bases(active: Engine, lineage: str, ours: LineageRecords, theirs: LineageRecords) -> None:
    """Raise `Stranded` if the row before one of the spooled rows is missing, or was freed."""
    for id, steps in theirs.steps.items():
        for number in steps:
            before = previous_position(theirs.branches[id], number)
            if before is None or ours.step((id, number)) is not None or theirs.step(before) is not None:
                continue
            row = await active.row(lineage, *before)
            if row is None or not row.root:
                raise Stranded(lineage, f"it builds on step {before[1]} of a branch, which is not there")
