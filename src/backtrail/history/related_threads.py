"""The relatives of a thread: threads it was forked from, threads forked from it, and the last checkpoint in common."""

from __future__ import annotations

from backtrail.engines.base import Branch, Head, Position
from backtrail.engines.branch_origins import BranchLookup, Segment, is_complete, walk_back
from backtrail.history.ancestry import CHUNK, Ancestry, broken_walk
from backtrail.history.context import Context
from backtrail.history.records import uuid_text
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.model import Fork, Relation

_NEAR = 16  # steps that are read although they are not needed, to save a query


async def forks(thread: ThreadHandle[S]) -> list[Fork]:
    """Every other thread of the lineage, with the last checkpoint that both have."""
    context, head = thread.context, await thread.require_head()
    lookup = await context.branch_lookup(head.lineage)
    common = _CommonPositions(head, (await Ancestry.of(context, head)).segments, lookup)
    found: list[tuple[Head, Branch, int]] = []
    for other in await context.engine.heads(head.lineage):
        shared = None if other.thread == thread.id else common.of(other)
        if shared is not None:
            found.append((other, *shared))
    ids = await _ids(context, head.lineage, {(branch.id, step) for _, branch, step in found})
    return [
        Fork(other.thread, uuid_text(ids[branch.id, step]), step, _relation(branch, head, other))
        for other, branch, step in found
        if (branch.id, step) in ids
    ]


class _CommonPositions:
    """The last positions that a thread has in common with others. Each branch is walked through once, however many
    threads were forked from it or from forks of it."""

    def __init__(self, head: Head, segments: list[Segment], lookup: BranchLookup) -> None:
        self._head = head
        self._ours = {segment.branch.id: segment.last for segment in segments}
        self._lookup = lookup
        self._known: dict[bytes, tuple[Branch, int] | None] = {}  # by branch that is not ours

    def of(self, other: Head) -> tuple[Branch, int] | None:
        """The branch and step of the last checkpoint in common with a thread; None if there is none."""
        passed: list[bytes] = []
        result: tuple[Branch, int] | None = None
        segments: list[Segment] = []
        for segment in walk_back(other.position, self._lookup):
            segments.append(segment)
            branch, step = segment.branch, segment.last
            if branch.owner == self._head.owner:
                result = (branch, step)
                break
            if branch.id in self._ours:
                result = (branch, min(step, self._ours[branch.id]))
                break
            if branch.id in self._known:
                result = self._known[branch.id]
                break
            passed.append(branch.id)
        else:
            if not is_complete(segments):
                raise broken_walk(other, other.position, segments, self._lookup)
        self._known.update(dict.fromkeys(passed, result))
        return result


async def _ids(context: Context, lineage: str, positions: set[Position]) -> dict[Position, bytes]:
    """The ids of those of these checkpoints that are there; those that are near each other are read together."""
    found: dict[Position, bytes] = {}
    spans: list[tuple[bytes, int, int]] = []
    for branch, step in sorted(positions):
        if spans and spans[-1][0] == branch and step - spans[-1][2] <= _NEAR and step - spans[-1][1] < CHUNK:
            spans[-1] = (branch, spans[-1][1], step)
        else:
            spans.append((branch, step, step))
    for branch, first, last in spans:
        found |= {(branch, one.step): one.id for one in await context.engine.steps(lineage, branch, first, last)}
    return found


def _relation(branch: Branch, head: Head, other: Head) -> Relation:
    """Which thread was forked from which: decided by the owner of the branch of the last common checkpoint."""
    if branch.owner == head.owner:
        return "child"
    return "parent" if branch.owner == other.owner else "sibling"
