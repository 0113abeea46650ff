"""Moving the head of a thread, and annotating and deleting its checkpoints.

Nothing here touches a row. A rewind swaps the head, an annotation or a deletion adds a mark, a fork adds a head.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import UNSET

from backtrail.engines.base import Commit, Drop, Head, Mark, Position, Swap, next_version
from backtrail.engines.conflicts import Refused
from backtrail.errors import CheckpointNotFound, Conflict, Corrupt, InvalidInput, NoCheckpoint
from backtrail.history.ancestry import Ancestry, HistoryStep, newest_other, parent_of, step_at, to_checkpoint
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.records import (
    MAX_MOVES,
    MarkBody,
    Move,
    Note,
    Undone,
    bump_version,
    move_head,
    now_micros,
    open_note,
    seal_mark,
    with_note,
)
from backtrail.history.resolve import resolve
from backtrail.history.retry import rereading
from backtrail.history.run_status import RUN, base_kind, kind_at
from backtrail.history.save_arguments import pack_custom
from backtrail.history.state_reader import StateReader
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.history.validation import check_label, check_name, check_tags
from backtrail.model import Checkpoint

# -- forks -------------------------------------------------------------------------------------------------------------


@rereading
async def fork(thread: ThreadHandle[S], to: str | None = None, at: Any = None) -> str:
    """Make a new thread whose head is that of this one, or `at`. Writes one record; returns the new name."""
    if to is not None:
        if not await _fork(thread, check_name(to, "thread id"), at):
            raise Conflict(to, message=f"thread {to!r} exists already: fork to another name")
        return to
    thread.context.check_open()
    taken = {h.thread for h in await thread.context.engine.threads(prefix=f"{thread.id}#fork-")}
    number = 1
    while True:
        name = check_name(f"{thread.id}#fork-{number}", "thread id")
        if name not in taken and await _fork(thread, name, at):
            return name
        number += 1


async def _fork(thread: ThreadHandle[S], name: str, at: Any) -> bool:
    """False if a thread of that name exists."""
    context, frames = thread.context, thread.context.frames

    async def attempt(head: Head) -> bool | None:
        one = await resolve(context, head, head.step if at is None else at)
        if await context.engine.head(name) is not None:
            return False
        # Even if the clock is behind, a fork is not older than the checkpoint it was forked from.
        now, owner = max(now_micros(), one.meta.created + 1), os.urandom(16)
        version = next_version(0, context.generation)
        kind = await _kind_at(thread, head, one.position)
        bare = Head(name, head.lineage, owner, *one.position, version, kind, now, now, 0, one.meta.size)
        old = open_note(frames, head)
        note = Note(one.step.id, True, retention=old.retention, dictionary=old.dictionary)
        # The parent's head is swapped for itself, so that a prune since it was read makes this commit fail.
        stay = Swap(thread.id, head.key, bump_version(frames, context.generation, head, head.updated))
        try:
            swaps = (Swap(name, None, with_note(frames, bare, note)), stay)
            await context.engine.commit(Commit(head.lineage, swaps))
        except Refused:
            return None
        return True

    return await thread.retry_cas("fork", attempt)


# -- moves of the head -------------------------------------------------------------------------------------------------


@rereading
async def rewind(thread: ThreadHandle[S], at: Any, prune: bool = False) -> Checkpoint:
    """Move the head back (or anywhere else) to `at`. Abandoned checkpoints stay loadable, and `undo` moves the head
    back; with `prune`, the checkpoints between `at` and the old head are deleted instead."""

    async def attempt(head: Head) -> Checkpoint | None:
        one = await resolve(thread.context, head, at)
        if one.position != head.position:
            doomed = await _steps_after(thread, head, one.position) if prune else []
            moves = open_note(thread.context.frames, head).moves if prune else _moves_after(thread, head, one.position)
            if not await _move(thread, head, one, moves, doomed):
                return None
        thread.base_id = one.step.id
        return await to_checkpoint(thread.context, head, one)

    return await thread.retry_cas("rewind", attempt)


async def rewind_from(thread: ThreadHandle[S], head: Head, at: Any) -> bool:
    """For views: rewind, but only from exactly this head; False if another writer was faster."""
    one = await resolve(thread.context, head, at)
    return await _move(thread, head, one, _moves_after(thread, head, one.position), [])


@rereading
async def undo(thread: ThreadHandle[S], dry_run: bool = False) -> Checkpoint:
    """Take back the last move of the head: a rewind, or a save. `dry_run`: only find out where the head would go."""
    context = thread.context

    async def attempt(head: Head) -> Checkpoint | None:
        note = open_note(context.frames, head)
        moves = note.moves
        one = None
        while one is None and moves and moves[-1].to == head.position:
            back, moves = moves[-1].back, moves[:-1]
            if await context.branch(head.lineage, back[0]) is not None:  # else it was swept
                one = await (await Ancestry.of(context, head, back)).newest_alive()
        moved = one is not None
        one = one or await _before_head(thread, head)
        if one is None:
            raise NoCheckpoint(f"thread {thread.id!r} has nothing before step {head.step} to go back to")
        undone = _undone_after(note, head.position, one.position, moved)
        if dry_run or await _move(thread, head, one, moves, [], undone):
            return await to_checkpoint(context, head, one)
        return None

    return await thread.retry_cas("undo", attempt)


def _undone_after(note: Note, left: Position, to: Position, moved: bool) -> tuple[Undone, ...]:
    """What can be done again after an undo. Saves that are taken back one after the other are one entry, so that any
    number of them fits into a head."""
    before = note.undone if note.undone and note.undone[-1].to == left else ()
    if before and not moved and not before[-1].moved:
        return (*before[:-1], Undone(to, before[-1].back, False))
    return (*before, Undone(to, left, moved))


@rereading
async def redo(thread: ThreadHandle[S], dry_run: bool = False) -> Checkpoint:
    """Do again what the last undo took back; possible until the head is changed in another way. `dry_run`: only find
    out where the head would go."""
    context = thread.context

    async def attempt(head: Head) -> Checkpoint | None:
        note = open_note(context.frames, head)
        if not note.undone or note.undone[-1].to != head.position:
            raise NoCheckpoint(f"thread {thread.id!r} has nothing to redo: only an undo just before can be taken back")
        last, undone, moves = note.undone[-1], note.undone[:-1], note.moves
        one = await _next_undone(thread, head, last)
        if one is None:
            raise NoCheckpoint(f"thread {thread.id!r} has nothing to redo: what undo took back was deleted since")
        if last.moved:
            moves = (*moves, Move(one.position, head.position))[-MAX_MOVES:]
        elif one.position != last.back:
            undone = (*undone, Undone(one.position, last.back, False))
        if dry_run or await _move(thread, head, one, moves, [], undone):
            return await to_checkpoint(context, head, one)
        return None

    return await thread.retry_cas("redo", attempt)


async def _next_undone(thread: ThreadHandle[S], head: Head, undone: Undone) -> HistoryStep | None:
    """The living checkpoint that a redo goes to; None if there is none left."""
    context = thread.context
    if await context.branch(head.lineage, undone.back[0]) is None:  # it was swept
        return None
    ancestry = await Ancestry.of(context, head, undone.back)
    first = undone.back[1] if undone.moved else head.step + 1
    for step in range(first, undone.back[1] + 1):
        branch = ancestry.branch_at(step)
        one = await step_at(context, head, branch, step) if branch is not None else None
        if one is not None and one.alive:
            return one
    return None


async def _before_head(thread: ThreadHandle[S], head: Head) -> HistoryStep | None:
    """The living checkpoint before the head."""
    at_head = (await Ancestry.of(thread.context, head)).segments[0]
    return await parent_of(thread.context, head, at_head.branch, at_head.last)


def _moves_after(thread: ThreadHandle[S], head: Head, target: Position) -> tuple[Move, ...]:
    """The moves that can be undone after the head has moved to `target`."""
    return (*open_note(thread.context.frames, head).moves, Move(target, head.position))[-MAX_MOVES:]


async def _steps_after(thread: ThreadHandle[S], head: Head, target: Position) -> list[HistoryStep]:
    """The thread's own living checkpoints between a position and the head."""
    ancestry = await Ancestry.of(thread.context, head)
    if target not in ancestry:
        raise InvalidInput("prune=True needs a checkpoint on the way to the head")
    steps = ancestry.steps_back(down_to=target[1] + 1)
    return [one async for one in steps if one.alive and one.branch.owner == head.owner]


async def _move(
    thread: ThreadHandle[S],
    head: Head,
    to: HistoryStep,
    moves: tuple[Move, ...],
    doomed: list[HistoryStep],
    undone: tuple[Undone, ...] = (),
) -> bool:
    """Move the head to another checkpoint, and delete the doomed ones; False if another writer was faster."""
    frames = thread.context.frames
    old = open_note(frames, head)
    note = msgspec.structs.replace(old, checkpoint=to.step.id, pinned=True, moves=moves, undone=undone)
    count = head.count - len(doomed)
    generation, size, kind = thread.context.generation, to.meta.size, await _kind_at(thread, head, to.position)
    moved = move_head(frames, generation, head, note, to.position, now_micros(), size=size, count=count, kind=kind)
    if not await thread.swap_head(head, moved, [_mark(thread, one, deleted=True) for one in doomed]):
        return False
    thread.base_id = to.step.id
    return True


async def _kind_at(thread: ThreadHandle[S], head: Head, position: Position) -> str:
    """The kind of a head that moves to this row: that of a run follows from the state there."""
    if base_kind(head.kind) != RUN:
        return head.kind
    try:
        row = await thread.context.engine.row(head.lineage, *position)
        if row is None:
            return RUN
        reader = StateReader(thread.context, head.lineage, thread.values)
        return kind_at(RUN, await reader.root(*position, row.root, deep=False))
    except Corrupt:
        return RUN  # the load of that checkpoint reports the damage


# -- annotations and deletions -----------------------------------------------------------------------------------------


def _mark(
    thread: ThreadHandle[S],
    one: HistoryStep,
    *,
    deleted: bool,
    label: Any = UNSET,
    tags: Any = UNSET,
    custom: Any = UNSET,
) -> Mark:
    # Later than the mark that it replaces, whatever the clock says: of two marks of a row, the later one counts.
    body = MarkBody(
        max(now_micros(), one.mark.at + 1 if one.mark is not None else 0),
        deleted,
        one.facts.label if label is UNSET else check_label(label),
        one.facts.tags if tags is UNSET else check_tags(tags),
        one.facts.custom if custom is UNSET else pack_custom(thread.values, custom),
        generation=thread.context.generation if deleted else 0,
    )
    return seal_mark(thread.context.frames, *one.position, body)


@rereading
async def annotate(
    thread: ThreadHandle[S], at: Any, label: Any = UNSET, tags: Any = UNSET, custom: Any = UNSET
) -> Checkpoint:
    """Change label, tags or custom fields of a checkpoint; those not given stay. Its state never changes."""
    context, frames = thread.context, thread.context.frames

    async def attempt(head: Head) -> Checkpoint | None:
        if custom is not UNSET and head.kind == "workspace":
            raise InvalidInput(
                f"{thread.id!r} keeps a directory's snapshots: their custom fields are what they are made of"
            )
        one = await resolve(context, head, at)
        also: list[Swap] = []
        writer = None if one.branch.owner == head.owner else await context.engine.head(one.branch.thread)
        if writer is not None and writer.owner == one.branch.owner:
            # The thread that wrote it may be deleting or annotating it: its head is swapped for itself, so that one of
            # the two commits is refused.
            also = [Swap(writer.thread, writer.key, bump_version(frames, context.generation, writer, writer.updated))]
            one = await resolve(context, head, uuid_text(one.step.id))
        gone = one.mark is not None and one.mark.deleted  # its writer deleted it, but it is the head of this thread
        mark = _mark(thread, one, deleted=gone, label=label, tags=tags, custom=custom)
        if not await thread.swap_head(head, bump_version(frames, context.generation, head, now_micros()), [mark], also):
            return None
        return await to_checkpoint(context, head, await resolve(context, head, uuid_text(one.step.id)))

    return await thread.retry_cas("annotate", attempt)


@rereading
async def delete(thread: ThreadHandle[S], at: Any = None) -> None:
    """Delete the thread, or one checkpoint of it. Later checkpoints, and forks, stay loadable.

    If the head is deleted, the thread moves back to the checkpoint before it; if there is none, to the newest abandoned
    one; if none is left at all, the thread is deleted."""

    async def attempt(head: Head) -> bool | None:
        done = await _delete_thread(thread, head) if at is None else await _delete_one(thread, head, at)
        return True if done else None

    await thread.retry_cas("delete", attempt)


async def _delete_one(thread: ThreadHandle[S], head: Head, at: Any) -> bool:
    context, frames = thread.context, thread.context.frames
    one = await resolve(context, head, at)
    if one.branch.owner != head.owner:
        raise CheckpointNotFound(thread.id, at, f"it belongs to thread {one.branch.thread!r}: delete it there")
    if one.position != head.position:
        fewer = bump_version(frames, context.generation, head, now_micros(), count=head.count - 1)
        return await thread.swap_head(head, fewer, [_mark(thread, one, deleted=True)])
    before = await parent_of(context, head, one.branch, head.step) or await newest_other(context, head)
    if before is None:
        return await _delete_thread(thread, head)
    moves = tuple(move for move in open_note(frames, head).moves if move.to != head.position)
    return await _move(thread, head, before, moves, [one])


async def _delete_thread(thread: ThreadHandle[S], head: Head) -> bool:
    if not await thread.swap_head(head, None):
        return False
    thread.base_id = None
    await clear_lineage(thread.context, head.lineage)
    return True


async def clear_lineage(context: Context, lineage: str) -> None:
    """Free everything of a lineage without threads. If a thread is created meanwhile, nothing is freed."""
    if await context.engine.heads(lineage):
        return
    branches = [branch.id for branch in await context.engine.branches(lineage)]
    blobs = [id for id, _ in await context.engine.blob_ids(lineage)]
    try:
        await context.engine.drop(Drop(lineage, (), branches=branches, blobs=blobs))
    except Refused:
        return  # a thread of that name was created just now: the next sweep frees what it does not use
