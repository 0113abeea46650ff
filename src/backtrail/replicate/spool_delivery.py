"""Delivers a spool: the active side absorbs what was saved while no side was reachable.

A spooled head becomes the thread's head if the thread is still at the row that the first spooled save was built on. If
others saved to the thread or moved it meanwhile, it loses, and is kept as any head that lost. A save that had already
reached the side (its answer was lost, or a delivery was interrupted and is repeated) is recognized by its row, one that
its caller has repeated elsewhere by its id. A save that builds on a step that the active side does not have waits for
the side that has it. If none has, because others deleted it, the save is delivered without it, as a thread of its own.
A lineage that has to wait does not delay others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from backtrail.engines.base import LAST_STEP, Branch, Commit, Drop, Engine, Head, HeadKey, Swap
from backtrail.engines.branch_origins import furthest, is_complete, previous_position, walk_back
from backtrail.engines.conflicts import Refused
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Corrupt, InvalidInput
from backtrail.replicate import limits
from backtrail.replicate.absorption import Absorption, Merged, Pair
from backtrail.replicate.deleted_threads import Deletions, Fate, find_deletions
from backtrail.replicate.lineage_copy import LineageRecords
from backtrail.replicate.merge_rules import Codec, Rule, SpooledRow
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.spool import Spool, SpooledLineage
from backtrail.replicate.status import log


class Stranded(Refused):
    """A save in the spool cannot be delivered: it builds on a step that the active side does not have."""

    def __init__(self, lineage: str, reason: str) -> None:
        super().__init__(lineage, f"what was spooled for {lineage!r} stays in the spool: {reason}")


class IfNobodyElseWrote(Rule):
    """For a spool: its head becomes the thread's if that is where its first save was built on. Versions in it were made
    beside those of a side, so all get the current generation."""

    whole = False
    renews = True

    def __init__(self, bases: Mapping[str, HeadKey | None], side: LineageRecords) -> None:
        self._bases, self._side = bases, side

    def wins(self, theirs: Head, ours: Head, *, ours_seen: bool) -> bool:
        # If the spool has the row at the thread's head, that is one of these saves, which had reached the side; unless
        # all of them had, and somebody moved the head back. Others may have annotated and deleted other checkpoints.
        base = self._bases[theirs.thread]
        is_there = ours_seen or (base is not None and base[:2] == ours.position)
        return base == ours.key or (is_there and self._side.step(theirs.position) is None)

    def begins(self, theirs: Head) -> bool:
        return self._bases[theirs.thread] is None

    def fate(self, theirs: Head, deletions: Deletions) -> Fate:  # noqa: ARG002 - other rules need it
        if deletions.own is None:
            return Fate.ALIVE
        # Also of a thread that began in the spool: its first save may have reached a side before it was spooled, and
        # whoever deleted it there did not know those after it.
        return Fate.UNSEEN


class Courier:
    """Delivers all lineages of a spool to the active side of a mirror, and knows which have to wait."""

    def __init__(self, mirror: Mirror, spool: Spool) -> None:
        self._mirror, self._spool = mirror, spool
        self.stranded: set[str] = set()  #: lineages that could not be delivered

    async def deliver_all(self, *, stranded: bool = True) -> None:
        """Deliver all lineages; `stranded`: also those that could not be delivered before."""
        lineages = await self._spool.lineages()
        if lineages:
            await self._check_same_store()
        for lineage in lineages:
            if stranded or lineage not in self.stranded:
                await self.try_to_deliver(lineage)

    async def try_to_deliver(self, lineage: str) -> None:
        """Deliver a lineage, unless it has to wait."""
        try:
            await self._deliver(lineage)
            self.stranded.discard(lineage)
        except (Refused, Corrupt) as error:
            self.stranded.add(lineage)
            self._mirror.failover.last_error = str(error)
            log.warning("%s", error)

    async def _deliver(self, lineage: str) -> None:
        failover, replicator = self._mirror.failover, self._mirror.replicator
        standing = failover.standing
        sides = [standing.side(standing.active)]
        if failover.is_healthy(standing.follower):
            sides.append(failover.sides[standing.follower])
        deliver_to = partial(deliver, self._spool, lineage, sides, replicator.codec, standing.generation)
        try:
            merged = await deliver_to()
        except Stranded:
            await replicator.merge_now(lineage)
            merged = await deliver_to(detach=True)
        replicator.count_diverged(merged.diverged)
        replicator.mark(lineage)  # the follower lacks it

    async def _check_same_store(self) -> None:
        """Refuse to deliver to a store that is sealed with other keys than the spooled saves."""
        side = self._mirror.sides[self._mirror.failover.standing.active]
        for name, known in (await self._spool.rings()).items():
            if not known.is_ring(await side.head(name)):
                raise InvalidInput(
                    "the spool holds saves of a store with another key ring: open it with that store, or give spool= "
                    "another directory"
                )


async def deliver(
    spool: Spool,
    lineage: str,
    sides: Sequence[Engine],
    codec: Codec,
    generation: int,
    *,
    detach: bool = False,
) -> Merged:
    """Have the active side absorb the spooled saves of a lineage, and delete them here. Safe to interrupt at any point
    and to repeat, even by two processes at once. `sides`: all that can be reached, the active one first. `detach`: both
    sides are equal, so what is missing is gone."""
    merged, active = Merged(), sides[0]
    for _ in limits.DELIVERY.attempts():
        try:
            spooled = await spool.read(lineage)
            if spooled is None:
                return merged  # another process has delivered it
            await _take_back(spooled, lineage, active)  # what a delivery that died had left
            # What is found out about the saves holds for these records: if their branches are freed meanwhile, the side
            # refuses the saves.
            ours = await LineageRecords.read(active, lineage)
            for source, theirs in await _sources(spool, spooled, lineage, ours, sides, codec, detach):
                if source is not spool.engine:
                    ours = await LineageRecords.read(active, lineage)
                rule = IfNobodyElseWrote(spooled.bases, ours)
                absorption = Absorption(Pair(active, source, codec, generation, rule, sides), lineage, merged)
                await absorption.decide(ours, theirs)
                await absorption.commit()
            if await _take_back(spooled, lineage, active):
                continue
        except Stranded:
            raise
        except Refused:
            continue  # others write to the same threads
        if await spool.clear(lineage, spooled.journal):
            return merged
    raise Refused(lineage, f"lineage {lineage!r} kept moving while the spool was delivered: it is tried again")


async def _take_back(spooled: SpooledLineage, lineage: str, active: Engine) -> bool:
    """Take spooled saves back from a side if a sweep has freed what they build on at the moment when they came: until
    then no head needed it. The spool still has them. Their rows go first: without a head, it would look as if whoever
    deleted the thread had seen them."""
    records = spooled.records
    moved = {head.position for head in records.heads.values()}
    heads = await active.heads(lineage)
    branches = {branch.id: branch for branch in await active.branches(lineage)}
    holes = [id for id, steps in records.steps.items() if await _is_behind_a_hole(active, branches.get(id), min(steps))]
    broken = []
    for head in heads:
        if head.position in moved or records.step(head.position) is not None:
            way = list(walk_back(head.position, branches.get))
            if not is_complete(way) or any(segment.branch.id in holes for segment in way):
                broken.append(head)
    if broken:
        needed = furthest((head.position for head in heads if head not in broken), branches.get)
        gone = {head.branch for head in broken} - needed.keys()
        rows = [(id, step) for id in holes if id not in gone for step in sorted(records.steps[id], reverse=True)]
        expect = [(head.thread, head.key) for head in heads]
        await active.drop(Drop(lineage, expect, rows=rows, branches=[*gone]))
        await active.commit(Commit(lineage, [Swap(head.thread, head.key, None) for head in broken]))
    return bool(broken)


async def _is_behind_a_hole(side: Engine, branch: Branch | None, step: int) -> bool:
    """True if a side has this row and not the one before it."""
    before = None if branch is None else previous_position(branch, step)
    if branch is None or before is None or await side.row(branch.lineage, *before) is not None:
        return False
    return await side.row(branch.lineage, branch.id, step) is not None


async def _sources(
    spool: Spool,
    spooled: SpooledLineage,
    lineage: str,
    ours: LineageRecords,
    sides: Sequence[Engine],
    codec: Codec,
    detach: bool,
) -> list[tuple[Engine, LineageRecords]]:
    """The spool as if it were a side, and each thread that has lost its base, as one that begins in the spool."""
    active, found = sides[0], spooled.records
    lost = await _without_base(found, active, lineage, ours)
    if lost and not detach:
        raise Stranded(lineage, f"thread {min(lost)!r} builds on a step that the active side does not have")
    sources: list[tuple[Engine, LineageRecords]] = [(spool.engine, _records(spooled, ours, lost))]
    for thread in sorted(lost):
        head = found.heads[thread]
        deletions = await find_deletions(sides, head)
        saves = [
            SpooledRow(head, (id, row.step), row)
            for id, branch in found.branches.items()
            if branch.thread == thread
            for row in await spool.engine.rows(lineage, id, 1, LAST_STEP)
            if not deletions.knew((id, row.step))
        ]
        saves.sort(key=lambda save: save.row.step)  # each after the one that it builds on
        if saves:  # else all of them had reached a side, or the thread was only moved, and is gone
            alone = MemoryEngine()
            await alone.commit(await codec.detach(spool.engine, saves))
            sources.append((alone, await LineageRecords.read(alone, lineage)))
    return sources


async def _without_base(found: LineageRecords, active: Engine, lineage: str, ours: LineageRecords) -> set[str]:
    """The threads of which the row at the head, or the one before the first row of a branch, is missing or was freed;
    and those that were only moved or annotated in the spool, and that the active side has not."""
    lost: set[str] = set()
    for id, branch in found.branches.items():
        first = min(found.steps[id])
        before = previous_position(branch, first)
        if before is not None and ours.step((id, first)) is None and found.step(before) is None:
            row = await active.row(lineage, *before)
            if row is None or not row.root:
                lost.add(branch.thread)
    known, saved = {head.owner for head in ours.heads.values()}, {branch.thread for branch in found.branches.values()}
    for thread, head in found.heads.items():
        missing = ours.step(head.position) is None and found.step(head.position) is None
        if missing or (thread not in saved and head.owner not in known):
            lost.add(thread)
    return lost


def _records(spooled: SpooledLineage, ours: LineageRecords, without: set[str]) -> LineageRecords:
    """The spool as if it were a side: with the branches that it has placeholders of, and the rows that it has
    marked."""
    found = spooled.records
    heads = {thread: head for thread, head in found.heads.items() if thread not in without}
    kept = {id: branch for id, branch in found.branches.items() if branch.thread not in without}
    branches = {id: ours.branches.get(id, branch) for id, branch in kept.items()}
    steps = {id: dict(found.steps[id]) for id in branches}
    for mark in spooled.marks:
        known = ours.step((mark.branch, mark.step))
        if known is not None and found.step((mark.branch, mark.step)) is None:
            branches[mark.branch] = ours.branches[mark.branch]
            steps.setdefault(mark.branch, {})[mark.step] = known._replace(mark=mark.data)
    return LineageRecords(heads, branches, steps)
