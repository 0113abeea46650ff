"""Reachability: which rows and blobs the living checkpoints of a lineage need, and which are garbage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from backtrail.encode.tree_walks import Needs, RowRanges, merge_spans, pages_of
from backtrail.engines.base import Position
from backtrail.engines.branch_origins import previous_position
from backtrail.errors import Corrupt, OverBudget, UnsafePath, UnsupportedFormat
from backtrail.history import run_status
from backtrail.history.ancestry import HistoryStep
from backtrail.history.context import Context
from backtrail.history.lineage_view import LineageView
from backtrail.history.state_reader import StateReader
from backtrail.history.throttle import Throttle
from backtrail.history.zstd_dictionary import is_dictionary

PLAIN_KINDS = frozenset(
    {"thread", "session", *run_status.KINDS.values()}
)  # kinds whose blobs are all named by their roots
ASIDE, GAP = b"aside:", b"gap:"  # prefixes of blobs in which a repair keeps damaged records, and the gaps it left
# A blob named just ASIDE marks that there are others, whose names begin with it.
_BATCH = 128  # rows whose roots are read at once


class Needed(msgspec.Struct, frozen=True):
    """The rows and blobs that living states point at."""

    rows: RowRanges
    blobs: set[bytes]

    def has_row(self, branch: bytes, step: int) -> bool:
        """True if a state needs this row."""
        ranges = self.rows.get(branch)
        if not ranges:
            return False
        at = bisect_right(ranges, (step, 2**33)) - 1
        return at >= 0 and ranges[at][1] >= step


async def find_needed(context: Context, lineage: str, positions: Iterable[Position], throttle: Throttle) -> Needed:
    """Read the roots at these positions, and find what they point at."""
    reader = StateReader(context, lineage)
    spans: set[tuple[bytes, int, int]] = set()
    blobs: set[bytes] = set()
    for branch, ranges in merge_spans((branch, step, step) for branch, step in throttle.over(positions)).items():
        for first, last in ranges:
            for start in range(first, last + 1, _BATCH):
                for row in await context.engine.rows(lineage, branch, start, min(last, start + _BATCH - 1)):
                    tree = (await reader.root(branch, row.step, row.root)).tree
                    throttle.pause()
                    spans.update((page.branch, page.step, page.step) for page in pages_of(tree))
                    needs = Needs([tree])
                    spans |= needs.spans
                    blobs.update(needs.blobs)
    return Needed(merge_spans(spans), blobs)


class Garbage(msgspec.Struct, frozen=True):
    """The records of a lineage that can be freed."""

    rows: list[Position]  #: to be deleted completely
    bodies: list[Position]  #: only root and payload are freed: a remaining row is chained to the light half
    branches: list[bytes]
    blobs: list[bytes]
    bytes: int
    count: int  #: rows to be deleted, those of whole branches included
    light: int  #: bytes that rows recorded as written, and whose bodies were freed before
    unsure: str | None = None  #: the reason why all blobs stay: a checkpoint that may need some of them cannot be read
    #: duplicates of deleted saves: before the row that tells of the deletion is freed, they are marked as deleted, too
    duplicates: list[Position] = []

    def __bool__(self) -> bool:
        return bool(self.rows or self.bodies or self.branches or self.blobs or self.duplicates)


NO_GARBAGE = Garbage([], [], [], [], 0, 0, 0)


async def find_garbage(context: Context, view: LineageView, doomed: set[Position], *, all_blobs: bool) -> Garbage:
    """The garbage of a lineage once the checkpoints at `doomed` are deleted, too. Includes blobs if rows are deleted,
    or if `all_blobs`."""
    stay, go = view.duplicates(doomed)
    over = view.throttle.over
    living = {position: one for position, one in over(view.living().items()) if position not in doomed}
    living |= {one.position: one for one in stay}
    dead = [one for rows in view.rows.values() for one in over(rows) if one.position not in living]
    if not dead and not all_blobs and len(view.branches) == sum(1 for rows in view.rows.values() if rows):
        return NO_GARBAGE
    needed = await find_needed(context, view.lineage, living, view.throttle)
    gone = {one.position: one for one in over(dead) if not needed.has_row(*one.position)}
    staying = {one.position for rows in view.rows.values() for one in over(rows) if one.position not in gone}
    links = {previous_position(view.branches[branch], step) for branch, step in over(staying)}
    rows = [position for position in over(gone) if position not in links]
    whole_rows = set(rows)
    bodies = []
    for branch, step in (position for position in over(gone) if position in links):
        row = await context.engine.row(view.lineage, branch, step)
        # Also if this was done before and the row before it goes only now: of a mirror, one side may have missed it.
        if row is not None and (row.root or previous_position(view.branches[branch], step) in whole_rows):
            bodies.append((branch, step))
    needed_branches = view.with_ancestors(
        {*(branch for branch, _ in over(staying)), *(head.branch for head in view.heads)}
    )
    needed_branches |= {branch for branch, step in over(gone) if (branch, step) in links}
    branches = [branch for branch in view.branches if branch not in needed_branches]
    whole = set(branches)  # deleted with all their rows
    blobs: list[bytes] = []
    unsure: str | None = None
    if gone or all_blobs:
        try:
            blobs = await _unneeded_blobs(context, view, living, needed.blobs)
        except (Corrupt, OverBudget, UnsafePath, UnsupportedFormat) as error:
            unsure = str(error)  # rows can be freed all the same: only blobs are referenced from there
    size = sum(gone[position].meta.written for position in over((*rows, *bodies)))
    light = sum(one.meta.written for one in over(gone.values())) - size
    return Garbage(
        [position for position in rows if position[0] not in whole],
        bodies,
        branches,
        blobs,
        size,
        len(rows) + len(bodies),
        light,
        unsure,
        [one.position for one in go],
    )


async def _unneeded_blobs(
    context: Context, view: LineageView, living: dict[Position, HistoryStep], needed: set[bytes]
) -> list[bytes]:
    if not view.branches:
        return []  # a workspace writes the files of its first snapshot before the snapshot itself
    pool = await context.engine.blob_ids(view.lineage)
    if not pool or not all(head.kind in context.blob_finders or head.kind in PLAIN_KINDS for head in view.heads):
        return []
    needed = set(needed)
    for head in view.heads:
        if head.kind in context.blob_finders:
            needed |= await context.blob_finders[head.kind](context, head.thread, [*living.values()])
    return [id for id, _ in pool if id not in needed and not is_dictionary(id) and not id.startswith((ASIDE, GAP))]
