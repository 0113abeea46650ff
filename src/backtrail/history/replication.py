"""A store and its replica: the status of a mirror, making two stores equal, and keeping heads that lost.

After a divergence, one of the two heads of a thread loses. The mirror has already copied its rows to the active side.
If it is the same thread, the losing head's last checkpoint is labelled and stays loadable, as an abandoned one; if
another thread of the same name was created on the other side, it becomes a thread with a name of its own. A checkpoint
that was saved on both sides under one id is in the history once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from backtrail.encode.seal import refuse_sealed
from backtrail.engines.base import Commit, Engine, Head, Mark, Position, Swap
from backtrail.engines.branch_origins import leads_through
from backtrail.engines.capabilities import capability
from backtrail.engines.conflicts import Refused, refusals_as_conflicts
from backtrail.engines.namespace import head_in_namespace, in_namespace_of, without_namespace
from backtrail.engines.reserved_names import user_threads
from backtrail.engines.reserved_record import swap
from backtrail.errors import InvalidInput, NotFound, Unavailable
from backtrail.history.ancestry import HistoryStep
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.keyring import RING, share_ring
from backtrail.history.lineage_view import LineageView
from backtrail.history.records import (
    MarkBody,
    Note,
    bump_version,
    move_head,
    now_micros,
    open_note,
    read_step,
    seal_mark,
    with_note,
)
from backtrail.history.thread_core import ThreadCore
from backtrail.history.validation import check_name
from backtrail.replicate import concurrency, role_record
from backtrail.replicate.anti_entropy import differing, reconcile
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.report import Diverged, Kept, Progress, Report
from backtrail.replicate.role_record import generation_of
from backtrail.replicate.status import Mirrored, Status

LABEL = "diverged"
M = TypeVar("M")


def _mirror(context: Context, kind: type[M]) -> M:
    """The mirror of a store that has a replica, as a `kind`."""
    mirror = capability(context.engine, kind)
    if mirror is None:
        raise InvalidInput("this store has no replica: open it with replica=…")
    return mirror


async def keep_beside(context: Context, active: Engine, found: Diverged) -> Kept:
    """Keep a head that lost, on the active side; the follower gets it when the sides are made equal."""
    return await keep_lost_head(context.with_engine(in_namespace_of(context.engine, active)), found)


async def check_rings(context: Context) -> None:
    """Refuse two sides that can never be equal: sealed with different keys, or only one of them sealed. An unreachable
    side is not checked; if its ring turns out to be another one, it is not written to."""
    found: list[Head] = []
    bare = False
    mirror = _mirror(context, Mirror)
    for name, side in mirror.sides.items():  # each separately, before the mirror starts to make them equal
        room = in_namespace_of(context.engine, side)
        try:
            ring = await room.head(RING)
            if ring is not None:
                found.append(ring)
            elif await user_threads(room, limit=1) and not (await role_record.read(side))[0].generation:
                bare = True
        except Unavailable as error:
            mirror.note_unreachable(name, error)
    if found and context.keys is None:
        raise refuse_sealed()
    if len({ring.created for ring in found}) > 1:
        raise InvalidInput(
            "the replica is sealed with another key ring than the primary, so neither could read what the other holds: "
            "give an empty replica"
        )
    if found and bare:
        raise InvalidInput(
            "one side of the mirror is sealed with a key and the other holds unsealed data: give an empty replica"
        )
    if found and await context.engine.head(RING) is None:
        # A new primary with a sealed replica adopts that ring instead of making another.
        await swap(context.engine, None, found[0])  # unless another process has done so


async def status(context: Context) -> Status:
    """The state of both sides: which one is active, and how far the follower is behind."""
    context.check_open()
    mirror = _mirror(context, Mirror)
    try:
        await context.engine.ping()
    except Unavailable as error:
        mirror.failed(error)  # so that the status shows it
    return mirror.status()


async def catch_up(context: Context) -> Status:
    """Compare both sides and copy what is missing now, instead of in the background."""
    context.check_open()
    return await _mirror(context, Mirrored).settle()


async def sync(context: Context, other: Context, progress: Progress | None = None) -> Report:
    """Make `other` equal to this store by exchanging only what is missing; if heads differ, this store's count.
    Checkpoints that only the other one has are copied here, too. Safe to repeat, to interrupt, and to run beside
    writers."""
    context.check_open()
    other.check_open()
    report = Report()
    here, there = without_namespace(context.engine), without_namespace(other.engine)
    if here is there:
        raise InvalidInput("a store cannot be made equal to itself: give another one")
    await share_ring(context, other)
    blocking = here.properties.blocking and there.properties.blocking
    here, there = concurrency.side(here, blocking), concurrency.side(there, blocking)
    for lineage in await differing(here, there):
        done = Report(report.records, report.bytes)

        def tell(records: int, size: int, done: Report = done) -> None:
            if progress is not None:
                progress(done.records + records, done.bytes + size)

        with refusals_as_conflicts():
            report.add(
                await reconcile(here, there, lineage, keep=lambda lost: keep_lost_head(context, lost), progress=tell)
            )
    return report


# -- keeping what lost ------------------------------------------------------------------------------------------------


async def keep_lost_head(context: Context, found: Diverged) -> Kept:
    """Label or rename the head that lost. Heads of another namespace are left to the stores of that namespace."""
    head = head_in_namespace(context.engine, found.head)
    if head is None:
        return Kept.ENOUGH
    note = open_note(context.frames, head)
    if found.same_incarnation:
        here = head_in_namespace(context.engine, found.here) if found.here is not None else head
        if here is None:
            return Kept.ENOUGH
        thread: ThreadCore[object] = ThreadCore(context, here.thread)
        if found.said:
            return await _apply_marks(thread, head.owner, found.said)
        lost = found.newest or note.checkpoint
        if found.known:
            survey = await _survey(thread, head.lineage)
            if survey is None or survey.is_correct:
                return Kept.ENOUGH  # the follower was only behind, as nearly always
            if not await _is_unlabelled(thread, head.lineage, lost):
                return await _correct_head(thread, head.lineage)
        await _label(thread, uuid_text(lost), generation_of(head.branch))
        await _correct_head(thread, head.lineage)
        return Kept.NAMED
    number = 1
    while True:
        name = check_name(f"{head.thread}#{LABEL}-{number}", "thread id")
        existing = await context.engine.head(name)
        if existing is not None and existing.owner != head.owner:
            number += 1
        elif existing is not None and existing.position == head.position:
            return await _correct_head(ThreadCore(context, name), head.lineage)
        elif existing is not None and not await _leads_through(context, head, existing):
            await _label(ThreadCore(context, name), uuid_text(note.checkpoint), generation_of(head.branch))
            await _correct_head(ThreadCore(context, name), head.lineage)
            return Kept.NAMED
        elif await _put_under_name(context, existing, head, note, name):
            await _correct_head(ThreadCore(context, name), head.lineage)
            return Kept.NAMED


async def _put_under_name(context: Context, existing: Head | None, head: Head, note: Note, name: str) -> bool:
    """Give the head that lost to the thread of this name; False if another writer was faster."""
    version = 1 if existing is None else existing.version + 1
    bare = msgspec.structs.replace(head, thread=name, version=version)
    named = with_note(context.frames, bare, msgspec.structs.replace(note, pinned=True, moves=()))
    try:
        await context.engine.commit(Commit(head.lineage, (Swap(name, existing.key if existing else None, named),)))
    except Refused:
        return False
    return True


async def _leads_through(context: Context, head: Head, other: Head) -> bool:
    """True if the position of `other` is in the ancestry of `head`."""
    branches = {branch.id: branch for branch in await context.branches(head.lineage)}
    return leads_through(head.position, other.position, branches.get)


async def _label(thread: ThreadCore[object], id: str, generation: int) -> None:
    try:
        lost = await thread.get(id)
        label = lost.label or f"{LABEL} in generation {generation}"
        await thread.annotate(id, label=label, tags=(*lost.tags, LABEL))
    except NotFound:
        return  # it has been deleted


async def _apply_marks(thread: ThreadCore[object], owner: bytes, marks: Sequence[Mark]) -> Kept:
    """Write marks on those of a thread's checkpoints that have no newer mark."""
    context = thread.context
    while True:
        head = await context.engine.head(thread.id)
        if head is None or head.owner != owner:
            return Kept.ENOUGH
        newer = [mark for mark in marks if await _is_newer(context, head.lineage, mark)]
        if not newer:
            return Kept.ENOUGH
        if await thread.swap_head(head, bump_version(context.frames, head, now_micros()), newer):
            return Kept.COUNTED


async def _is_newer(context: Context, lineage: str, mark: Mark) -> bool:
    """True if a mark is newer than its row's current mark."""
    row = await context.engine.row(lineage, mark.branch, mark.step)
    if row is None:
        return False
    _, old = read_step(context.frames, mark.branch, row)
    _, new = read_step(context.frames, mark.branch, row._replace(mark=mark.data))
    return old is None or (new is not None and new.at > old.at)


class _Survey(msgspec.Struct, frozen=True):
    """All checkpoints of a thread, and its head as it was when they were read."""

    head: Head
    note: Note
    own: list[HistoryStep]
    to_head: set[Position]
    marks: dict[Position, MarkBody]  #: on saves that exist twice, so that each exists once

    @property
    def count(self) -> int:
        """The number of checkpoints that the head has to count."""
        return sum(self.lives(one) or one.position == self.head.position for one in self.own)

    @property
    def pinned(self) -> bool:
        """True if the next save has to start a branch, because the step after the head may be taken."""
        return self.note.pinned or any(one.position == (self.head.branch, self.head.step + 1) for one in self.own)

    @property
    def is_correct(self) -> bool:
        """True if the head has this count and pin, and no marks are needed."""
        return (self.count, self.pinned) == (self.head.count, self.note.pinned) and not self.marks

    def lives(self, one: HistoryStep) -> bool:
        """True if a checkpoint is alive after the marks are written."""
        return not self.marks[one.position].deleted if one.position in self.marks else one.alive


async def _survey(thread: ThreadCore[object], lineage: str) -> _Survey | None:
    view = await LineageView.read(thread.context, lineage)
    head = next((head for head in view.heads if head.thread == thread.id), None)
    if head is None:
        return None
    own = [one for rows in view.rows.values() for one in rows if one.branch.owner == head.owner]
    to_head = {one.position for one in view.steps_to(head)}
    return _Survey(head, view.notes[head.thread], own, to_head, _marks_on_duplicates(own, to_head, now_micros()))


async def _is_unlabelled(thread: ThreadCore[object], lineage: str, id: bytes) -> bool:
    """True if a checkpoint is abandoned, has no label, and is not counted by the head: it was copied by a comparison
    that was interrupted before it could label it."""
    while True:
        survey = await _survey(thread, lineage)
        if survey is None or survey.count <= survey.head.count:
            return False
        beside = [one for one in survey.own if survey.lives(one) and one.position not in survey.to_head]
        if not any(one.step.id == id and LABEL not in one.facts.tags for one in beside):
            return False
        if await thread.context.engine.head(thread.id) == survey.head:  # else it may have been a save just now
            return True


async def _correct_head(thread: ThreadCore[object], lineage: str) -> Kept:
    """Make the head count the checkpoints that were copied, and the next save start a branch beside them."""
    frames = thread.context.frames
    while True:
        survey = await _survey(thread, lineage)
        if survey is None or survey.is_correct:
            return Kept.ENOUGH
        note = msgspec.structs.replace(survey.note, pinned=survey.pinned)
        moved = move_head(frames, survey.head, note, survey.head.position, now_micros(), count=survey.count)
        marks = [seal_mark(frames, *position, mark) for position, mark in survey.marks.items()]
        if await thread.swap_head(survey.head, moved, marks):
            return Kept.COUNTED


def _marks_on_duplicates(own: list[HistoryStep], to_head: set[Position], now: int) -> dict[Position, MarkBody]:
    """Marks on checkpoints whose id is in the thread twice, because a save on one side was repeated on the other. The
    one in the history stays, or else the first. If each side has removed the other's copy, one of them is restored,
    unless a user deleted it."""
    by_id: dict[bytes, list[HistoryStep]] = {}
    for one in own:
        by_id.setdefault(one.step.id, []).append(one)
    marks: dict[Position, MarkBody] = {}
    for same in by_id.values():
        deleted = any(one.mark is not None and one.mark.deleted and not one.mark.duplicate for one in same)
        if len(same) == 1 or deleted:
            continue
        stay = [one for one in same if one.position in to_head] or [*(one for one in same if one.alive), *same][:1]
        for one in same:
            if one.alive is not (one in stay):
                facts = one.facts
                marks[one.position] = MarkBody(now, one.alive, facts.label, facts.tags, facts.custom, one.alive)
    return marks
