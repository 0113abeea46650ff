"""Verify: checks every lineage of a store; a repair sets damaged records aside and moves heads to sound checkpoints.

A repair destroys nothing: a damaged row or blob is first kept, byte for byte, as a blob of the same lineage, and only
then removed. A checkpoint that needs it leaves the history; a thread whose head is damaged goes back to
its newest sound checkpoint.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from backtrail.engines.base import Commit, Drop, Head, Mark, Position, Swap, next_version
from backtrail.engines.branch_origins import previous_position
from backtrail.engines.conflicts import Refused
from backtrail.errors import BacktrailError, Conflict
from backtrail.history.context import Context
from backtrail.history.lineage_checks import LineageCheck, gap_before, gap_id
from backtrail.history.lineage_view import LineageView
from backtrail.history.reachability import ASIDE, GAP, PLAIN_KINDS
from backtrail.history.records import Note, deletion, label_marks, now_micros, with_note
from backtrail.history.retry import CHECKS
from backtrail.history.run_status import base_kind
from backtrail.history.sweep import Progress, lineages
from backtrail.model import Damage, Verified


async def verify(context: Context, repair: bool = False, progress: Progress | None = None) -> Verified:
    """Check everything. `progress` is called with (lineages done, total lineages)."""
    context.check_open()
    names = [name async for name in lineages(context)]
    found = Counter[str]()
    problems: list[Damage] = []
    for number, lineage in enumerate(names, 1):
        check = await _check(context, lineage)
        if repair and check.problems:
            await _repair(context, check)
        found["orphans"] += await _count_orphans(context, check)
        found["threads"] += len(check.heads)
        found["checkpoints"] += len(check.living)
        found["rows"] += len(check.rows)
        found["blobs"] += len(check.pool)
        problems += check.problems
        if progress is not None:
            progress(number, len(names))
    kept = await context.engine.check(repair=repair)
    if not problems:  # a record that is lost makes the counts wrong, too: that is one problem, not two
        problems = [Damage("", *disagreement) for disagreement in kept]
    return Verified(**found, problems=tuple(problems), repaired=repair)


async def _check(context: Context, lineage: str) -> LineageCheck:
    """Check a lineage, again if writers moved a head meanwhile: a row newer than the head that was read is not
    damage."""
    for _ in CHECKS.attempts():
        check = LineageCheck(context, lineage)
        await check.run()
        if not check.problems or await _heads_unchanged(context, check):
            break
    return check


async def _heads_unchanged(context: Context, check: LineageCheck) -> bool:
    try:
        return await context.engine.heads(check.lineage) == check.heads
    except BacktrailError:
        return True  # heads that cannot be read are among the problems


async def _count_orphans(context: Context, check: LineageCheck) -> int:
    needed = set(check.needed)
    for head in check.heads:
        if head.kind in context.blob_finders and not check.problems:
            view = await LineageView.read(context, check.lineage)
            try:
                needed |= await context.blob_finders[head.kind](context, head.thread, [*view.living().values()])
            except BacktrailError as error:
                check.problems.append(Damage(check.lineage, f"thread {head.thread!r}", str(error)))
        elif head.kind not in PLAIN_KINDS:
            return 0
    return sum(1 for id in check.pool if id not in needed and len(id) == 32)


async def _repair(context: Context, check: LineageCheck) -> None:
    for _ in CHECKS.attempts():
        try:
            await _Repair(context, check).run()
            return
        except Refused:
            check = await _check(context, check.lineage)
    raise Conflict(check.lineage, message=f"{check.lineage!r} kept moving: repair it when its writers rest")


class _Repair:
    """The repair of one lineage, with one commit and one drop."""

    def __init__(self, context: Context, check: LineageCheck) -> None:
        self._context = context
        self._check = check
        self._damaged = {at for at, known in check.rows.items() if known.faults}
        self._sound = {at for at in check.living if at not in check.unsound and at not in self._damaged}

    async def run(self) -> None:
        check, context = self._check, self._context
        swaps, heads = [], []
        for head in check.heads:
            new = self._repaired_head(head)
            swaps.append(Swap(head.thread, head.key, new))
            heads.extend([] if new is None else [new])
        now, frames = now_micros(), self._context.frames
        standing = {head.position for head in heads}
        doomed = [at for at in check.unsound if at not in self._damaged and at not in standing]
        marks = [deletion(frames, context.generation, *at, now) for at in doomed]
        blobs = await self._set_aside()
        for (branch, step), known in check.rows.items():
            before = previous_position(known.branch, step)
            lost = before is not None and (before in self._damaged or before not in check.rows)
            if known.chain_faults or (lost and not known.swept):
                blobs[gap_id(branch, step)] = context.frames.wrap(b"", gap_before(branch, step))
            if known.mark_fault is not None:
                own = [] if known.meta is None else label_marks(frames, branch, step, known.meta)
                marks += own or [Mark(branch, step, None)]
        if check.bad_gaps:  # a blob that exists is never overwritten
            before_that = [(head.thread, head.key) for head in check.heads]
            await context.engine.drop(Drop(check.lineage, before_that, blobs=check.bad_gaps))
        await context.engine.commit(Commit(check.lineage, swaps, marks=marks, blobs=blobs))
        for head in check.heads:
            context.caches.tips.take(head.thread)
        expect = [(head.thread, head.key) for head in heads]
        bad = [id for id in check.bad_blobs if not id.startswith((ASIDE, GAP))]
        await context.engine.drop(
            Drop(check.lineage, expect, rows=sorted(self._damaged), branches=sorted(check.detached), blobs=bad)
        )

    async def _set_aside(self) -> dict[bytes, bytes]:
        """The damaged records, byte for byte, as blobs."""
        context, lineage = self._context, self._check.lineage
        blobs: dict[bytes, bytes] = {}
        for branch, step in self._damaged:
            for row in await context.engine.rows(lineage, branch, step, step):
                id = ASIDE + branch + step.to_bytes(4, "big")
                blobs[id] = context.frames.wrap(msgspec.msgpack.encode(tuple(row)), f"aside {id.hex()}")
        for bad, data in (await context.engine.blobs(lineage, sorted(self._check.bad_blobs))).items():
            blobs[ASIDE + bad] = context.frames.wrap(data, f"aside {bad.hex()}")
            blobs[ASIDE] = context.frames.wrap(b"", "aside")  # marks for caches of blob ids that some are gone
        return blobs

    def _repaired_head(self, head: Head) -> Head | None:
        """The head after the repair: as it is, or at the newest sound checkpoint; None if there is no sound one."""
        check = self._check
        note = check.notes.get(head.thread)
        to_head = dict.fromkeys(check.positions_to(head)) if note is not None else {}
        if note is not None:
            own = [at for at in self._sound if check.rows[at].branch.owner == head.owner or at in to_head]
        else:
            own = [at for at in self._sound if check.rows[at].branch.thread == head.thread]
        if not own:
            return None
        if head.position in self._sound and note is not None:
            at, pinned = head.position, note.pinned
        else:
            onward = [at for at in to_head if at in self._sound]
            at = onward[0] if onward else max(own, key=lambda at: (self._created(at), at))
            pinned = True
        known = check.rows[at]
        assert known.meta is not None
        owner = head.owner if note is not None else known.branch.owner
        count = sum(1 for one in own if check.rows[one].branch.owner == owner)
        bare = msgspec.structs.replace(
            head,
            owner=owner,
            branch=at[0],
            step=at[1],
            kind=head.kind if at == head.position else base_kind(head.kind),  # a run can be resumed from there
            version=next_version(head.version, self._context.generation),
            updated=max(head.updated, 0) + 1,
            count=count,
            size=known.meta.size,
        )
        kept = msgspec.structs.replace(note or Note(known.id), checkpoint=known.id, pinned=pinned, moves=(), undone=())
        return with_note(self._context.frames, bare, kept)

    def _created(self, at: Position) -> int:
        meta = self._check.rows[at].meta
        return meta.created if meta is not None else 0
