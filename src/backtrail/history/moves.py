"""Moving a thread's head, and saying things about its checkpoints: fork, rewind, undo, annotate, delete.

Nothing here touches a row. A rewind swaps the head, an annotation or a deletion adds a mark, a fork adds a head.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import UNSET

from backtrail.engines.base import Commit, Drop, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import CheckpointNotFound, Conflict, InvalidInput, NoCheckpoint
from backtrail.history.ancestry import Ancestry, SeenStep, describe, find, newest_beside, parent_of
from backtrail.history.context import Context
from backtrail.history.handle import Handle, S
from backtrail.history.records import (
    MarkBody,
    Move,
    Note,
    now_micros,
    open_note,
    seal_mark,
    seal_note,
    touch,
    uuid_text,
)
from backtrail.history.save import MAX_MOVES
from backtrail.history.steady import of_thread
from backtrail.history.validation import check_custom, check_label, check_name, check_tags
from backtrail.model import Checkpoint


class Moving(Handle[S]):
    """The part of a thread that moves its head and marks its checkpoints."""

    @of_thread
    async def fork(self, to: str | None = None, at: Any = None) -> str:
        """Make a new thread that stands where this one does, or at `at`. Writes one record; returns the new name."""
        if to is not None:
            if not await self._fork(check_name(to, "thread id"), at):
                raise Conflict(to, message=f"thread {to!r} exists already: fork to another name")
            return to
        self.context.check_open()
        taken = {h.thread for h in await self.context.engine.threads(prefix=f"{self.id}#fork-")}
        number = 1
        while True:
            name = check_name(f"{self.id}#fork-{number}", "thread id")
            if name not in taken and await self._fork(name, at):
                return name
            number += 1

    async def _fork(self, name: str, at: Any) -> bool:
        """False if a thread of that name exists."""

        async def attempt(head: Head) -> bool | None:
            seen = await find(self.context, head, head.step if at is None else at)
            if await self.context.engine.head(name) is not None:
                return False
            # A clock that is behind makes no fork older than what it was forked from.
            now, size, owner = max(now_micros(), seen.meta.created + 1), seen.meta.size, os.urandom(16)
            bare = Head(name, head.lineage, owner, seen.branch.id, seen.step.step, 1, head.kind, now, now, 0, size)
            known = open_note(self.context.frames, head)
            note = Note(seen.step.id, True, retention=known.retention, dictionary=known.dictionary)
            forked = msgspec.structs.replace(bare, note=seal_note(self.context.frames, bare, note))
            # The parent's head is swapped for itself: a prune that ran since the look above must not go unnoticed.
            stay = Swap(self.id, head.key, touch(self.context.frames, head, head.updated))
            try:
                await self.context.engine.commit(Commit(head.lineage, (Swap(name, None, forked), stay)))
            except Refused:
                return None
            return True

        return await self.insist("fork", attempt)

    @of_thread
    async def rewind(self, at: Any, prune: bool = False) -> Checkpoint:
        """Move the head back (or anywhere else) to `at`. What is left behind stays reachable, and `undo` goes back;
        with `prune`, what came after `at` on the way to the old head is deleted instead."""

        async def attempt(head: Head) -> Checkpoint | None:
            seen = await find(self.context, head, at)
            target = seen.place
            if target != (head.branch, head.step):
                doomed = await self._after(head, target) if prune else []
                moves = open_note(self.context.frames, head).moves if prune else self._remembering(head, target)
                if not await self._move(head, seen, moves, doomed):
                    return None
            self.writer.seen = seen.step.id
            return await describe(self.context, head, seen)

        return await self.insist("rewind", attempt)

    async def rewind_from(self, head: Head, at: Any) -> bool:
        """For views: rewind, but only from exactly this head; False if another writer was faster."""
        seen = await find(self.context, head, at)
        return await self._move(head, seen, self._remembering(head, seen.place), [])

    @of_thread
    async def undo(self) -> Checkpoint:
        """Take back the last move of the head: a rewind, or a save."""

        async def attempt(head: Head) -> Checkpoint | None:
            moves = open_note(self.context.frames, head).moves
            here, seen = (head.branch, head.step), None
            while seen is None and moves and moves[-1].to == here:
                back, moves = moves[-1].back, moves[:-1]
                if await self.context.branch(head.lineage, back[0]) is not None:  # else it was swept away
                    seen = await (await Ancestry.to(self.context, head, *back)).living()
            if seen is None:
                seen = await parent_of(self.context, head, *here)
            if seen is None:
                raise NoCheckpoint(f"thread {self.id!r} has nothing before step {head.step} to go back to")
            return await describe(self.context, head, seen) if await self._move(head, seen, moves, []) else None

        return await self.insist("undo", attempt)

    def _remembering(self, head: Head, target: tuple[bytes, int]) -> tuple[Move, ...]:
        """The moves that can be undone once the head has gone to `target`."""
        here = (head.branch, head.step)
        return (*open_note(self.context.frames, head).moves, Move(target, here))[-MAX_MOVES:]

    async def _after(self, head: Head, target: tuple[bytes, int]) -> list[SeenStep]:
        """The living checkpoints between a place and the head, if the place is on the trail."""
        trail = await Ancestry.to(self.context, head, head.branch, head.step)
        if target not in trail:
            raise InvalidInput("prune=True needs a checkpoint on the way to the head")
        return [one async for one in trail.back(target[1] + 1) if one.alive and one.branch.owner == head.owner]

    async def _move(self, head: Head, seen: SeenStep, moves: tuple[Move, ...], doomed: list[SeenStep]) -> bool:
        """Put the head at a place; False if another writer was faster."""
        known = open_note(self.context.frames, head)
        note = msgspec.structs.replace(known, checkpoint=seen.step.id, pinned=True, moves=moves)
        bare = msgspec.structs.replace(
            head,
            branch=seen.branch.id,
            step=seen.step.step,
            version=head.version + 1,
            updated=max(now_micros(), head.updated + 1),
            size=seen.meta.size,
            count=head.count - len(doomed),
            note=b"",
        )
        moved = msgspec.structs.replace(bare, note=seal_note(self.context.frames, bare, note))
        if not await self.swap(head, moved, [self._mark(one, deleted=True) for one in doomed]):
            return False
        self.writer.seen = seen.step.id
        return True

    # -- saying things about checkpoints, and taking them away --------------------------------------------------------

    def _mark(
        self, seen: SeenStep, *, deleted: bool, label: Any = UNSET, tags: Any = UNSET, custom: Any = UNSET
    ) -> Mark:
        said: Any = seen.remark or seen.meta
        remark = MarkBody(
            now_micros(),
            deleted,
            said.label if label is UNSET else check_label(label),
            said.tags if tags is UNSET else check_tags(tags),
            said.custom if custom is UNSET else self._pack_custom(custom),
        )
        return seal_mark(self.context.frames, *seen.place, remark)

    def _pack_custom(self, custom: Any) -> bytes:
        fields = check_custom(custom)
        return self.values.encode(fields, "custom") if fields else b""

    @of_thread
    async def annotate(self, at: Any, label: Any = UNSET, tags: Any = UNSET, custom: Any = UNSET) -> Checkpoint:
        """Change what is said about a checkpoint; what is not given stays. The checkpoint itself never changes."""

        async def attempt(head: Head) -> Checkpoint | None:
            seen = await find(self.context, head, at)
            also: list[Swap] = []
            writer = None if seen.branch.owner == head.owner else await self.context.engine.head(seen.branch.thread)
            if writer is not None and writer.owner == seen.branch.owner:
                # Who wrote it may be deleting or annotating it: its head is swapped for itself, so that one is refused.
                also = [Swap(writer.thread, writer.key, touch(self.context.frames, writer, writer.updated))]
                seen = await find(self.context, head, uuid_text(seen.step.id))
            gone = seen.remark is not None and seen.remark.deleted  # its writer deleted it; this thread stands on it
            mark = self._mark(seen, deleted=gone, label=label, tags=tags, custom=custom)
            if not await self.swap(head, touch(self.context.frames, head, now_micros()), [mark], also):
                return None
            return await describe(self.context, head, await find(self.context, head, uuid_text(seen.step.id)))

        return await self.insist("annotate", attempt)

    @of_thread
    async def delete(self, at: Any = None) -> None:
        """Delete the thread, or one checkpoint of it. Checkpoints that followed it, and forks, stay loadable.

        If the head is deleted, the thread goes back to the checkpoint before it; where there is none, to the newest
        that a rewind left behind; and when none is left at all, the thread is gone."""

        async def attempt(head: Head) -> bool | None:
            done = await self._delete_thread(head) if at is None else await self._delete_one(head, at)
            return True if done else None

        await self.insist("delete", attempt)

    async def _delete_one(self, head: Head, at: Any) -> bool:
        seen = await find(self.context, head, at)
        here = (head.branch, head.step)
        if seen.branch.owner != head.owner:
            raise CheckpointNotFound(self.id, at, f"it belongs to thread {seen.branch.thread!r}: delete it there")
        if seen.place != here:
            fewer = touch(self.context.frames, head, now_micros(), count=head.count - 1)
            return await self.swap(head, fewer, [self._mark(seen, deleted=True)])
        before = await parent_of(self.context, head, *here) or await newest_beside(self.context, head)
        if before is None:
            return await self._delete_thread(head)
        moves = tuple(move for move in open_note(self.context.frames, head).moves if move.to != here)
        return await self._move(head, before, moves, [seen])

    async def _delete_thread(self, head: Head) -> bool:
        if not await self.swap(head, None):
            return False
        self.writer.seen = None
        await clear_lineage(self.context, head.lineage)
        return True


async def clear_lineage(context: Context, lineage: str) -> None:
    """Free everything of a lineage in which no thread is left; a thread that appears meanwhile keeps it all."""
    if await context.engine.heads(lineage):
        return
    branches = [branch.id for branch in await context.engine.branches(lineage)]
    blobs = [id for id, _ in await context.engine.blob_ids(lineage)]
    try:
        await context.engine.drop(Drop(lineage, (), branches=branches, blobs=blobs))
    except Refused:
        return  # somebody made a thread of that name just now: what it does not use is for the next sweep
