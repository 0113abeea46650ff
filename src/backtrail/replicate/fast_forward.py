"""Fast-forward: ships the newest saves of a lineage to a follower that only lags behind.

A merge reads the light halves of all rows. If all that happened since the follower was equal is that threads were saved
to, as nearly always, the new rows are the ends of branches, and nothing else has to be read. It is recognized by the
heads alone: each save adds one to the step and one to the version of a head.
"""

from __future__ import annotations

from collections.abc import Collection

from backtrail.engines.base import Branch, Commit, Engine, Head, Mark, NewRow, Swap, changes_of, generation_of
from backtrail.engines.branch_origins import first_step
from backtrail.replicate.lineage_copy import new_row

_MOST = 1024  # rows in one commit; a merge copies more of them in parts


async def fast_forward(
    active: Engine, follower: Engine, lineage: str, blobs: Collection[bytes], generation: int
) -> bool:
    """Make the follower equal, in one commit; False if it does not just lag behind, or by too much. `blobs`: those that
    were written since it was equal. `Refused` if its heads are moving."""
    theirs = {head.thread: head for head in await follower.heads(lineage)}
    ours = {head.thread: head for head in await active.heads(lineage)}
    if not theirs.keys() <= ours.keys():
        return False
    moved = [(theirs.get(thread), head) for thread, head in ours.items() if theirs.get(thread) != head]
    if sum(new.step - (old.step if old is not None else 0) for old, new in moved) > _MOST:
        return False
    known: dict[bytes, Branch] | None = None
    rows: list[NewRow] = []
    branches: list[Branch] = []
    marks: list[Mark] = []
    for old, new in moved:
        if not _only_saved(old, new, generation):
            return False
        first = 1 if old is None else old.step + 1
        if old is None or old.branch != new.branch:
            if known is None:
                known = {branch.id: branch for branch in await active.branches(lineage)}
            branch = known.get(new.branch)
            if branch is None or branch.origin != (None if old is None else old.position):
                return False
            first = first_step(branch)
            branches.append(branch)
        found = await active.rows(lineage, new.branch, first, new.step)
        if len(found) != new.step - first + 1:
            return False
        rows += [new_row(new.branch, row) for row in found]
        marks += [Mark(new.branch, row.step, row.mark) for row in found if row.mark is not None]
    if marks and {head.thread: head for head in await active.heads(lineage)} != ours:
        return False  # they may have been made after the heads that are shipped
    contents = await active.blobs(lineage, list(blobs)) if blobs else {}
    swaps = [Swap(new.thread, None if old is None else old.key, new) for old, new in moved]
    if swaps or contents:
        await follower.commit(Commit(lineage, swaps, rows, branches, marks, contents))
    return True


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
