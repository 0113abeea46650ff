"""The relatives of a thread: threads it was forked from, threads forked from it, and the last checkpoint in common."""

from __future__ import annotations

from typing import get_args

from backtrail.engines.base import Branch, Head, Position
from backtrail.engines.branch_origins import BranchLookup, Segment, is_complete, walk_back
from backtrail.errors import InvalidInput
from backtrail.history.ancestry import CHUNK, Ancestry, whole_walk
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.history.validation import check_limit
from backtrail.model import Fork, Relation

_NEAR = 16  # steps that are read although they are not needed, to save a query


async def forks(
    thread: ThreadHandle[S], relation: Relation | None = None, limit: int | None = None, after: str | None = None
) -> list[Fork]:
    """Every other thread of the lineage, by id, with the last checkpoint that both have; or those of one relation; or a
    page of them, at most `limit` after the thread `after`. A page costs a page, and parents are found without listing
    the others."""
    context, head = thread.context, await thread.require_head()
    most = check_limit(limit)
    if relation not in (None, *get_args(Relation)):
        raise InvalidInput(f"relation={relation!r} is unknown: use 'parent', 'child' or 'sibling'")
    segments = (await Ancestry.of(context, head)).segments
    common = _CommonPositions(context, head, segments)
    if most is None and relation != "parent":
        await common.read_branches()
    found: list[tuple[Head, Branch, int]] = []
    while most is None or len(found) < most:
        size = None if most is None else most + 1
        if relation == "parent":
            page = await _owners(context, head, segments, after, most)
        else:
            page = await context.engine.heads(head.lineage, after=after, limit=size)
        for other in page:
            shared = None if other.thread == thread.id else await common.of(other)
            if shared is not None and relation in (None, _relation(shared[0], head, other)):
                found.append((other, *shared))
        if size is None or len(page) < size or relation == "parent":
            break
        after = page[-1].thread
    found = found[:most]
    ids = await _ids(context, head.lineage, {(branch.id, step) for _, branch, step in found})
    return [
        Fork(other.thread, uuid_text(ids[branch.id, step]), step, _relation(branch, head, other))
        for other, branch, step in found
        if (branch.id, step) in ids
    ]


async def _owners(
    context: Context, head: Head, segments: list[Segment], after: str | None, most: int | None
) -> list[Head]:
    """The heads of other threads that wrote parts of a history, by id, as far as they are still there."""
    owners = {(segment.branch.thread, segment.branch.owner) for segment in segments} - {(head.thread, head.owner)}
    found: list[Head] = []
    for name, owner in sorted(owners):
        other = await context.engine.head(name) if after is None or name > after else None
        if other is not None and other.owner == owner:
            found.append(other)
        if len(found) == most:
            break
    return found


class _CommonPositions:
    """The last positions that a thread has in common with others. Each branch is walked through once, however many
    threads were forked from it or from forks of it."""

    def __init__(self, context: Context, head: Head, segments: list[Segment]) -> None:
        self._context = context
        self._head = head
        self._ours = {segment.branch.id: segment.last for segment in segments}
        self._lookup: BranchLookup = context.caches.branches.get
        self._read = False  # all branches of the lineage, and not only cached ones
        self._known: dict[bytes, tuple[Branch, int] | None] = {}  # by branch that is not ours

    async def read_branches(self) -> None:
        """Read all branches of the lineage, instead of relying on the cached ones."""
        self._lookup, self._read = await self._context.branch_lookup(self._head.lineage), True

    async def of(self, other: Head) -> tuple[Branch, int] | None:
        """The branch and step of the last checkpoint in common with a thread; None if there is none."""
        if not self._read and not is_complete(list(walk_back(other.position, self._lookup))):
            await self.read_branches()
        passed: list[bytes] = []
        result: tuple[Branch, int] | None = None
        for segment in whole_walk(other, other.position, self._lookup):
            branch, step = segment.branch, segment.last
            self._context.caches.branches.put(branch)
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
