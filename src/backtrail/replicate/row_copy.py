"""Copies the blobs, branches and rows of a lineage that one side lacks, in batches that are each one commit."""

from __future__ import annotations

from collections.abc import Container, Sequence

from backtrail.engines.base import LAST_STEP, Branch, Commit, Engine, Mark, NewRow, Row, Step
from backtrail.engines.conflicts import Refused
from backtrail.replicate.report import Progress, Report
from backtrail.replicate.sweep_tombstones import Swept

_BATCH = 4 * 1024 * 1024  # bytes in one commit
_ROWS = 256  # rows read at once
_APART = (
    "thread {thread!r} was written to in both stores after one was made from the other (both have their own step "
    "{step}): nothing was changed; copy one of them into an empty store"
)


class Apart(Refused):
    """Both stores continued the same branch, or are sealed with different keys: they have no union."""


class Transfer:
    """The copy of one lineage from one side to the other."""

    def __init__(self, lineage: str, report: Report, progress: Progress | None) -> None:
        self.lineage = lineage
        self.report = report
        self._progress = progress

    async def rows(
        self,
        source: Engine,
        target: Engine,
        without: Swept | None = None,
    ) -> list[Mark]:
        """Copy blobs first, then branches with their rows, so that nothing ever points at a missing record. Returns the
        marks that existing rows of the target lack, for the caller to write.

        `without`: the source is the follower. It replaces nothing in the target, and these records are not copied."""
        authority = without is None
        without = without or Swept()
        await self._blobs(source, target, without.blobs)
        known = {branch.id for branch in await target.branches(self.lineage)}
        marks: list[Mark] = []
        for branch in await source.branches(self.lineage):
            marks += await self._branch(source, target, branch, branch.id not in known, authority, without)
        return marks

    async def _blobs(self, source: Engine, target: Engine, without: Container[bytes]) -> None:
        have = {id for id, _ in await target.blob_ids(self.lineage)}
        found = await source.blob_ids(self.lineage)
        lacking = [(id, size) for id, size in found if id not in have and id not in without]
        batch: list[bytes] = []
        weight = 0
        for id, size in lacking:
            batch.append(id)
            weight += size
            if weight >= _BATCH:
                await self._copy_blobs(source, target, batch)
                batch, weight = [], 0
        if batch:
            await self._copy_blobs(source, target, batch)

    async def _copy_blobs(self, source: Engine, target: Engine, ids: list[bytes]) -> None:
        found = await source.blobs(self.lineage, ids)
        await target.commit(Commit(self.lineage, blobs=found))
        self._count(len(found), sum(map(len, found.values())))

    async def _branch(
        self,
        source: Engine,
        target: Engine,
        branch: Branch,
        new: bool,
        authority: bool,
        without: Swept,
    ) -> list[Mark]:
        steps = await source.steps(self.lineage, branch.id, 0, LAST_STEP)
        ours = {step.step: step for step in steps if (branch.id, step.step) not in without}
        if new and steps and not ours:
            return []
        theirs = {} if new else {step.step: step for step in await target.steps(self.lineage, branch.id, 0, LAST_STEP)}
        for number, step in theirs.items():
            if number in ours and ours[number].digest != step.digest:
                raise Apart(branch.thread, _APART.format(thread=branch.thread, step=number))
        lacking = sorted(number for number in ours if number not in theirs)
        first = (branch,) if new else ()
        for i in range(0, len(lacking), _ROWS):
            numbers = lacking[i : i + _ROWS]
            chosen = set(numbers)
            rows = await source.rows(self.lineage, branch.id, numbers[0], numbers[-1])
            for batch in _batches([row for row in rows if row.step in chosen]):
                marks = [Mark(branch.id, row.step, row.mark) for row in batch if row.mark is not None]
                new_rows = [_new(branch.id, row) for row in batch]
                await self._copy(target, Commit(self.lineage, rows=new_rows, branches=first, marks=marks))
                first = ()
        if first:
            await self._copy(target, Commit(self.lineage, branches=first))
        return [
            Mark(branch.id, number, step.mark)
            for number, step in ours.items()
            if number in theirs and _lacks_mark(step, theirs[number], authority)
        ]

    async def _copy(self, target: Engine, commit: Commit) -> None:
        await target.commit(commit)
        self._count(len(commit.rows), sum(len(row.root) + len(row.payload) + len(row.meta) for row in commit.rows))

    def _count(self, records: int, size: int) -> None:
        self.report.records += records
        self.report.bytes += size
        if self._progress is not None:
            self._progress(self.report.records, self.report.bytes)


def _lacks_mark(ours: Step, theirs: Step, authority: bool) -> bool:
    """True if the mark of a step has to be copied or, with `authority`, deleted."""
    return ours.mark != theirs.mark and (authority or theirs.mark is None)


def _new(branch: bytes, row: Row) -> NewRow:
    return NewRow(branch, row.step, row.id, row.meta, row.digest, row.root, row.payload)


def _batches(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in runs of at most a few megabytes."""
    batches: list[list[Row]] = []
    weight = 0
    for row in rows:
        if not batches or weight >= _BATCH:
            batches.append([])
            weight = 0
        batches[-1].append(row)
        weight += len(row.root) + len(row.payload) + len(row.meta)
    return batches
