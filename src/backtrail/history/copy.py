"""Copies everything of one store into another, whatever their engines, compression and keys.

Each lineage is copied by itself: blobs, branches, rows and marks that the other store lacks, and the heads last. So a
copy that was killed can be resumed, and the other store never shows a thread whose rows have not arrived. Writers may
continue meanwhile: a lineage in which something was swept or deleted during its copy is read again. Checkpoints deleted
or swept since an earlier copy are deleted in the other store, too, in the same commit that moves the head.

Between stores without keys, bytes are copied unchanged. Otherwise each frame is opened and sealed again, and blobs get
the names that they have in the other store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from backtrail.encode.seal import SealedFrames
from backtrail.engines.base import (
    LAST_STEP,
    Branch,
    Commit,
    Head,
    Mark,
    NewRow,
    Row,
    Step,
    Swap,
    changes_of,
    next_version,
)
from backtrail.engines.conflicts import refusals_as_conflicts
from backtrail.errors import Conflict, Corrupt
from backtrail.history.context import Context
from backtrail.history.keyring import adopt_names
from backtrail.history.lineage_checks import LineageCheck
from backtrail.history.records import deletion, now_micros, open_mark, open_note, with_note
from backtrail.history.reencrypt import Digests, Reencryption
from backtrail.history.retry import COPIES
from backtrail.history.sweep import Progress, lineages
from backtrail.model import Copied

Steps = dict[bytes, dict[int, Step]]  # by branch and step
_ROWS = 256  # rows in one commit, at most
_BLOBS = 16


async def copy(source: Context, target: Context, progress: Progress | None = None) -> Copied:
    """Copy everything that the target lacks, and verify the copy. `progress` is called with (done, total)."""
    source.check_open()
    target.check_open()
    await adopt_names(source, target)
    names = [name async for name in lineages(source)]
    total = Copied()
    for number, lineage in enumerate(names, 1):
        with refusals_as_conflicts():
            done = await _LineageCopy(source, target, lineage).run()
        total = Copied(
            threads=total.threads + done.threads,
            rows=total.rows + done.rows,
            blobs=total.blobs + done.blobs,
            bytes=total.bytes + done.bytes,
        )
        if progress is not None:
            progress(number, len(names))
    return total


class _LineageCopy:
    """The copy of one lineage."""

    def __init__(self, source: Context, target: Context, lineage: str) -> None:
        self._source = source
        self._target = target
        self._lineage = lineage
        plain = not isinstance(source.frames, SealedFrames) and not isinstance(target.frames, SealedFrames)
        self._reencryption = None if plain else Reencryption(source, target, lineage)
        self._rows = self._blobs = self._bytes = 0

    async def run(self) -> Copied:
        for _ in COPIES.attempts():
            heads = await self._source.engine.heads(self._lineage)
            for head in heads:  # before any mark is written on rows that may be the target's own
                await self._target_head(head)
            branches = await self._source.engine.branches(self._lineage)
            before = await self._read_steps(self._source, branches)
            if not _limit_to(heads, await self._source.engine.heads(self._lineage), before):
                continue
            await self._copy_blobs()
            await self._copy_rows(branches, before)
            after = await self._read_steps(self._source, branches)
            if all(_unchanged(after[branch], rows) for branch, rows in before.items()):
                break
        else:
            raise Conflict(self._lineage, message=f"{self._lineage!r} kept being swept: copy it again")
        threads = sum([await self._copy_head(head, before) for head in heads])
        if self._rows or self._blobs or threads:
            await self._check()
        return Copied(threads=threads, rows=self._rows, blobs=self._blobs, bytes=self._bytes)

    async def _read_steps(self, context: Context, branches: list[Branch]) -> Steps:
        return {
            branch.id: {step.step: step for step in await context.engine.steps(self._lineage, branch.id, 1, LAST_STEP)}
            for branch in branches
        }

    async def _copy_blobs(self) -> None:
        engine = self._source.engine
        there = {id for id, _ in await self._target.engine.blob_ids(self._lineage)}
        if self._reencryption is None:
            lacking = [id for id, _ in await engine.blob_ids(self._lineage) if id not in there]
        else:
            lacking = await self._reencryption.missing_blobs(there)
        for start in range(0, len(lacking), _BLOBS):
            blobs = await engine.blobs(self._lineage, lacking[start : start + _BLOBS])
            if self._reencryption is not None:
                blobs = self._reencryption.blobs(blobs)
            await self._target.engine.commit(Commit(self._lineage, blobs=blobs))
            self._blobs += len(blobs)
            self._bytes += sum(map(len, blobs.values()))

    async def _copy_rows(self, branches: list[Branch], steps: Steps) -> None:
        engine = self._target.engine
        known = {branch.id for branch in await engine.branches(self._lineage)}
        there = await self._read_steps(self._target, branches)
        digests = {(branch, step): one.digest for branch, rows in there.items() for step, one in rows.items()}
        for branch in branches:
            have = there[branch.id]
            lacking = [step for step in steps[branch.id] if step not in have]
            new = () if branch.id in known else (self._new_branch(branch, digests),)
            async for rows in self._read_rows(branch, lacking):
                made = [_new_row(branch.id, row) for row in rows]
                marks = [Mark(branch.id, row.step, row.mark) for row in rows if row.mark is not None]
                if self._reencryption is not None:
                    made, marks = await self._reencryption.rows(branch, rows, digests)
                digests.update(((branch.id, row.step), row.digest) for row in made)
                await engine.commit(Commit(self._lineage, rows=made, branches=new, marks=marks))
                new = ()
                self._rows += len(made)
                self._bytes += sum(len(row.meta) + len(row.root) + len(row.payload) for row in made)
            if new:
                await engine.commit(Commit(self._lineage, branches=new))
            await self._copy_marks(branch, steps[branch.id], have)

    def _new_branch(self, branch: Branch, digests: Digests) -> Branch:
        return branch if self._reencryption is None else self._reencryption.branch(branch, digests)

    async def _copy_marks(self, branch: Branch, steps: dict[int, Step], have: dict[int, Step]) -> None:
        """Copy the marks made since the last copy on rows that the target had already."""
        marks = []
        for step, one in have.items():
            if step in steps:
                mark = steps[step].mark
                if self._reencryption is not None and mark is not None:
                    changed = not self._reencryption.same_mark(branch, step, mark, one.mark)
                    mark = self._reencryption.mark(branch.id, step, mark) if changed else one.mark
                if mark != one.mark:
                    marks.append(Mark(branch.id, step, mark))
        if marks:
            await self._target.engine.commit(Commit(self._lineage, marks=marks))

    async def _read_rows(self, branch: Branch, steps: list[int]) -> AsyncIterator[list[Row]]:
        for start in range(0, len(steps), _ROWS):
            part = steps[start : start + _ROWS]
            wanted = set(part)
            rows = await self._source.engine.rows(self._lineage, branch.id, part[0], part[-1])
            yield [row for row in rows if row.step in wanted]

    async def _copy_head(self, head: Head, steps: Steps) -> bool:
        """Move the target's head to the position of the source's; True if it had to be moved. Checkpoints that were
        swept in the source since the last copy are deleted in the same commit: the new head does not count them. The
        target may have them without a head, from a copy that was killed or an attempt that was repeated."""
        there = await self._target_head(head)
        if there is not None and changes_of(there.version) == changes_of(head.version):
            return False
        # The generation in a version is that of the store it was written to.
        version = next_version(changes_of(head.version) - 1, self._target.generation)
        moved = head if self._reencryption is None else self._reencryption.head(head)
        if version != head.version:
            frames = self._target.frames
            moved = with_note(frames, msgspec.structs.replace(moved, version=version), open_note(frames, moved))
        expect = None if there is None else there.key
        gone = await self._marks_on_swept(head, steps)
        await self._target.engine.commit(Commit(self._lineage, (Swap(head.thread, expect, moved),), marks=gone))
        self._target.caches.tips.take(head.thread)
        return True

    async def _target_head(self, head: Head) -> Head | None:
        """The target's head of the thread, which must be this one or one that it had before."""
        there = await self._target.engine.head(head.thread)
        if there is not None and (
            there.lineage != head.lineage
            or there.owner != head.owner
            or changes_of(there.version) > changes_of(head.version)
        ):
            raise Conflict(
                head.thread,
                message=f"the other store has its own history of thread {head.thread!r}: copy into a store without it",
            )
        return there

    async def _marks_on_swept(self, head: Head, steps: Steps) -> list[Mark]:
        """Marks that delete the checkpoints of a thread that only the target has. Made only if the checkpoints that
        both have are all that the head counts: otherwise the source has lost some, and the target may have the last
        copy."""
        context, common, marks = self._target, 0, []
        for branch in await context.engine.branches(self._lineage):
            if branch.owner != head.owner:
                continue
            kept = steps.get(branch.id, {})
            for one in await context.engine.steps(self._lineage, branch.id, 1, LAST_STEP):
                if (branch.id, one.step) != head.position and self._is_deleted(branch, one):
                    continue
                if one.step in kept:
                    common += 1
                else:
                    marks.append(deletion(context.frames, context.generation, branch.id, one.step, now_micros()))
        return marks if common == head.count else []

    def _is_deleted(self, branch: Branch, one: Step) -> bool:
        return one.mark is not None and open_mark(self._target.frames, branch.id, one.step, one.mark).deleted

    async def _check(self) -> None:
        """Verify the copied lineage: `Corrupt` for its first problem, unless its heads have moved meanwhile."""
        check = LineageCheck(self._target, self._lineage)
        await check.run()
        if check.problems and await self._target.engine.heads(self._lineage) == check.heads:
            problem = check.problems[0]
            raise Corrupt(f"{self._lineage!r}: {problem.where}", f"{problem.reason}, in the copy")


def _limit_to(heads: list[Head], later: list[Head], steps: Steps) -> bool:
    """Reduce `steps`, which were read between the two reads of the heads, to those at the first read: rows that were
    saved later are left out. False if a head has done anything but advance."""
    if len(heads) != len(later):
        return False
    for head, now in zip(heads, later, strict=True):
        if now == head:
            continue
        if (now.thread, now.branch) != (head.thread, head.branch) or now.step <= head.step:
            return False
        if now.count - head.count != now.step - head.step:  # it advanced, and was pruned as well
            return False
        rows = steps[head.branch]
        for step in [step for step in rows if step > head.step]:
            del rows[step]
    return True


def _unchanged(now: dict[int, Step], then: dict[int, Step]) -> bool:
    """True if every row still exists, with the same mark."""
    return all(step in now and now[step].mark == one.mark for step, one in then.items())


def _new_row(branch: bytes, row: Row) -> NewRow:
    return NewRow(branch, row.step, row.id, row.meta, row.digest, row.root, row.payload)
