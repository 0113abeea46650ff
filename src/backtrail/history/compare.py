"""Comparing two checkpoints: of one thread, of two threads of a lineage, or of threads that have nothing in common.

Threads of one lineage share rows, so that a comparison descends only where the two states differ. Of unrelated threads,
both states are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backtrail.encode.frame import describe_row
from backtrail.encode.row_format import Tree
from backtrail.engines.base import Head, Position
from backtrail.errors import CheckpointNotFound, Corrupt, NoCheckpoint
from backtrail.history.ancestry import Ancestry, HistoryStep, step_at, to_checkpoint
from backtrail.history.resolve import resolve, whole_id
from backtrail.history.retry import rereading
from backtrail.history.state_reader import StateReader
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.model import Checkpoint, Diff


class _Side(NamedTuple):
    """One of the two checkpoints, and the head of a thread that sees it."""

    head: Head
    one: HistoryStep


@rereading
async def diff(thread: ThreadHandle[S], a: Any = "@~1", b: Any = None, since_fork: bool = False) -> Diff:
    """The changes from `a` to `b` (the head, if not given), which may be checkpoints of other threads. `since_fork`:
    from the last checkpoint that both have in common, instead of from `a`."""
    from backtrail.history.diff import compare  # few processes compare anything

    context, head = thread.context, await thread.require_head()
    old = await _find(thread, head, a, "a")
    new = await _find(thread, head, head.step if b is None else b, "b")
    if since_fork:
        shared = await _last_in_common(thread, old, new)
        if shared is None:
            raise NoCheckpoint(
                f"step {old.one.step.step} of thread {old.one.branch.thread!r} and step {new.one.step.step} of "
                f"{new.one.branch.thread!r} have no checkpoint in common: compare them without since_fork"
            )
        old = _Side(new.head, shared)
    before = after = StateReader(context, new.head.lineage, thread.values)
    if old.head.lineage != new.head.lineage:
        before = StateReader(context, old.head.lineage, thread.values)
    trees = await _tree(thread, old, before), await _tree(thread, new, after)
    changes = await compare((before, after), thread.values, *trees)
    return Diff(await to_checkpoint(context, *old), await to_checkpoint(context, *new), tuple(changes))


@rereading
async def common_ancestor(thread: ThreadHandle[S], at: Any) -> Checkpoint | None:
    """The last checkpoint that the head and `at`, a checkpoint of any thread, have in common."""
    head = await thread.require_head()
    here = _Side(head, await resolve(thread.context, head, head.step))
    shared = await _last_in_common(thread, here, await _find(thread, head, at))
    return None if shared is None else await to_checkpoint(thread.context, head, shared)


async def _find(thread: ThreadHandle[S], head: Head, at: Any, argument: str = "at") -> _Side:
    """The checkpoint that `at` names. A Checkpoint, or a whole id, may be one of another thread."""
    context = thread.context
    try:
        return _Side(head, await resolve(context, head, at, argument))
    except CheckpointNotFound as error:
        id = whole_id(at)
        if id is None:
            raise
        for branch_id, step in await context.caches.ids.positions(context.engine, head, id):
            branch = await context.branch(head.lineage, branch_id)
            one = await step_at(context, head, branch, step) if branch is not None else None
            if one is not None and one.alive:
                return _Side(head, one)
        writer = await context.engine.head(at.thread_id) if isinstance(at, Checkpoint) else None
        if writer is None or writer.lineage == head.lineage:
            raise error
        return _Side(writer, await resolve(context, writer, at))


async def _last_in_common(thread: ThreadHandle[S], a: _Side, b: _Side) -> HistoryStep | None:
    """The newest living checkpoint in the ancestry of both."""
    if a.head.lineage != b.head.lineage:
        return None
    context = thread.context
    ours = {s.branch.id: s.last for s in (await Ancestry.of(context, a.head, a.one.position)).segments}
    for segment in (await Ancestry.of(context, b.head, b.one.position)).segments:
        if segment.branch.id in ours:
            at: Position = (segment.branch.id, min(segment.last, ours[segment.branch.id]))
            return await (await Ancestry.of(context, b.head, at)).newest_alive()
    return None


async def _tree(thread: ThreadHandle[S], side: _Side, reader: StateReader) -> Tree:
    position = side.one.position
    row = await thread.context.engine.row(side.head.lineage, *position)
    if row is None:
        raise Corrupt(describe_row(*position), "the row is missing")
    return (await reader.root(*position, row.root, deep=False)).tree
