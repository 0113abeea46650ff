"""The role record of each side of a mirror: the generation and the active side; and tombstones of threads.

The role record is a head under a reserved name; its step is the generation. Each change of the active side raises the
generation by compare-and-swap, so if two processes try, one succeeds and the other sees the change.

The *role lease* stops a writer that missed the change: all processes of one generation hold it under the same owner,
hence with the same token, and every commit names that token. Raising the generation gives the lease to a new owner, and
from then on the engine itself refuses the old token.

A tombstone records that an incarnation of a thread was deleted on the active side, for a follower that missed it.
"""

from __future__ import annotations

import hashlib
import time
from typing import Literal

import msgspec

from backtrail.engines import reserved_names
from backtrail.engines.base import Engine, Fence, Head, Lease
from backtrail.engines.conflicts import Refused
from backtrail.engines.reserved_record import record, swap, update
from backtrail.errors import DECODE_ERRORS, Corrupt, LockLost

Name = Literal["primary", "replica"]
RESERVED = reserved_names.RESERVED * 2  #: no listing of a user shows it, nor is it the name of a namespace
LINEAGE = f"{RESERVED}mirror"
GONE = f"{RESERVED}gone/"
_ROLE = f"{RESERVED}role"
_REMEMBERED = 3600 * 1_000_000  # microseconds
_FOR_EVER = 10 * 365 * 86400.0


class Role(msgspec.Struct, frozen=True, array_like=True):
    """Which side is active, in which generation. Before the first mirror, it is generation 0 with the primary
    active."""

    generation: int = 0
    active: Name = "primary"


async def read(side: Engine) -> tuple[Role, Head | None]:
    """The role record of a side, and its head; (generation 0, primary) on a side that was never mirrored."""
    head = await side.head(LINEAGE)
    if head is None:
        return Role(), None
    try:
        return msgspec.msgpack.decode(head.note, type=Role), head
    except DECODE_ERRORS as error:
        raise Corrupt("the mirror's role record", str(error)) from error


async def write(side: Engine, role: Role) -> Role:
    """Update a side to `role`; returns the role it has afterwards, which may be newer."""
    while True:
        known, head = await read(side)
        if head is not None and known.generation >= role.generation:
            return known
        value, number = msgspec.msgpack.encode(role), role.generation
        if await swap(side, head, record(LINEAGE, LINEAGE, "mirror", value, head, step=number, updated=number)):
            return role


async def fence(side: Engine, generation: int) -> Fence:
    """The token of this generation on a side. Tokens of older generations are refused from now on."""
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


async def write_tombstone(side: Engine, head: Head, generation: int) -> bool:
    """Record that this incarnation of a thread is about to be deleted; False if that was recorded already. `LockLost`
    if the side is fenced and its generation is over."""
    name = _tombstone(head.thread, head.owner)

    def written(known: Head | None) -> Head | None:
        if known is not None and (known.step, known.version) >= (generation, head.version):
            return None
        now = time.time_ns() // 1000
        stone = record(
            name,
            LINEAGE,
            "gone",
            head.thread.encode(),
            incarnation=head.owner,
            step=generation,
            created=now,
            updated=now,
        )
        # The step and version are those of the deletion: a later save to the thread has higher ones.
        return msgspec.structs.replace(stone, version=head.version)

    return await update(side, name, written)


async def delete_tombstone(side: Engine, thread: str, owner: bytes) -> None:
    """Delete the tombstone of a deletion that was refused."""
    await swap(side, await side.head(_tombstone(thread, owner)), None)  # unless another process is rewriting it


async def is_deleted(side: Engine, head: Head) -> bool:
    """True if this incarnation of a thread was deleted on that side, and nothing was written to it afterwards."""
    stone = await side.head(_tombstone(head.thread, head.owner))
    if stone is None:
        return False
    written = generation_of(head.branch)
    return written < stone.step or (written == stone.step and head.version <= stone.version)


async def was_deleted(side: Engine, thread: str, owner: bytes) -> bool:
    """True if this incarnation of a thread was deleted on that side, at any time."""
    return await side.head(_tombstone(thread, owner)) is not None


async def was_any_deleted(side: Engine, thread: str) -> bool:
    """True if any incarnation of a thread of this name was deleted on that side."""
    return bool(await side.threads(prefix=_tombstone(thread, b""), limit=1))


async def was_deleted_later(side: Engine, head: Head) -> bool:
    """True if an incarnation of this thread was deleted on that side in a later generation than `head` was written."""
    written = generation_of(head.branch)
    return any(stone.step > written for stone in await side.threads(prefix=_tombstone(head.thread, b"")))


def _tombstone(thread: str, owner: bytes) -> str:
    return f"{GONE}{hashlib.blake2b(thread.encode(), digest_size=16).hexdigest()}/{owner.hex()}"


def branch_prefix(generation: int) -> bytes:
    """The first two bytes of the ids of all branches that are started in a generation."""
    return (generation % 65536).to_bytes(2, "big")


def generation_of(branch: bytes) -> int:
    return int.from_bytes(branch[:2], "big")


async def clear_tombstones(side: Engine, other: Engine) -> None:
    """Delete old tombstones of threads that neither side has any more. A recent one stays: a save that was in progress
    when the thread was deleted may still reach the other side."""
    before = (time.time_ns() // 1000) - _REMEMBERED
    for stone in await side.threads(prefix=GONE):
        thread = stone.note.decode()
        if stone.updated > before:
            continue
        heads = [await side.head(thread), await other.head(thread)]
        if any(head is not None and head.owner == stone.owner for head in heads):
            continue
        try:
            await swap(side, stone, None)  # unless another process did, or the thread was deleted again
        except LockLost:
            return  # this generation is over: the next one clears


def is_own_record(name: str) -> bool:
    """True if a thread or lineage is a record of the mirror itself."""
    return name.startswith(RESERVED)
