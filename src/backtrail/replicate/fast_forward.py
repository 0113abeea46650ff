"""Fast-forward: ships the newest saves of a lineage to a follower that only lags behind.

A merge reads the light halves of all rows, and starts over if a head moves meanwhile. If all that happened since the
follower was equal is that threads were saved to, as nearly always, the new rows are the ends of branches, and nothing
else has to be read; and saves that are made meanwhile do no harm. It is recognized by the heads alone: each save adds
one to the step and one to the version of a head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from backtrail.engines.base import Branch, Engine, Head, Step, Swap, changes_of, generation_of
from backtrail.engines.branch_origins import first_step
from backtrail.replicate import lineage_copy
from backtrail.replicate.lineage_copy import LineageRecords, copy_blobs, copy_rows, heads_of


async def fast_forward(
    active: Engine, follower: Engine, lineage: str, blobs: Collection[bytes] | None, generation: int
) -> bool:
    """Make the follower equal; False if it does not just lag behind. `blobs`: those that were written since it was
    equal; None if that is not known. `Refused` if its heads are moving."""
    theirs, ours = await heads_of(follower, lineage), await heads_of(active, lineage)
    moved = [(theirs.get(thread), head) for thread, head in ours.items() if theirs.get(thread) != head]
    if not theirs.keys() <= ours.keys() or not all(_only_saved(old, new, generation) for old, new in moved):
        return False
    branches: dict[bytes, Branch] = {}
    if blobs is None or any(old is None or old.branch != new.branch for old, new in moved):
        branches = {branch.id: branch for branch in await active.branches(lineage)}
    if blobs is None and not (moved and {one.id for one in await follower.branches(lineage)} <= branches.keys()):
        return False  # it has more than it should, or heads do not tell the difference
    lacking: dict[Branch, Collection[int]] = {}
    for old, new in moved:
        if old is not None and old.branch == new.branch:
            branch, first = Branch(new.branch, lineage, new.thread, new.owner), old.step + 1
        else:
            found = branches.get(new.branch)
            if found is None or found.origin != (None if old is None else old.position):
                return False
            branch, first = found, first_step(found)
        lacking[branch] = range(first, new.step + 1)
    records: LineageRecords | None = None
    if sum(map(len, lacking.values())) > lineage_copy.ROWS:  # they come in parts, of which some may be there
        records = LineageRecords(ours, {}, {one.id: await _steps(active, one, of) for one, of in lacking.items()})
        for branch, numbers in lacking.items():
            there = await _steps(follower, branch, numbers)
            lacking[branch] = [number for number in numbers if number not in there]
        if not await _goes_on(active, lineage, ours, generation):
            return False
    known = {old.branch for old, _ in moved if old is not None}
    if blobs is None:
        await copy_blobs(active, follower, lineage)
    hold = {new.position for _, new in moved}
    if records is None:
        hold = {(branch.id, number) for branch, numbers in lacking.items() for number in numbers}
    held = await copy_rows(active, follower, lineage, lacking, known, hold, records)
    if records is None and held.marks and not await _goes_on(active, lineage, ours, generation):
        return False
    contents = await active.blobs(lineage, list(blobs)) if blobs else {}
    swaps = [Swap(new.thread, None if old is None else old.key, new) for old, new in moved]
    if swaps or contents:
        await follower.commit(msgspec.structs.replace(held, swaps=swaps, blobs=contents))
    return True


async def _steps(side: Engine, branch: Branch, numbers: Collection[int]) -> dict[int, Step]:
    found = await side.steps(branch.lineage, branch.id, min(numbers), max(numbers))
    return {step.step: step for step in found}


async def _goes_on(active: Engine, lineage: str, heads: Mapping[str, Head], generation: int) -> bool:
    """True if there were only saves since these heads were read: so marks that were read are not newer than they."""
    now = await heads_of(active, lineage)
    later = [(head, now.get(thread)) for thread, head in heads.items() if now.get(thread) != head]
    return all(new is not None and _only_saved(old, new, generation) for old, new in later)


def _only_saved(old: Head | None, new: Head, generation: int) -> bool:
    """True if nothing but saves lies between two heads, both of this generation: only then were they made on one side,
    one after the other."""
    if new.step == 0 or any(generation_of(head.version) != generation for head in (old or new, new)):
        return False
    if old is None:
        return changes_of(new.version) == new.step == new.count
    saves = new.step - old.step
    return (
        old.owner == new.owner
        and 0 < saves == changes_of(new.version) - changes_of(old.version)
        and new.count - old.count == saves
    )
