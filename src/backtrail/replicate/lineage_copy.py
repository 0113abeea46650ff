"""Copies rows, branches and blobs of one lineage from one engine to another.

A head must never point at a row that is missing. So a few rows come in the same commit as the heads. Of many, most are
copied before, and some are held back for that commit: the last row of each branch, and the row of each head. A copy
that is interrupted leaves the held rows missing, by which the next one sees that the heads have not come yet. And if a
sweep has removed a branch meanwhile, the engine refuses the held row of it, and with it the heads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping

import msgspec

from backtrail.engines.base import LAST_STEP, Branch, Commit, Drop, Engine, Head, Mark, NewRow, Position, Row, Step
from backtrail.engines.conflicts import Refused
from backtrail.engines.delegating_engine import WrappingEngine

Progress = Callable[[int, int], object]  #: called with the records and bytes copied so far
_BATCH = 4 * 1024 * 1024  # bytes in one commit, of at most so many rows:
_BATCH_ROWS = 4096
ROWS = 256  #: rows read at once, and at most so many come with the heads


class LineageRecords(msgspec.Struct, frozen=True):
    """The heads, branches and light halves of rows that one side has of a lineage."""

    heads: Mapping[str, Head]
    branches: Mapping[bytes, Branch]
    steps: Mapping[bytes, Mapping[int, Step]]  #: by branch

    @classmethod
    async def read(cls, side: Engine, lineage: str, heads: Mapping[str, Head] | None = None) -> LineageRecords:
        """Read everything, or all but the heads, which the caller read before; `Refused` if they have moved
        meanwhile."""
        heads = await heads_of(side, lineage) if heads is None else heads
        branches = {branch.id: branch for branch in await side.branches(lineage)}
        steps = {id: {one.step: one for one in await side.steps(lineage, id, 0, LAST_STEP)} for id in branches}
        found = cls(heads, branches, steps)
        await found.check_unmoved(side, lineage)
        return found

    async def check_unmoved(self, side: Engine, lineage: str) -> None:
        """Raise `Refused` if the side has other heads now."""
        if await heads_of(side, lineage) != self.heads:
            raise _moved(lineage)

    def marks_like(self, other: LineageRecords) -> bool:
        """True if no row has different marks on two sides. Heads do not tell that if the one that told of a mark was
        deleted on both."""
        return all(
            step.mark == twin.mark
            for id, steps in self.steps.items()
            for number, step in steps.items()
            if (twin := other.step((id, number))) is not None
        )

    def rows_like(self, other: LineageRecords) -> bool:
        """True if two sides have the same rows with the same marks, also those that no head needs: half a delivery of a
        spool, or garbage that a sweep has freed on one side."""
        return self.branches.keys() == other.branches.keys() and self.steps == other.steps

    def step(self, position: Position) -> Step | None:
        """The light half of the row at this position."""
        return self.steps.get(position[0], {}).get(position[1])


async def heads_of(side: Engine, lineage: str) -> dict[str, Head]:
    """The heads of a lineage, by thread."""
    return {head.thread: head for head in await side.heads(lineage)}


class Copied(msgspec.Struct):
    """The number and the bytes of the records that were copied."""

    records: int = 0
    bytes: int = 0
    progress: Progress | None = None

    def add(self, commit: Commit) -> None:
        self.records += len(commit.rows) + len(commit.blobs)
        self.bytes += commit.size
        if self.progress is not None and (commit.rows or commit.blobs):
            self.progress(self.records, self.bytes)


class CountingEngine(WrappingEngine):
    """An engine that counts what is copied to it."""

    def __init__(self, engine: Engine, copied: Copied) -> None:
        super().__init__(engine)
        self._copied = copied

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self._copied.add(commit)


async def copy_blobs(source: Engine, target: Engine, lineage: str) -> None:
    """Copy all blobs that the target lacks."""
    have = {id for id, _ in await target.blob_ids(lineage)}
    batch: list[bytes] = []
    weight = 0
    for id, size in [(id, size) for id, size in await source.blob_ids(lineage) if id not in have]:
        batch.append(id)
        weight += size
        if weight >= _BATCH:
            await target.commit(Commit(lineage, blobs=await source.blobs(lineage, batch)))
            batch, weight = [], 0
    if batch:
        await target.commit(Commit(lineage, blobs=await source.blobs(lineage, batch)))


async def copy_rows(
    source: Engine,
    target: Engine,
    lineage: str,
    lacking: Mapping[Branch, Collection[int]],
    known: Collection[bytes],
    hold: Collection[Position],
    records: LineageRecords | None = None,
) -> Commit:
    """Copy the rows that the target lacks, by branch, with their marks; returns those that are held back, for the
    commit of the heads. `known`: the branches that the target has. `hold`: positions of heads, which are held back
    besides the last row of each branch. `records`: the marks as they were with the heads that are copied; a row may
    have got another one since."""
    held: list[NewRow] = []
    branches: list[Branch] = []
    marks: list[Mark] = []
    few = sum(map(len, lacking.values())) <= ROWS  # all of them come with the heads, unless they are large
    weight = 0
    for branch, numbers in lacking.items():
        steps = sorted(numbers)
        first = () if branch.id in known else (branch,)
        batch: list[Row] = []
        size = 0
        for start in range(0, len(steps), ROWS):
            wanted = {*steps[start : start + ROWS]}
            found = await source.rows(lineage, branch.id, min(wanted), max(wanted))
            rows = [row for row in found if row.step in wanted]
            if len(rows) < len(wanted):
                raise _moved(lineage)  # a sweep has removed some since they were counted
            if records is not None:
                rows = [row._replace(mark=records.steps[branch.id][row.step].mark) for row in rows]
            for row in rows:
                weight += len(row.root) + len(row.payload)
                if row.step == steps[-1] or (branch.id, row.step) in hold or (few and weight < _BATCH):
                    held.append(new_row(branch.id, row))
                    marks.extend(_marks(branch.id, [row]))
                else:
                    batch.append(row)
                    size += len(row.root) + len(row.payload)
                    if size >= _BATCH or len(batch) >= _BATCH_ROWS:
                        await target.commit(_commit(lineage, branch.id, batch, first))
                        batch, first, size = [], (), 0
        if batch:
            await target.commit(_commit(lineage, branch.id, batch, first))
            first = ()
        branches.extend(first)
    return Commit(lineage, (), held, branches, marks)


def _moved(lineage: str) -> Refused:
    return Refused(lineage, f"lineage {lineage!r} changed while it was read: look again")


def new_row(branch: bytes, row: Row) -> NewRow:
    """A row that was read, to be written elsewhere."""
    return NewRow(branch, row.step, row.id, row.meta, row.digest, row.root, row.payload)


def _marks(branch: bytes, rows: list[Row]) -> list[Mark]:
    return [Mark(branch, row.step, row.mark) for row in rows if row.mark is not None]


def _commit(lineage: str, branch: bytes, rows: list[Row], branches: tuple[Branch, ...]) -> Commit:
    return Commit(lineage, (), [new_row(branch, row) for row in rows], branches, _marks(branch, rows))


async def free_all(side: Engine, lineage: str) -> None:
    """Delete everything that a side has of a lineage; `Refused` if it has a thread. Branches that come meanwhile, with
    the deletion of a thread that somebody else ships, hang on those that are deleted, so they go as well."""
    while branches := [branch.id for branch in await side.branches(lineage)]:
        blobs = [id for id, _ in await side.blob_ids(lineage)]
        await side.drop(Drop(lineage, (), branches=branches, blobs=blobs))


async def clear(side: Engine, lineage: str) -> None:
    """Delete everything of a lineage in which no thread is left."""
    with contextlib.suppress(Refused):  # a thread appeared: whoever made it goes on from here
        await free_all(side, lineage)
