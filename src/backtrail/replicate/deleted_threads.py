"""Tombstones: a record of each deleted thread, for a side that missed the deletion.

A side on which a thread is missing may have deleted it, or may never have had it. The tombstone tells which. It is
written on the active side before the thread's head is deleted, and has no effect as long as that side has the head: so
a deletion that was refused or interrupted needs no clearing up. It also tells which rows went with the thread, because
a sweep may have freed them by the time the other side is compared. And it is found for a thread that is kept as
`name#diverged-n` because it lost its name on the other side, where nobody knew that it was deleted.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from itertools import islice

import msgspec

from backtrail.engines.base import LAST_STEP, Engine, Head, Position, generation_of
from backtrail.engines.branch_origins import walk_back
from backtrail.engines.reserved_record import record, swap, update
from backtrail.errors import DECODE_ERRORS, Corrupt, LockLost
from backtrail.replicate.role_record import LINEAGE, RESERVED

_NAMES = f"{RESERVED}gone/"
_REMEMBERED = 3600 * 1_000_000  # microseconds: a save that was under way may still reach the other side
_KNOWN = 64  # branches: a tombstone has the size of a head's note
_DIVERGED = re.compile(r"#diverged-\d+$")
_LONGEST = 480  # characters of a name that another name is made from


class Tombstone(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The deletion of one incarnation of a thread."""

    generation: int  #: in which it was deleted
    version: int  #: of the head that was deleted
    thread: str
    known: tuple[Position, ...] = ()  #: the last row of each branch of its own or in its history; the newest of many

    def knew(self, position: Position) -> bool | None:
        """True if the side on which the thread was deleted had this row; None if that is not known, because it had too
        many branches to name."""
        for branch, step in self.known:
            if branch == position[0]:
                return position[1] <= step
        return None if len(self.known) == _KNOWN else False


def diverged(thread: str, number: int) -> str:
    """The name under which a head of this thread is kept that lost."""
    return f"{_stem(thread)}#diverged-{number}"


def _stem(thread: str) -> str:
    return _DIVERGED.sub("", thread)[:_LONGEST]


class Fate(Enum):
    """The effect of a tombstone on a head of the same incarnation."""

    ALIVE = auto()  #: none: there was none
    DEAD = auto()  #: whoever deleted the thread had seen this head
    NEWER = auto()  #: whoever deleted the thread had not seen this head, which was written in a newer generation
    UNSEEN = auto()  #: the same, but in an older generation: it cannot keep its name
    OUSTED = auto()  #: another thread of its name was deleted in a newer generation: it cannot keep its name


class Deletions(msgspec.Struct, frozen=True):
    """What is known of the deletions of a name."""

    own: Tombstone | None  #: of the incarnation that was asked for
    others: Mapping[bytes, int]  #: other incarnations that were deleted, each with the newest generation of that

    def knew(self, position: Position) -> bool | None:
        """True if the side on which this incarnation was deleted had this row; None if that is not known."""
        return False if self.own is None else self.own.knew(position)


def fate(head: Head, deletions: Deletions) -> Fate:
    """The effect of deletions on a head, as far as its version tells."""
    written, own = generation_of(head.version), deletions.own
    if own is None:  # a name that was deleted is not given to a thread that was older
        return Fate.OUSTED if written < max(deletions.others.values(), default=0) else Fate.ALIVE
    # The versions of one generation were all made on one side, one after the other.
    if head.version <= own.version and written == generation_of(own.version):
        return Fate.DEAD
    return Fate.NEWER if written >= own.generation else Fate.UNSEEN


async def write_tombstone(side: Engine, head: Head, generation: int) -> None:
    """Record that this head is about to be deleted. `LockLost` if the side is fenced and the generation is over."""
    name = _name(head.thread, head.owner)
    stone = Tombstone(generation, head.version, head.thread, await _rows_of(side, head))

    def written(known: Head | None) -> Head | None:
        if known is not None and _decode(known) >= stone:
            return None
        value, now = msgspec.msgpack.encode(stone), time.time_ns() // 1000
        return record(name, LINEAGE, "gone", value, known, incarnation=head.owner, updated=now)

    await update(side, name, written)


async def _rows_of(side: Engine, head: Head) -> tuple[Position, ...]:
    """The last row of each branch that the thread wrote, or that its history leads through."""
    branches = {branch.id: branch for branch in await side.branches(head.lineage)}
    own = islice((branch.id for branch in reversed(branches.values()) if branch.owner == head.owner), _KNOWN)
    found = {segment.branch.id: segment.last for segment in islice(walk_back(head.position, branches.get), _KNOWN)}
    for id in own:
        last = await side.steps(head.lineage, id, 1, LAST_STEP, newest=1)
        found[id] = last[0].step if last else 0
    return tuple(islice(found.items(), _KNOWN))


async def find_deletions(sides: Iterable[Engine], head: Head) -> Deletions:
    """The deletions of this thread and of others of its name on any of these sides, which do not have this head."""
    own: list[Tombstone] = []
    others: dict[bytes, int] = {}
    for side in sides:
        for stone in await side.threads(prefix=_name(head.thread, b"")):
            deleted = _decode(stone)
            there = await side.head(deleted.thread)
            if there is not None and there.owner == stone.owner:
                continue
            if stone.owner == head.owner:
                own.append(deleted)
            elif deleted.thread == head.thread:
                others[stone.owner] = max(others.get(stone.owner, 0), deleted.generation)
    return Deletions(max(own, default=None), others)


async def clear_tombstones(side: Engine, other: Engine) -> None:
    """Delete old tombstones of threads that neither side has any more."""
    before = time.time_ns() // 1000 - _REMEMBERED
    for stone in await side.threads(prefix=_NAMES):
        if stone.updated > before:
            continue
        thread = _decode(stone).thread
        heads = [await side.head(thread), await other.head(thread)]
        if any(head is not None and head.owner == stone.owner for head in heads):
            continue
        try:
            await swap(side, stone, None)  # unless another process did, or the thread was deleted again
        except LockLost:
            return  # this generation is over: the next one clears


def _name(thread: str, owner: bytes) -> str:
    return f"{_NAMES}{hashlib.blake2b(_stem(thread).encode(), digest_size=16).hexdigest()}/{owner.hex()}"


def _decode(stone: Head) -> Tombstone:
    try:
        return msgspec.msgpack.decode(stone.note, type=Tombstone)
    except DECODE_ERRORS as error:
        raise Corrupt("a tombstone of a thread", str(error)) from error
