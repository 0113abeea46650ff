"""The relatives of a thread: the threads it was forked from and those forked from it, and where the ways part."""

from __future__ import annotations

from typing import Any

from backtrail.engines.base import Branch, Head
from backtrail.errors import ThreadNotFound
from backtrail.history.ancestry import Ancestry, Segment, seen_at
from backtrail.history.context import Context
from backtrail.history.records import uuid_text
from backtrail.history.thread import Thread
from backtrail.model import Fork, Relation


async def forks(self: Thread[Any]) -> list[Fork]:
    """Every other thread of the lineage, with the last checkpoint that both have."""
    context = self.context
    context.check_open()
    head = await context.engine.head(self.id)
    if head is None:
        raise ThreadNotFound(self.id)
    ours = {s.branch.id: s for s in (await Ancestry.to(context, head, head.branch, head.step)).segments}
    found = []
    for other in await context.engine.heads(head.lineage):
        if other.thread != self.id:
            fork = await _parting(context, head, other, ours)
            if fork is not None:
                found.append(fork)
    return found


async def _parting(context: Context, head: Head, other: Head, ours: dict[bytes, Segment]) -> Fork | None:
    for segment in (await Ancestry.to(context, other, other.branch, other.step)).segments:
        branch, step = segment.branch, segment.last
        if branch.owner != head.owner:
            mine = ours.get(branch.id)
            if mine is None:
                continue
            step = min(step, mine.last)
        seen = await seen_at(context, head, branch, step)
        if seen is None:
            return None
        return Fork(other.thread, uuid_text(seen.step.id), step, _relation(branch, head, other))
    return None


def _relation(branch: Branch, head: Head, other: Head) -> Relation:
    """Whose branch the last common checkpoint is on tells who was forked from whom."""
    if branch.owner == head.owner:
        return "child"
    return "parent" if branch.owner == other.owner else "sibling"
