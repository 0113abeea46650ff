"""Reach: which rows and blobs the living checkpoints of a lineage need, and which nobody needs any more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from backtrail.encode.assemble import RowRanges, blobs_needed, merge_spans, rows_needed, unread_pages
from backtrail.encode.frame import describe_row
from backtrail.encode.row_format import unpack_root
from backtrail.errors import Corrupt, UnsafePath, UnsupportedFormat
from backtrail.history.ancestry import SeenStep
from backtrail.history.context import Context
from backtrail.history.lineage import LineageView, Place
from backtrail.history.pace import Pace
from backtrail.history.state_reader import StateReader
from backtrail.history.zstd_dictionary import is_dictionary

PLAIN = frozenset({"thread", "session", "run"})  # kinds whose blobs are all named by their roots
ASIDE, GAP = b"aside:", b"gap:"  # blobs in which a repair keeps what it set aside, and which gaps it left
# A blob named ASIDE alone, and nothing else, says that there are others, whose names follow.
TOGETHER = 128  # rows whose roots are read at once


class Needs(msgspec.Struct, frozen=True):
    """What living states point at."""

    rows: RowRanges
    blobs: set[bytes]

    def row(self, branch: bytes, step: int) -> bool:
        ranges = self.rows.get(branch)
        if not ranges:
            return False
        at = bisect_right(ranges, (step, 2**33)) - 1
        return at >= 0 and ranges[at][1] >= step


async def needs(context: Context, lineage: str, places: Iterable[Place]) -> Needs:
    """Read the roots at these places, and tell what they point at."""
    reader, pace = StateReader(context, lineage), Pace(context.engine)
    spans: set[tuple[bytes, int, int]] = set()
    blobs: set[bytes] = set()
    for branch, ranges in merge_spans((branch, step, step) for branch, step in places).items():
        for first, last in ranges:
            for start in range(first, last + 1, TOGETHER):
                for row in await context.engine.rows(lineage, branch, start, min(last, start + TOGETHER - 1)):
                    where = describe_row(branch, row.step)
                    root = unpack_root(context.frames.unwrap(row.root, f"{where}: root"), branch, where)
                    tree = root.tree
                    while pages := list(unread_pages(tree)):
                        spans.update((page.branch, page.step, page.step) for page in pages)
                        await reader.fetch((page.branch, page.step, page.step) for page in pages)
                        tree = reader.assembler.tree(tree)
                    pace.breathe()
                    spans.update(rows_needed([tree]))
                    blobs.update(blobs_needed([tree]))
    return Needs(merge_spans(spans), blobs)


class Garbage(msgspec.Struct, frozen=True):
    """What a lineage could do without."""

    rows: list[Place]  #: to go whole
    bodies: list[Place]  #: of these the light half stays, because a row that stays is chained to it
    branches: list[bytes]
    blobs: list[bytes]
    bytes: int
    count: int  #: rows that go, those of whole branches included
    light: int  #: bytes that rows say they wrote, and whose bodies have gone before
    unsure: str | None = None  #: why all blobs stay: what some of them are needed for cannot be read

    def __bool__(self) -> bool:
        return bool(self.rows or self.bodies or self.branches or self.blobs)


NO_GARBAGE = Garbage([], [], [], [], 0, 0, 0)


async def garbage(context: Context, view: LineageView, doomed: set[Place], *, all_blobs: bool) -> Garbage:
    """What is left when the checkpoints at `doomed` are gone too. Blobs are looked at if rows go, or if asked for."""
    living = {place: seen for place, seen in view.living().items() if place not in doomed}
    dead = [seen for rows in view.rows.values() for seen in rows if seen.place not in living]
    if not dead and not all_blobs and len(view.branches) == sum(1 for rows in view.rows.values() if rows):
        return NO_GARBAGE
    needed = await needs(context, view.lineage, living)
    gone = {seen.place: seen for seen in dead if not needed.row(*seen.place)}
    staying = {seen.place for rows in view.rows.values() for seen in rows if seen.place not in gone}
    links = {_before(view, branch, step) for branch, step in staying}
    rows = [place for place in gone if place not in links]
    bodies = []
    for branch, step in (place for place in gone if place in links):
        row = await context.engine.row(view.lineage, branch, step)
        if row is not None and row.root:
            bodies.append((branch, step))
    needed_branches = {
        branch
        for start in {*(b for b, _ in staying), *(head.branch for head in view.heads)}
        for branch in view.ancestors(start)
    }
    needed_branches |= {branch for branch, step in gone if (branch, step) in links}
    branches = [branch for branch in view.branches if branch not in needed_branches]
    whole = set(branches)  # their rows go with them
    blobs: list[bytes] = []
    unsure: str | None = None
    if gone or all_blobs:
        try:
            blobs = await _orphans(context, view, living, needed.blobs)
        except (Corrupt, UnsafePath, UnsupportedFormat) as error:
            unsure = str(error)  # rows may go all the same: only blobs are pointed at from there
    size = sum(gone[place].meta.written for place in (*rows, *bodies))
    light = sum(seen.meta.written for seen in gone.values()) - size
    return Garbage(
        [place for place in rows if place[0] not in whole],
        bodies,
        branches,
        blobs,
        size,
        len(rows) + len(bodies),
        light,
        unsure,
    )


def _before(view: LineageView, branch: bytes, step: int) -> Place | None:
    """The place that a row's digest is chained to."""
    origin = view.branches[branch].origin
    if origin is not None and step == origin[1] + 1:
        return origin
    return (branch, step - 1)


async def _orphans(
    context: Context, view: LineageView, living: dict[Place, SeenStep], needed: set[bytes]
) -> list[bytes]:
    if not view.branches:
        return []  # a workspace that writes the files of its first snapshot ahead of it
    pool = await context.engine.blob_ids(view.lineage)
    if not pool or not all(head.kind in context.blob_finders or head.kind in PLAIN for head in view.heads):
        return []
    needed = set(needed)
    for head in view.heads:
        if head.kind in context.blob_finders:
            needed |= await context.blob_finders[head.kind](context, head.thread, [*living.values()])
    return [id for id, _ in pool if id not in needed and not is_dictionary(id) and not id.startswith((ASIDE, GAP))]
