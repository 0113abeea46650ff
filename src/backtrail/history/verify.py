"""Verify: inspect every lineage of a store; and, where asked, set aside what is damaged and stand on what is sound.

A repair destroys nothing: a damaged row or blob is first kept, byte for byte, as a blob of the same lineage, and only
then taken out of its place. A checkpoint that needs it leaves the history; a thread whose head is damaged goes back to
its newest sound checkpoint.
"""

from __future__ import annotations

import msgspec

from backtrail.encode.frame import describe_row
from backtrail.engines.base import Commit, Drop, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import BacktrailError, Conflict
from backtrail.history.checks import Inspection, Place, gap_id
from backtrail.history.context import Context
from backtrail.history.lineage import LineageView
from backtrail.history.reachability import ASIDE, GAP, PLAIN
from backtrail.history.records import Note, now_micros, removal, seal_note
from backtrail.history.sweep import Progress, lineages
from backtrail.model import Damage, Verified

_ATTEMPTS = 16


async def verify(context: Context, repair: bool = False, progress: Progress | None = None) -> Verified:
    """Check everything. `progress` is called with (lineages done, lineages in all)."""
    context.check_open()
    names = [name async for name in lineages(context)]
    total = Verified(repaired=repair)
    for number, lineage in enumerate(names, 1):
        seen = await _inspect(context, lineage)
        if repair and seen.problems:
            await _repair(context, seen)
        orphans = await _orphans(context, seen)
        total = Verified(
            threads=total.threads + len(seen.heads),
            checkpoints=total.checkpoints + len(seen.living),
            rows=total.rows + len(seen.rows),
            blobs=total.blobs + len(seen.pool),
            orphans=total.orphans + orphans,
            problems=(*total.problems, *seen.problems),
            repaired=repair,
        )
        if progress is not None:
            progress(number, len(names))
    return total


async def _inspect(context: Context, lineage: str) -> Inspection:
    """Look again where writers moved something meanwhile: a row newer than the head it belongs to is no damage."""
    for _ in range(_ATTEMPTS):
        seen = Inspection(context, lineage)
        await seen.run()
        if not seen.problems or await _still(context, seen):
            break
    return seen


async def _still(context: Context, seen: Inspection) -> bool:
    try:
        return await context.engine.heads(seen.lineage) == seen.heads
    except BacktrailError:
        return True  # heads that cannot be read are among the problems


async def _orphans(context: Context, seen: Inspection) -> int:
    needed = set(seen.needed)
    for head in seen.heads:
        if head.kind in context.blob_finders and not seen.problems:
            view = await LineageView.of(context, seen.lineage)
            try:
                needed |= await context.blob_finders[head.kind](context, head.thread, [*view.living().values()])
            except BacktrailError as error:
                seen.problems.append(Damage(seen.lineage, f"thread {head.thread!r}", str(error)))
        elif head.kind not in PLAIN:
            return 0
    return sum(1 for id in seen.pool if id not in needed and len(id) == 32)


async def _repair(context: Context, seen: Inspection) -> None:
    for _ in range(_ATTEMPTS):
        try:
            await _Repair(context, seen).run()
            return
        except Refused:
            seen = await _inspect(context, seen.lineage)
    raise Conflict(seen.lineage, message=f"{seen.lineage!r} kept moving: repair it when its writers rest")


class _Repair:
    """One lineage, put in order with one commit and one drop."""

    def __init__(self, context: Context, seen: Inspection) -> None:
        self._context = context
        self._seen = seen
        self._damaged = {at for at, known in seen.rows.items() if known.faults}
        self._sound = {at for at in seen.living if at not in seen.unsound and at not in self._damaged}

    async def run(self) -> None:
        seen, context = self._seen, self._context
        swaps, heads = [], []
        for head in seen.heads:
            new = self._head(head)
            swaps.append(Swap(head.thread, head.key, new))
            heads.extend([] if new is None else [new])
        now, frames = now_micros(), self._context.frames
        doomed = [at for at in seen.unsound if at not in self._damaged and not self._stood_on(at, heads)]
        marks = [removal(frames, *at, now) for at in doomed]
        blobs = await self._kept()
        for (branch, step), known in seen.rows.items():
            before = seen.before(known.branch, step)
            lost = before is not None and (before in self._damaged or before not in seen.rows)
            if known.chain_faults or (lost and not known.light):
                blobs[gap_id(branch, step)] = context.frames.wrap(b"", f"gap before {describe_row(branch, step)}")
            if known.mark_fault is not None:
                marks.append(Mark(branch, step, None))
        await context.engine.commit(Commit(seen.lineage, swaps, marks=marks, blobs=blobs))
        for head in seen.heads:
            context.tips.take(head.thread)
        expect = [(head.thread, head.key) for head in heads]
        bad = [id for id in seen.bad_blobs if not id.startswith((ASIDE, GAP))]
        await context.engine.drop(
            Drop(seen.lineage, expect, rows=sorted(self._damaged), branches=sorted(seen.adrift), blobs=bad)
        )

    def _stood_on(self, at: Place, heads: list[Head]) -> bool:
        return any((head.branch, head.step) == at for head in heads)

    async def _kept(self) -> dict[bytes, bytes]:
        """The damaged records as they are."""
        context, lineage = self._context, self._seen.lineage
        blobs: dict[bytes, bytes] = {}
        for branch, step in self._damaged:
            for row in await context.engine.rows(lineage, branch, step, step):
                id = ASIDE + branch + step.to_bytes(4, "big")
                blobs[id] = context.frames.wrap(msgspec.msgpack.encode(tuple(row)), f"aside {id.hex()}")
        for bad, data in (await context.engine.blobs(lineage, sorted(self._seen.bad_blobs))).items():
            blobs[ASIDE + bad] = context.frames.wrap(data, f"aside {bad.hex()}")
            blobs[ASIDE] = context.frames.wrap(b"", "aside")  # says to whoever remembers blobs that some are gone
        return blobs

    def _head(self, head: Head) -> Head | None:
        """Where a thread shall stand: where it does, or on its newest sound checkpoint; nowhere if it has none."""
        seen = self._seen
        note = seen.notes.get(head.thread)
        trail = seen.trail((head.branch, head.step)) if note is not None else []
        if note is not None:
            own = [at for at in self._sound if seen.rows[at].branch.owner == head.owner or at in trail]
        else:
            own = [at for at in self._sound if seen.rows[at].branch.thread == head.thread]
        if not own:
            return None
        stands = (head.branch, head.step)
        if stands in self._sound and note is not None:
            at, pinned = stands, note.pinned
        else:
            onward = [at for at in trail if at in self._sound]
            at = onward[0] if onward else max(own, key=lambda place: (self._created(place), place))
            pinned = True
        known = seen.rows[at]
        assert known.meta is not None
        owner = head.owner if note is not None else known.branch.owner
        count = sum(1 for one in own if seen.rows[one].branch.owner == owner)
        bare = msgspec.structs.replace(
            head,
            owner=owner,
            branch=at[0],
            step=at[1],
            version=head.version + 1,
            updated=max(head.updated, 0) + 1,
            count=count,
            size=known.meta.size,
            note=b"",
        )
        kept = msgspec.structs.replace(note or Note(known.id), checkpoint=known.id, pinned=pinned, moves=())
        return msgspec.structs.replace(bare, note=seal_note(self._context.frames, bare, kept))

    def _created(self, at: Place) -> int:
        meta = self._seen.rows[at].meta
        return meta.created if meta is not None else 0
