"""Saving on a new branch, for a caller whose base is not the head. The head stays, or moves to the new row."""

from __future__ import annotations

import msgspec

from backtrail.encode.frame import describe_row
from backtrail.encode.row_format import Root
from backtrail.engines.base import Commit, Head, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import Conflict, Corrupt
from backtrail.history.checkpoint_ids import new_id, uuid_text
from backtrail.history.records import (
    MAX_MOVES,
    Move,
    bump_version,
    checkpoint,
    first_link,
    label_marks,
    move_head,
    open_note,
    seal_row,
    start_branch,
)
from backtrail.history.resolve import resolve
from backtrail.history.retry import attempts
from backtrail.history.run_status import kind_at
from backtrail.history.save import RowBase, SaveRequest, plan_row
from backtrail.history.state_reader import StateReader
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.model import Checkpoint


async def save_on_branch(thread: ThreadHandle[S], request: SaveRequest, base_id: bytes) -> Checkpoint:
    """Save on a new branch off the checkpoint `base_id`; retried until no other writer is faster."""
    context = thread.context
    id = request.id = request.id or new_id(request.time())
    for _ in attempts():
        head = await context.engine.head(thread.id)
        if head is None:
            raise Conflict(thread.id, uuid_text(base_id))
        base, created = await _branch_off(thread, head, base_id)
        planned = await plan_row(thread, request, base)
        now = max(request.time(), created + 1)
        row, blobs, meta = seal_row(
            context.frames, base.position, id, base.digest, base_id, now, planned, request.facts
        )
        if request.follows:
            moved = _jump(thread, head, base, id, now, planned.root)
        else:
            moved = bump_version(context.frames, context.generation, head, now, count=head.count + 1)
        swap = Swap(thread.id, head.key, moved)
        marks = label_marks(context.frames, *base.position, meta)
        try:
            await context.engine.commit(Commit(head.lineage, (swap,), (row,), base.started, marks, blobs, thread.fence))
        except Refused:
            continue
        context.caches.add_saved(head, moved, id, base.position, base.started)
        if request.follows:
            thread.base_id = id
        return checkpoint(context.values, thread.id, id, base.position[1], meta, None, base_id)
    raise Conflict(thread.id, uuid_text(base_id))


async def _branch_off(thread: ThreadHandle[S], head: Head, base_id: bytes) -> tuple[RowBase, int]:
    """The base for the first row of a new branch off a checkpoint, and the time when that checkpoint was made."""
    context = thread.context
    found = await resolve(context, head, uuid_text(base_id))
    row = await context.engine.row(head.lineage, *found.position)
    if row is None:
        raise Corrupt(describe_row(*found.position), "the row is missing")
    root = await StateReader(context, head.lineage, thread.values).root(*found.position, row.root)
    branch = start_branch(
        context.frames, context.new_branch(), head.lineage, thread.id, head.owner, found.position, row.digest
    )
    position, link = (branch.id, found.step.step + 1), first_link(branch, row.digest)
    base = RowBase(head.lineage, position, base_id, link, Root(root.tree, 0), None, (branch,))
    return base, found.meta.created


def _jump(thread: ThreadHandle[S], head: Head, base: RowBase, id: bytes, now: int, root: Root) -> Head:
    """The head, moved to the new row; `undo` moves it back."""
    frames, generation = thread.context.frames, thread.context.generation
    old = open_note(frames, head)
    moves = (*old.moves, Move(base.position, head.position))[-MAX_MOVES:]
    note = msgspec.structs.replace(old, checkpoint=id, pinned=False, moves=moves, undone=())
    kind, size = kind_at(head.kind, root), root.tree.size
    return move_head(frames, generation, head, note, base.position, now, count=head.count + 1, size=size, kind=kind)
