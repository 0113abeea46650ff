"""The relatives of a thread: threads it was forked from, threads forked from it, and the last checkpoint in common."""

from __future__ import annotations

from backtrail.engines.base import Branch, Head
from backtrail.engines.branch_origins import Segment
from backtrail.history.ancestry import Ancestry, step_at
from backtrail.history.context import Context
from backtrail.history.records import uuid_text
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.model import Fork, Relation


async def forks(thread: ThreadHandle[S]) -> list[Fork]:
    """Every other thread of the lineage, with the last checkpoint that both have."""
    context, head = thread.context, await thread.require_head()
    ours = {segment.branch.id: segment for segment in (await Ancestry.of(context, head)).segments}
    found = []
    for other in await context.engine.heads(head.lineage):
        if other.thread != thread.id:
            fork = await _common(context, head, other, ours)
            if fork is not None:
                found.append(fork)
    return found


async def _common(context: Context, head: Head, other: Head, ours: dict[bytes, Segment]) -> Fork | None:
    for segment in (await Ancestry.of(context, other)).segments:
        branch, step = segment.branch, segment.last
        if branch.owner != head.owner:
            mine = ours.get(branch.id)
            if mine is None:
                continue
            step = min(step, mine.last)
        one = await step_at(context, head, branch, step)
        if one is None:
            return None
        return Fork(other.thread, uuid_text(one.step.id), step, _relation(branch, head, other))
    return None


def _relation(branch: Branch, head: Head, other: Head) -> Relation:
    """Which thread was forked from which: decided by the owner of the branch of the last common checkpoint."""
    if branch.owner == head.owner:
        return "child"
    return "parent" if branch.owner == other.owner else "sibling"
