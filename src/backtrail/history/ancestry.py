"""Trails: the way from a thread's first checkpoint to its head, through branches and forks; and finding a place on it.

A place is (branch, step). A thread can see every place on its own trail, the part it inherited by being forked
included, and every place on branches of its own that a rewind left behind.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from backtrail.encode.frame import describe_row
from backtrail.engines.base import LAST_STEP, Branch, Head, Step
from backtrail.errors import AmbiguousCheckpoint, CheckpointNotFound, Corrupt, InvalidInput
from backtrail.history.context import Context
from backtrail.history.records import MarkBody, Meta, checkpoint, open_note, read_step, uuid_text
from backtrail.model import Checkpoint

_CHUNK = 512  # steps read at once when looking back
_PLACES = 64  # rows looked at for a prefix, at first


class Segment(msgspec.Struct, frozen=True):
    """Steps first..last of a branch."""

    branch: Branch
    first: int
    last: int


class SeenStep(msgspec.Struct, frozen=True):
    """A step with its metadata read, as one thread sees it: where its own head stands, nothing is ever deleted."""

    branch: Branch
    step: Step
    meta: Meta
    remark: MarkBody | None
    alive: bool

    @property
    def place(self) -> tuple[bytes, int]:
        """Where it lies: a step of a branch."""
        return (self.branch.id, self.step.step)


class Ancestry:
    """The trail that ends at one place; `segments` from the newest to the oldest."""

    def __init__(self, context: Context, head: Head, segments: list[Segment]) -> None:
        self._context = context
        self._head = head
        self.segments = segments

    @classmethod
    async def to(cls, context: Context, head: Head, branch: bytes, step: int) -> Ancestry:
        """The trail of `head`'s thread that ends at (branch, step)."""
        segments: list[Segment] = []
        at: tuple[bytes, int] | None = (branch, step)
        while at is not None:
            record = await context.branch(head.lineage, at[0])
            if record is None:
                raise Corrupt(f"branch {at[0].hex()}", f"it is missing, but thread {head.thread!r} stands on it")
            first = record.origin[1] + 1 if record.origin is not None else 1
            if at[1] >= first:
                segments.append(Segment(record, first, at[1]))
            at = record.origin
        return cls(context, head, segments)

    def __contains__(self, at: tuple[bytes, int]) -> bool:
        return any(s.branch.id == at[0] and s.first <= at[1] <= s.last for s in self.segments)

    def at(self, step: int) -> tuple[Branch, int] | None:
        """The place of a step number on this trail."""
        for segment in self.segments:
            if segment.first <= step <= segment.last:
                return segment.branch, step
        return None

    async def back(self, upto: int = 0, chunk: int = _CHUNK) -> AsyncIterator[SeenStep]:
        """Every step on the trail that has not been swept away, deleted ones too, newest first, down to `upto`.
        Reads `chunk` steps at first, then more at once."""
        for segment in self.segments:
            last = segment.last
            while last >= max(segment.first, upto):
                first = max(segment.first, last - chunk + 1, upto)
                chunk = min(_CHUNK, chunk * 8)
                steps = await self._context.engine.steps(self._head.lineage, segment.branch.id, first, last)
                for step in reversed(steps):
                    yield look(self._context, self._head, segment.branch, step)
                last = first - 1

    async def living(self) -> SeenStep | None:
        """The newest checkpoint on the trail that was not deleted."""
        async for seen in self.back(chunk=2):
            if seen.alive:
                return seen
        return None


def look(context: Context, head: Head, branch: Branch, step: Step) -> SeenStep:
    """A step as the thread of `head` sees it."""
    meta, remark = read_step(context.frames, branch.id, step)
    standing = head.branch == branch.id and head.step == step.step
    return SeenStep(branch, step, meta, remark, standing or remark is None or not remark.deleted)


def pair_up(context: Context, seen: list[SeenStep]) -> Iterator[Checkpoint]:
    """Checkpoints of a trail, oldest first: each one's parent is the living one before it."""
    parent: bytes | None = None
    for one in seen:
        yield checkpoint(context.values, one.branch.thread, one.step.id, one.step.step, one.meta, one.remark, parent)
        parent = one.step.id


async def seen_at(context: Context, head: Head, branch: Branch, step: int) -> SeenStep | None:
    """One step, if it is there."""
    found = await context.engine.steps(head.lineage, branch.id, step, step)
    return look(context, head, branch, found[0]) if found else None


async def describe(context: Context, head: Head, seen: SeenStep) -> Checkpoint:
    """The checkpoint at a place, with its living parent."""
    parent: bytes | None = None
    if seen.meta.parent is not None:
        trail = await Ancestry.to(context, head, *seen.place)
        before = await (await Ancestry.to(context, head, *_before(trail))).living()
        parent = before.step.id if before is not None else None
    return checkpoint(context.values, seen.branch.thread, seen.step.id, seen.step.step, seen.meta, seen.remark, parent)


def _before(trail: Ancestry) -> tuple[bytes, int]:
    newest = trail.segments[0]
    if newest.last > newest.first or newest.branch.origin is None:
        return newest.branch.id, newest.last - 1
    return newest.branch.origin


async def parent_of(context: Context, head: Head, branch: bytes, step: int) -> SeenStep | None:
    """The living checkpoint before a place."""
    trail = await Ancestry.to(context, head, branch, step)
    return await (await Ancestry.to(context, head, *_before(trail))).living()


async def visible(context: Context, head: Head) -> list[Branch]:
    """The branches that a thread wrote in this life, oldest first."""
    branches = await context.engine.branches(head.lineage)
    for branch in branches:
        context.add_branch(branch)
    return [branch for branch in branches if branch.owner == head.owner]


async def written(context: Context, head: Head, branch: Branch) -> list[SeenStep]:
    """The living checkpoints of a branch, oldest first."""
    steps = await context.engine.steps(head.lineage, branch.id, 1, LAST_STEP)
    return [seen for seen in (look(context, head, branch, step) for step in steps) if seen.alive]


async def newest_beside(context: Context, head: Head) -> SeenStep | None:
    """The newest living checkpoint that a thread wrote, the one it stands on left out."""
    own = [seen for branch in await visible(context, head) for seen in await written(context, head, branch)]
    rest = [seen for seen in own if seen.place != (head.branch, head.step)]
    return max(rest, key=lambda seen: (seen.meta.created, seen.step.id), default=None)


async def find(context: Context, head: Head, at: Any) -> SeenStep:
    """The checkpoint that `at` names: a Checkpoint, an id, a unique prefix of one, or a step number on the trail."""
    if isinstance(at, Checkpoint):
        at = at.id
    if isinstance(at, uuid.UUID):
        at = str(at)
    if type(at) is int:
        return await _find_step(context, head, at)
    if type(at) is str:
        return await _find_id(context, head, at)
    raise InvalidInput(f"at must be a Checkpoint, an id, a prefix of one or a step number, not {type(at).__qualname__}")


async def _find_step(context: Context, head: Head, step: int) -> SeenStep:
    if step < 0:
        raise InvalidInput(f"at={step}: steps are numbered from 1")
    where = (await Ancestry.to(context, head, head.branch, head.step)).at(step)
    seen = await seen_at(context, head, *where) if where is not None else None
    if seen is None:
        raise CheckpointNotFound(head.thread, step, f"its steps go from 1 to {head.step}, less what was pruned")
    if not seen.alive:
        raise CheckpointNotFound(head.thread, step, "it was deleted")
    return seen


async def _find_id(context: Context, head: Head, text: str) -> SeenStep:
    digits = text.replace("-", "").lower()
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        raise CheckpointNotFound(head.thread, text, "an id is 32 hexadecimal digits, or the first few of them")
    if digits == open_note(context.frames, head).checkpoint.hex():  # most who ask for an id have it from the head
        branch = await context.branch(head.lineage, head.branch)
        seen = await seen_at(context, head, branch, head.step) if branch is not None else None
        if seen is not None:
            return seen
    low = bytes.fromhex(digits.ljust(32, "0"))
    high = bytes.fromhex(digits.ljust(32, "f"))
    limit = _PLACES
    while True:
        found, elsewhere, deleted, places = await _answering(context, head, low, high, limit)
        if len(found) > 1 or places < limit:
            break
        limit *= 16  # those of other threads were in the way
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousCheckpoint(head.thread, text, [uuid_text(seen.step.id) for seen in found])
    if elsewhere:
        raise CheckpointNotFound(head.thread, text, "a checkpoint of that id belongs to another thread")
    if deleted:
        raise CheckpointNotFound(head.thread, text, "it was deleted")
    raise CheckpointNotFound(head.thread, text)


async def _places(context: Context, head: Head, low: bytes, high: bytes, limit: int) -> Sequence[tuple[bytes, int]]:
    """Where the first `limit` rows are whose ids lie in a range."""
    if low == high:
        return await context.ids.positions(context.engine, head, low)
    return [(branch, step) for branch, step, _ in await context.engine.locate(head.lineage, low, high, limit)]


async def _answering(
    context: Context, head: Head, low: bytes, high: bytes, limit: int
) -> tuple[list[SeenStep], bool, bool, int]:
    """What of the first `limit` rows with such ids the thread has, whether others do, whether it had, and how many."""
    places = await _places(context, head, low, high, limit)
    trail = await Ancestry.to(context, head, head.branch, head.step)
    found: list[SeenStep] = []
    elsewhere = deleted = False
    for branch_id, step in places:
        branch = await context.branch(head.lineage, branch_id)
        if branch is None:
            raise Corrupt(describe_row(branch_id, step), "its branch is missing")
        if branch.owner != head.owner and (branch_id, step) not in trail:
            elsewhere = True
            continue
        seen = await seen_at(context, head, branch, step)
        if seen is not None and seen.alive:
            found.append(seen)
        else:
            deleted = True
    return found, elsewhere, deleted, len(places)
