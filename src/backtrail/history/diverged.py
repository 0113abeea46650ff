"""Keeping what lost: when both sides of a mirror were written to, the head that is not the head gets a name.

The mirror has brought its rows over already. If it is the same thread, its last checkpoint is labelled and stays
reachable beside the trail; if another thread of the same name was made on the other side, it becomes a thread of its
own. A checkpoint that was saved on both sides, under one id, is in the history once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from backtrail.engines.base import Commit, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.namespace import head_in_namespace
from backtrail.errors import NotFound
from backtrail.history.ancestry import SeenStep
from backtrail.history.context import Context
from backtrail.history.lineage import LineageView, Place
from backtrail.history.records import (
    MarkBody,
    Note,
    now_micros,
    open_note,
    read_step,
    seal_mark,
    seal_note,
    touch,
    uuid_text,
)
from backtrail.history.thread import Thread
from backtrail.history.validation import check_name
from backtrail.replicate.report import Diverged, Kept
from backtrail.replicate.role_record import generation_of

LABEL = "diverged"


async def keep(context: Context, found: Diverged) -> Kept:
    """Label or name the head that lost. What belongs to another namespace is left to the stores of that one."""
    head = head_in_namespace(context.engine, found.head)
    if head is None:
        return Kept.ENOUGH
    note = open_note(context.frames, head)
    if found.same_incarnation:
        here = head_in_namespace(context.engine, found.here) if found.here is not None else head
        if here is None:
            return Kept.ENOUGH
        thread: Thread[object] = Thread(context, here.thread)
        if found.said:
            return await _say(thread, head.owner, found.said)
        lost = found.newest or note.checkpoint
        if found.known:
            tally = await _tally(thread, head.lineage)
            if tally is None or tally.right:
                return Kept.ENOUGH  # the follower was only left behind, as nearly always
            if not await _unheard_of(thread, head.lineage, lost):
                return await _recount(thread, head.lineage)
        await _label(thread, uuid_text(lost), generation_of(head.branch))
        await _recount(thread, head.lineage)
        return Kept.NAMED
    number = 1
    while True:
        name = check_name(f"{head.thread}#{LABEL}-{number}", "thread id")
        existing = await context.engine.head(name)
        if existing is not None and existing.owner != head.owner:
            number += 1
        elif existing is not None and (existing.branch, existing.step) == (head.branch, head.step):
            return await _recount(Thread(context, name), head.lineage)
        elif existing is not None and not await _leads(context, existing, head):
            await _label(Thread(context, name), uuid_text(note.checkpoint), generation_of(head.branch))
            await _recount(Thread(context, name), head.lineage)
            return Kept.NAMED
        elif await _name(context, existing, head, note, name):
            await _recount(Thread(context, name), head.lineage)
            return Kept.NAMED


async def _name(context: Context, existing: Head | None, head: Head, note: Note, name: str) -> bool:
    """Let a thread of this name stand where `head` does; False if another was faster."""
    version = 1 if existing is None else existing.version + 1
    bare = msgspec.structs.replace(head, thread=name, version=version, note=b"")
    named = msgspec.structs.replace(
        bare, note=seal_note(context.frames, bare, msgspec.structs.replace(note, pinned=True, moves=()))
    )
    try:
        await context.engine.commit(Commit(head.lineage, (Swap(name, existing.key if existing else None, named),)))
    except Refused:
        return False
    return True


async def _leads(context: Context, here: Head, head: Head) -> bool:
    """Whether the way to `head` leads through where `here` stands."""
    place: tuple[bytes, int] | None = (head.branch, head.step)
    while place is not None and place[0] != here.branch:
        branch = await context.branch(head.lineage, place[0])
        place = None if branch is None else branch.origin
    return place is not None and place[1] >= here.step


async def _label(thread: Thread[object], id: str, generation: int) -> None:
    try:
        lost = await thread.get(id)
        label = lost.label or f"{LABEL} in generation {generation}"
        await thread.annotate(id, label=label, tags=(*lost.tags, LABEL))
    except NotFound:
        return  # it was deleted meanwhile, which is what its owner wanted


async def _say(thread: Thread[object], owner: bytes, marks: Sequence[Mark]) -> Kept:
    """Say of a thread's checkpoints what nobody has said anything newer of."""
    context = thread.context
    while True:
        head = await context.engine.head(thread.id)
        if head is None or head.owner != owner:
            return Kept.ENOUGH
        news = [mark for mark in marks if await _is_news(context, head.lineage, mark)]
        if not news:
            return Kept.ENOUGH
        if await thread.swap(head, touch(context.frames, head, now_micros()), news):
            return Kept.COUNTED


async def _is_news(context: Context, lineage: str, mark: Mark) -> bool:
    row = await context.engine.row(lineage, mark.branch, mark.step)
    if row is None:
        return False
    _, known = read_step(context.frames, mark.branch, row)
    _, said = read_step(context.frames, mark.branch, row._replace(mark=mark.data))
    return known is None or (said is not None and said.at > known.at)


class _Tally(msgspec.Struct, frozen=True):
    """What a thread has, and where it stands."""

    head: Head
    note: Note
    own: list[SeenStep]
    trail: set[Place]
    twins: dict[Place, MarkBody]  #: what is to be said of saves that are there twice, so that each is there once

    @property
    def count(self) -> int:
        """How many checkpoints there are to count."""
        stands = (self.head.branch, self.head.step)
        return sum(self.lives(one) or one.place == stands for one in self.own)

    @property
    def pinned(self) -> bool:
        """Whether the next save has to start a branch: the step behind the head may be taken now."""
        return self.note.pinned or any(one.place == (self.head.branch, self.head.step + 1) for one in self.own)

    @property
    def right(self) -> bool:
        """Whether the head says all that."""
        return (self.count, self.pinned) == (self.head.count, self.note.pinned) and not self.twins

    def lives(self, one: SeenStep) -> bool:
        """Whether a checkpoint is to be there."""
        return not self.twins[one.place].deleted if one.place in self.twins else one.alive


async def _tally(thread: Thread[object], lineage: str) -> _Tally | None:
    view = await LineageView.of(thread.context, lineage)
    head = next((head for head in view.heads if head.thread == thread.id), None)
    if head is None:
        return None
    own = [one for rows in view.rows.values() for one in rows if one.branch.owner == head.owner]
    trail = {one.place for one in view.trail((head.branch, head.step))}
    return _Tally(head, view.notes[head.thread], own, trail, _saved_twice(own, trail, now_micros()))


async def _unheard_of(thread: Thread[object], lineage: str, id: bytes) -> bool:
    """Whether a checkpoint that is there lies beside the trail, without a label, and the head does not know of it: it
    was brought by a comparison that was cut before it could say so."""
    while True:
        tally = await _tally(thread, lineage)
        if tally is None or tally.count <= tally.head.count:
            return False
        beside = [one for one in tally.own if tally.lives(one) and one.place not in tally.trail]
        if not any(one.step.id == id and LABEL not in (one.remark or one.meta).tags for one in beside):
            return False
        if await thread.context.engine.head(thread.id) == tally.head:  # else it may have been a save just now
            return True


async def _recount(thread: Thread[object], lineage: str) -> Kept:
    """Let the head count the checkpoints that came over, and step aside from them."""
    context = thread.context
    while True:
        tally = await _tally(thread, lineage)
        if tally is None or tally.right:
            return Kept.ENOUGH
        bare = msgspec.structs.replace(touch(context.frames, tally.head, now_micros(), count=tally.count), note=b"")
        sealed = seal_note(context.frames, bare, msgspec.structs.replace(tally.note, pinned=tally.pinned))
        marks = [seal_mark(context.frames, *place, remark) for place, remark in tally.twins.items()]
        if await thread.swap(tally.head, msgspec.structs.replace(bare, note=sealed), marks):
            return Kept.COUNTED


def _saved_twice(own: list[SeenStep], trail: set[Place], now: int) -> dict[Place, MarkBody]:
    """What is to be said of checkpoints whose id is in the thread twice: what was saved on one side was repeated on the
    other. Those on the trail stay, or the first one. Two sides may each have taken the other's away: one of them comes
    back, unless somebody deleted it."""
    by_id: dict[bytes, list[SeenStep]] = {}
    for one in own:
        by_id.setdefault(one.step.id, []).append(one)
    said: dict[Place, MarkBody] = {}
    for same in by_id.values():
        deleted = any(one.remark is not None and one.remark.deleted and not one.remark.again for one in same)
        if len(same) == 1 or deleted:
            continue
        stay = [one for one in same if one.place in trail] or [*(one for one in same if one.alive), *same][:1]
        for one in same:
            if one.alive is not (one in stay):
                known = one.remark or one.meta
                said[one.place] = MarkBody(now, one.alive, known.label, known.tags, known.custom, again=one.alive)
    return said
