"""What each side of a mirror knows of its role: a generation, which side is active, and who was deleted.

The control record is a head under a reserved name, which no user can give and no listing shows; its step is the
generation. Each change of the active side raises the generation, by compare-and-swap, so of two processes that both
want to change it one does, and the other sees that it was done.

The *role lease* is how a writer that missed the change is stopped: all processes of one generation hold it under the
same owner, and so with the same token, and every commit names that token. Whoever raises the generation gives the lease
to a new owner, and from then on the engine itself refuses the old token.

A tombstone remembers that a life of a thread was ended on the active side, for a follower that missed it.
"""

from __future__ import annotations

import hashlib
import time
from typing import Literal

import msgspec

from backtrail.engines import reserved
from backtrail.engines.base import Commit, Engine, Fence, Head, Lease, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import Corrupt, LockLost

Name = Literal["primary", "replica"]
RESERVED = reserved.RESERVED * 2  #: no listing of a user shows it, nor is it the name of a namespace
LINEAGE = f"{RESERVED}mirror"
GONE = f"{RESERVED}gone/"
_ROLE = f"{RESERVED}role"
_REMEMBERED = 3600 * 1_000_000  # microseconds
_FOR_EVER = 10 * 365 * 86400.0
_NOBODY = bytes(16)


class Role(msgspec.Struct, frozen=True, array_like=True):
    """Which side is active, in which generation. Sides that never met are in generation 0, the primary active."""

    generation: int = 0
    active: Name = "primary"


async def read(side: Engine) -> tuple[Role, Head | None]:
    """What a side knows; (generation 0, primary) on a side that was never mirrored."""
    head = await side.head(LINEAGE)
    if head is None:
        return Role(), None
    try:
        return msgspec.msgpack.decode(head.note, type=Role), head
    except msgspec.DecodeError as error:
        raise Corrupt("the mirror's control record", str(error)) from error


async def write(side: Engine, role: Role) -> Role:
    """Bring a side up to `role`; what it knows afterwards, which may be newer."""
    while True:
        known, head = await read(side)
        if head is not None and known.generation >= role.generation:
            return known
        version = 1 if head is None else head.version + 1
        note = msgspec.msgpack.encode(role)
        generation = role.generation
        new = Head(LINEAGE, LINEAGE, _NOBODY, _NOBODY, generation, version, "mirror", 0, generation, 0, 0, note)
        try:
            await side.commit(Commit(LINEAGE, (Swap(LINEAGE, head.key if head else None, new),)))
        except Refused:
            continue
        return role


async def fence(side: Engine, generation: int) -> Fence:
    """The token of this generation on a side. Older generations' tokens are refused from here on."""
    while True:
        answer = await side.lease(_ROLE, _owner(generation), _FOR_EVER)
        if isinstance(answer, Lease):
            return Fence(_ROLE, answer.token)
        held = int(answer.owner.removeprefix("generation-"))
        if held > generation:
            raise Refused(LINEAGE, f"generation {generation} is over: this side is in generation {held}")
        await side.release(_ROLE, answer.owner)


def _owner(generation: int) -> str:
    return f"generation-{generation}"


# -- tombstones --------------------------------------------------------------------------------------------------------


async def bury(side: Engine, head: Head, generation: int) -> bool:
    """Remember that this life of a thread is about to be ended; False if that was known already. `LockLost` if the side
    is fenced and its generation over."""
    name = _stone(head.thread, head.owner)
    while True:
        known = await side.head(name)
        if known is not None and (known.step, known.version) >= (generation, head.version):
            return False
        note = head.thread.encode()
        # Its step and version say until when: what is written to the thread afterwards is no longer buried.
        now = time.time_ns() // 1000
        stone = Head(name, LINEAGE, head.owner, _NOBODY, generation, head.version, "gone", now, now, 0, 0, note)
        try:
            await side.commit(Commit(LINEAGE, (Swap(name, known.key if known is not None else None, stone),)))
        except Refused:
            continue
        return True


async def unbury(side: Engine, thread: str, owner: bytes) -> None:
    """The thread lives on: its deletion was refused."""
    stone = await side.head(_stone(thread, owner))
    if stone is not None:
        try:
            await side.commit(Commit(LINEAGE, (Swap(stone.thread, stone.key, None),)))
        except Refused:
            return  # another process buries it now


async def buried(side: Engine, head: Head) -> bool:
    """Whether this life of a thread was ended on that side, and nothing was written to it afterwards."""
    stone = await side.head(_stone(head.thread, head.owner))
    if stone is None:
        return False
    written = generation_of(head.branch)
    return written < stone.step or (written == stone.step and head.version <= stone.version)


async def gone(side: Engine, thread: str, owner: bytes) -> bool:
    """Whether this life of a thread was ended on that side, at any time."""
    return await side.head(_stone(thread, owner)) is not None


async def ended(side: Engine, thread: str) -> bool:
    """Whether any life of a thread of this name was ended on that side."""
    return bool(await side.threads(prefix=_stone(thread, b""), limit=1))


async def ended_later(side: Engine, head: Head) -> bool:
    """Whether a thread of this name, but another one, was ended on that side after what `head` tells of was written."""
    written = generation_of(head.branch)
    return any(stone.step > written for stone in await side.threads(prefix=_stone(head.thread, b"")))


def _stone(thread: str, owner: bytes) -> str:
    return f"{GONE}{hashlib.blake2b(thread.encode(), digest_size=16).hexdigest()}/{owner.hex()}"


def branch_prefix(generation: int) -> bytes:
    """The first two bytes of the ids of all branches that are started in a generation."""
    return (generation % 65536).to_bytes(2, "big")


def generation_of(branch: bytes) -> int:
    return int.from_bytes(branch[:2], "big")


async def clear(side: Engine, other: Engine) -> None:
    """Take away old tombstones of threads that neither side has any more. A young one stays: a save that was on its way
    to the other side when the thread was deleted may still arrive there."""
    before = (time.time_ns() // 1000) - _REMEMBERED
    for stone in await side.threads(prefix=GONE):
        thread = stone.note.decode()
        if stone.updated > before:
            continue
        heads = [await side.head(thread), await other.head(thread)]
        if any(head is not None and head.owner == stone.owner for head in heads):
            continue
        try:
            await side.commit(Commit(LINEAGE, (Swap(stone.thread, stone.key, None),)))
        except (Refused, LockLost):
            continue  # another process did, or the name was buried anew


def hidden(name: str) -> bool:
    """Whether a thread or lineage is one of ours."""
    return name.startswith(RESERVED)
