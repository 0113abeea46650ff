"""Trails: the way from a thread's first checkpoint to its head, through branches and forks; and finding a place on it.

A place is (branch, step). A thread can see every place on its own trail, the part it inherited by being forked
included, and every place on branches of its own that a rewind left behind.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from backtrail.encode.assemble import place
from backtrail.engines.base import LAST_STEP, Branch, Head, Step
from backtrail.errors import AmbiguousCheckpoint, CheckpointNotFound, Corrupt, InvalidInput
from backtrail.history.core import Core
from backtrail.history.records import Meta, Remark, checkpoint, open_note, read_step, uuid_text
from backtrail.model import Checkpoint

_CHUNK = 512  # steps read at once when looking back
_PLACES = 64  # rows looked at for a prefix, at first


class Segment(msgspec.Struct, frozen=True):
    """Steps first..last of a branch."""

    branch: Branch
    first: int
    last: int


class Seen(msgspec.Struct, frozen=True):
    """A step with its metadata read, as one thread sees it: where its own head stands, nothing is ever deleted."""

    branch: Branch
    step: Step
    meta: Meta
    remark: Remark | None
    alive: bool

    @property
    def place(self) -> tuple[bytes, int]:
        """Where it lies: a step of a branch."""
        return (self.branch.id, self.step.step)


class Trail:
    """The trail that ends at one place; `segments` from the newest to the oldest."""

    def __init__(self, core: Core, head: Head, segments: list[Segment]) -> None:
        self._core = core
        self._head = head
        self.segments = segments

    @classmethod
    async def to(cls, core: Core, head: Head, branch: bytes, step: int) -> Trail:
        """The trail of `head`'s thread that ends at (branch, step)."""
        segments: list[Segment] = []
        at: tuple[bytes, int] | None = (branch, step)
        while at is not None:
            record = await core.branch(head.lineage, at[0])
            if record is None:
                raise Corrupt(f"branch {at[0].hex()}", f"it is missing, but thread {head.thread!r} stands on it")
            first = record.origin[1] + 1 if record.origin is not None else 1
            if at[1] >= first:
                segments.append(Segment(record, first, at[1]))
            at = record.origin
        return cls(core, head, segments)

    def __contains__(self, at: tuple[bytes, int]) -> bool:
        return any(s.branch.id == at[0] and s.first <= at[1] <= s.last for s in self.segments)

    def at(self, step: int) -> tuple[Branch, int] | None:
        """The place of a step number on this trail."""
        for segment in self.segments:
            if segment.first <= step <= segment.last:
                return segment.branch, step
        return None

    async def back(self, upto: int = 0, chunk: int = _CHUNK) -> AsyncIterator[Seen]:
        """Every step on the trail that has not been swept away, deleted ones too, newest first, down to `upto`.
        Reads `chunk` steps at first, then more at once."""
        for segment in self.segments:
            last = segment.last
            while last >= max(segment.first, upto):
                first = max(segment.first, last - chunk + 1, upto)
                chunk = min(_CHUNK, chunk * 8)
                steps = await self._core.engine.steps(self._head.lineage, segment.branch.id, first, last)
                for step in reversed(steps):
                    yield look(self._core, self._head, segment.branch, step)
                last = first - 1

    async def living(self) -> Seen | None:
        """The newest checkpoint on the trail that was not deleted."""
        async for seen in self.back(chunk=2):
            if seen.alive:
                return seen
        return None


def look(core: Core, head: Head, branch: Branch, step: Step) -> Seen:
    """A step as the thread of `head` sees it."""
    meta, remark = read_step(core.frames, branch.id, step)
    standing = head.branch == branch.id and head.step == step.step
    return Seen(branch, step, meta, remark, standing or remark is None or not remark.deleted)


def pair_up(core: Core, seen: list[Seen]) -> Iterator[Checkpoint]:
    """Checkpoints of a trail, oldest first: each one's parent is the living one before it."""
    parent: bytes | None = None
    for one in seen:
        yield checkpoint(core.values, one.branch.thread, one.step.id, one.step.step, one.meta, one.remark, parent)
        parent = one.step.id


async def seen_at(core: Core, head: Head, branch: Branch, step: int) -> Seen | None:
    """One step, if it is there."""
    found = await core.engine.steps(head.lineage, branch.id, step, step)
    return look(core, head, branch, found[0]) if found else None


async def describe(core: Core, head: Head, seen: Seen) -> Checkpoint:
    """The checkpoint at a place, with its living parent."""
    parent: bytes | None = None
    if seen.meta.parent is not None:
        trail = await Trail.to(core, head, *seen.place)
        before = await (await Trail.to(core, head, *_before(trail))).living()
        parent = before.step.id if before is not None else None
    return checkpoint(core.values, seen.branch.thread, seen.step.id, seen.step.step, seen.meta, seen.remark, parent)


def _before(trail: Trail) -> tuple[bytes, int]:
    newest = trail.segments[0]
    if newest.last > newest.first or newest.branch.origin is None:
        return newest.branch.id, newest.last - 1
    return newest.branch.origin


async def parent_of(core: Core, head: Head, branch: bytes, step: int) -> Seen | None:
    """The living checkpoint before a place."""
    trail = await Trail.to(core, head, branch, step)
    return await (await Trail.to(core, head, *_before(trail))).living()


async def visible(core: Core, head: Head) -> list[Branch]:
    """The branches that a thread wrote in this life, oldest first."""
    branches = await core.engine.branches(head.lineage)
    for branch in branches:
        core.learn(branch)
    return [branch for branch in branches if branch.owner == head.owner]


async def written(core: Core, head: Head, branch: Branch) -> list[Seen]:
    """The living checkpoints of a branch, oldest first."""
    steps = await core.engine.steps(head.lineage, branch.id, 1, LAST_STEP)
    return [seen for seen in (look(core, head, branch, step) for step in steps) if seen.alive]


async def newest_beside(core: Core, head: Head) -> Seen | None:
    """The newest living checkpoint that a thread wrote, the one it stands on left out."""
    own = [seen for branch in await visible(core, head) for seen in await written(core, head, branch)]
    rest = [seen for seen in own if seen.place != (head.branch, head.step)]
    return max(rest, key=lambda seen: (seen.meta.created, seen.step.id), default=None)


async def find(core: Core, head: Head, at: Any) -> Seen:
    """The checkpoint that `at` names: a Checkpoint, an id, a unique prefix of one, or a step number on the trail."""
    if isinstance(at, Checkpoint):
        at = at.id
    if isinstance(at, uuid.UUID):
        at = str(at)
    if type(at) is int:
        return await _find_step(core, head, at)
    if type(at) is str:
        return await _find_id(core, head, at)
    raise InvalidInput(f"at must be a Checkpoint, an id, a prefix of one or a step number, not {type(at).__qualname__}")


async def _find_step(core: Core, head: Head, step: int) -> Seen:
    if step < 0:
        raise InvalidInput(f"at={step}: steps are numbered from 1")
    where = (await Trail.to(core, head, head.branch, head.step)).at(step)
    seen = await seen_at(core, head, *where) if where is not None else None
    if seen is None:
        raise CheckpointNotFound(head.thread, step, f"its steps go from 1 to {head.step}, less what was pruned")
    if not seen.alive:
        raise CheckpointNotFound(head.thread, step, "it was deleted")
    return seen


async def _find_id(core: Core, head: Head, text: str) -> Seen:
    digits = text.replace("-", "").lower()
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        raise CheckpointNotFound(head.thread, text, "an id is 32 hexadecimal digits, or the first few of them")
    if digits == open_note(core.frames, head).checkpoint.hex():  # most who ask for an id have it from the head
        branch = await core.branch(head.lineage, head.branch)
        seen = await seen_at(core, head, branch, head.step) if branch is not None else None
        if seen is not None:
            return seen
    low = bytes.fromhex(digits.ljust(32, "0"))
    high = bytes.fromhex(digits.ljust(32, "f"))
    limit = _PLACES
    while True:
        found, elsewhere, deleted, places = await _answering(core, head, low, high, limit)
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


async def _places(core: Core, head: Head, low: bytes, high: bytes, limit: int) -> Sequence[tuple[bytes, int]]:
    """Where the first `limit` rows are whose ids lie in a range."""
    if low == high:
        return await core.ids.places(core.engine, head, low)
    return [(branch, step) for branch, step, _ in await core.engine.locate(head.lineage, low, high, limit)]


async def _answering(core: Core, head: Head, low: bytes, high: bytes, limit: int) -> tuple[list[Seen], bool, bool, int]:
    """What of the first `limit` rows with such ids the thread has, whether others do, whether it had, and how many."""
    places = await _places(core, head, low, high, limit)
    trail = await Trail.to(core, head, head.branch, head.step)
    found: list[Seen] = []
    elsewhere = deleted = False
    for branch_id, step in places:
        branch = await core.branch(head.lineage, branch_id)
        if branch is None:
            raise Corrupt(place(branch_id, step), "its branch is missing")
        if branch.owner != head.owner and (branch_id, step) not in trail:
            elsewhere = True
            continue
        seen = await seen_at(core, head, branch, step)
        if seen is not None and seen.alive:
            found.append(seen)
        else:
            deleted = True
    return found, elsewhere, deleted, len(places)
