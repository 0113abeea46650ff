"""The ancestry of a position: the walk back to the first checkpoint, through branches and forks.

A thread can see every position in its history, including the part that a fork inherited, and every abandoned position
on branches of its own. The walk itself is `engines.branch_origins.walk_back`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from backtrail.encode.frame import describe_row
from backtrail.engines.base import LAST_STEP, Branch, Head, Position, Step
from backtrail.engines.branch_origins import BranchLookup, Segment, is_complete, previous_position, walk_back
from backtrail.errors import Corrupt
from backtrail.history.context import Context
from backtrail.history.records import NO_META, MarkBody, Meta, checkpoint, read_step
from backtrail.model import Checkpoint

CHUNK = 512  #: steps read at once when going back
NO_ID = bytes(16)  # of a step whose id is damaged


class HistoryStep(msgspec.Struct, frozen=True):
    """A step with its decoded metadata, as one thread sees it: the step at the thread's own head never counts as
    deleted."""

    branch: Branch
    step: Step
    meta: Meta
    mark: MarkBody | None
    alive: bool
    damage: Corrupt | None = None  #: only if it was asked for: then `meta` says nothing

    @property
    def position(self) -> Position:
        return (self.branch.id, self.step.step)

    @property
    def facts(self) -> Meta | MarkBody:
        """The record whose label, tags and custom fields count: the newest mark, or the metadata."""
        return self.mark or self.meta


class Ancestry:
    """The walk back from one position; `segments` from the newest to the oldest."""

    def __init__(self, context: Context, head: Head, segments: list[Segment]) -> None:
        self._context = context
        self._head = head
        self.segments = segments

    @classmethod
    async def of(cls, context: Context, head: Head, position: Position | None = None) -> Ancestry:
        """The ancestry of a position (the head's own, if not given), as `head`'s thread sees it."""
        start = head.position if position is None else position
        segments = list(walk_back(start, context.caches.branches.get))
        if not is_complete(segments):
            segments = list(whole_walk(head, start, await context.branch_lookup(head.lineage)))
            for segment in segments:  # a lineage may have more branches than are cached: these are needed again
                context.caches.branches.put(segment.branch)
        return cls(context, head, segments)

    def __contains__(self, position: Position) -> bool:
        return any(s.branch.id == position[0] and s.first <= position[1] <= s.last for s in self.segments)

    def branch_at(self, step: int) -> Branch | None:
        """The branch that holds the step of this number."""
        return next((s.branch for s in self.segments if s.first <= step <= s.last), None)

    def steps_back(
        self, down_to: int = 0, chunk: int = CHUNK, up_to: int = LAST_STEP, salvage: bool = False
    ) -> AsyncIterator[HistoryStep]:
        """Every step that has not been swept, deleted ones included, newest first."""
        return _steps_back(self._context, self._head, self.segments, down_to, chunk, up_to, salvage)

    async def newest_alive(self, salvage: bool = False) -> HistoryStep | None:
        """The newest checkpoint that was not deleted."""
        return await _newest_alive(self._context, self._head, self.segments, salvage)


async def _steps_back(
    context: Context,
    head: Head,
    segments: Iterable[Segment],
    down_to: int = 0,
    chunk: int = CHUNK,
    up_to: int = LAST_STEP,
    salvage: bool = False,
) -> AsyncIterator[HistoryStep]:
    """The steps of a walk, newest first. Reads `chunk` steps at first, then larger chunks."""
    for segment in segments:
        first, last = max(segment.first, down_to), min(segment.last, up_to)
        while first <= last:
            steps = await context.engine.steps(head.lineage, segment.branch.id, first, last, newest=chunk)
            for step in reversed(steps):
                yield _history_step(context, head, segment.branch, step, salvage)
            if len(steps) < chunk:
                break
            last, chunk = steps[0].step - 1, min(CHUNK, chunk * 8)


async def _newest_alive(context: Context, head: Head, segments: Iterable[Segment], salvage: bool) -> HistoryStep | None:
    async for step in _steps_back(context, head, segments, chunk=2, salvage=salvage):
        if step.alive:
            return step
    return None


def whole_walk(head: Head, start: Position, lookup: BranchLookup) -> Iterator[Segment]:
    """The walk back from a position, which raises `Corrupt` where it should go on and cannot."""
    segments: list[Segment] = []
    for segment in walk_back(start, lookup):
        segments.append(segment)
        yield segment
    if not is_complete(segments):
        raise broken_walk(head, start, segments, lookup)


def broken_walk(head: Head, start: Position, segments: list[Segment], lookup: BranchLookup) -> Corrupt:
    """The error for a walk that did not reach the first row."""
    missing = segments[-1].branch.origin if segments else start
    assert missing is not None  # else the walk is complete
    if lookup(missing[0]) is not None:
        reason = f"thread {head.thread!r} needs it, but its branch begins at a later step"
        return Corrupt(describe_row(*missing), reason)
    return Corrupt(f"branch {missing[0].hex()}", f"it is missing, but thread {head.thread!r} needs it")


def _history_step(context: Context, head: Head, branch: Branch, step: Step, salvage: bool = False) -> HistoryStep:
    """`salvage`: a damaged step is returned as such, and counts as alive."""
    try:
        meta, mark = read_step(context.frames, branch.id, step)
    except Corrupt as damage:
        if not salvage:
            raise
        known = step if type(step.id) is bytes and len(step.id) == len(NO_ID) else step._replace(id=NO_ID)
        return HistoryStep(branch, known, NO_META, None, True, damage)
    at_head = head.branch == branch.id and head.step == step.step
    return HistoryStep(branch, step, meta, mark, at_head or mark is None or not mark.deleted)


async def step_at(context: Context, head: Head, branch: Branch, step: int, salvage: bool = False) -> HistoryStep | None:
    """One step, or None if it does not exist."""
    found = await context.engine.steps(head.lineage, branch.id, step, step)
    return _history_step(context, head, branch, found[0], salvage) if found else None


# -- checkpoints and their parents -------------------------------------------------------------------------------------


async def to_checkpoint(context: Context, head: Head, one: HistoryStep) -> Checkpoint:
    """The checkpoint of a step, with its living parent. That may be damaged."""
    first = one.meta.parent is None and one.damage is None
    parent = None if first else await parent_of(context, head, one.branch, one.step.step, salvage=True)
    return make_checkpoint(context, one, parent)


def make_checkpoint(context: Context, one: HistoryStep, parent: HistoryStep | None) -> Checkpoint:
    """The checkpoint of a step with this parent. The id beside damaged metadata may be anybody's: then the step itself
    says what its parent was."""
    parent_id = None if parent is None else parent.step.id if parent.damage is None else one.meta.parent
    made = checkpoint(context.values, one.branch.thread, one.step.id, one.step.step, one.meta, one.mark, parent_id)
    return made if one.damage is None else msgspec.structs.replace(made, damage=str(one.damage.reason))


async def parent_of(
    context: Context,
    head: Head,
    branch: Branch,
    step: int,
    salvage: bool = False,
    lookup: BranchLookup | None = None,
) -> HistoryStep | None:
    """The newest living checkpoint before a step. With a `lookup`, the walk goes only as far back as it must."""
    before = previous_position(branch, step)
    if before is None:
        return None
    if lookup is None:
        return await (await Ancestry.of(context, head, before)).newest_alive(salvage)
    return await _newest_alive(context, head, whole_walk(head, before, lookup), salvage)


# -- what a thread wrote -----------------------------------------------------------------------------------------------


async def own_branches(context: Context, head: Head) -> list[Branch]:
    """The branches that this incarnation of a thread wrote, oldest first."""
    return [branch for branch in await context.branches(head.lineage) if branch.owner == head.owner]


async def living_steps(
    context: Context, head: Head, branch: Branch, first: int = 1, salvage: bool = False
) -> list[HistoryStep]:
    """The living checkpoints of a branch from a step on, oldest first."""
    steps = await context.engine.steps(head.lineage, branch.id, first, LAST_STEP)
    return [one for one in (_history_step(context, head, branch, step, salvage) for step in steps) if one.alive]


def steps_from_end(
    context: Context, head: Head, branch: Branch, first: int, chunk: int = CHUNK, salvage: bool = False
) -> AsyncIterator[HistoryStep]:
    """Every step of a branch that has not been swept, from its end down to step `first`."""
    return _steps_back(context, head, [Segment(branch, first, LAST_STEP)], chunk=chunk, salvage=salvage)


async def labelled_steps(
    context: Context, head: Head, branch: Branch, first: int, last: int = LAST_STEP
) -> list[HistoryStep]:
    """The living checkpoints of a part of a branch that have a label, oldest first. A label comes with a mark, so only
    steps with marks are read."""
    steps = await context.engine.steps(head.lineage, branch.id, first, last, marked=True)
    found = (_history_step(context, head, branch, step) for step in steps)
    return [one for one in found if one.alive and one.facts.label is not None]


async def newest_other(context: Context, head: Head) -> HistoryStep | None:
    """The newest living checkpoint that a thread wrote besides the one at its head."""
    own = [one for branch in await own_branches(context, head) for one in await living_steps(context, head, branch)]
    others = [one for one in own if one.position != head.position]
    return max(others, key=lambda one: (one.meta.created, one.step.id), default=None)
