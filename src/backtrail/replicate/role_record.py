"""The role record of each side of a mirror: the generation and the active side.

The role record is a head under a reserved name; its step is the generation. Each change of the active side raises the
generation by compare-and-swap, so if two processes try, one succeeds and the other sees the change.

The *role lease* stops a writer that missed the change: all processes of one generation hold it under the same owner,
hence with the same token, and every commit names that token. Raising the generation gives the lease to a new owner, and
from then on the engine itself refuses the old token.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from backtrail.engines import reserved_names
from backtrail.engines.base import Engine, Fence, Head, Lease
from backtrail.engines.conflicts import Refused
from backtrail.engines.reserved_record import record, swap
from backtrail.errors import DECODE_ERRORS, Corrupt

Name = Literal["primary", "replica"]
RESERVED = reserved_names.RESERVED * 2  #: no listing of a user shows it, nor is it the name of a namespace
LINEAGE = f"{RESERVED}mirror"
_ROLE = f"{RESERVED}role"
_OWNER = "generation-"
_FOR_EVER = 10 * 365 * 86400.0


class Role(msgspec.Struct, frozen=True, array_like=True):
    """Which side is active, in which generation. Before the first mirror, it is generation 0 with the primary
    active."""

    generation: int = 0
    active: Name = "primary"


async def read(side: Engine) -> Role:
    """The role record of a side."""
    return _role(await side.head(LINEAGE))


def _role(head: Head | None) -> Role:
    try:
        return Role() if head is None else msgspec.msgpack.decode(head.note, type=Role)
    except DECODE_ERRORS as error:
        raise Corrupt("the mirror's role record", str(error)) from error


async def write(side: Engine, role: Role) -> Role:
    """Update a side to `role`; returns the role it has afterwards, which may be newer."""
    while True:
        head = await side.head(LINEAGE)
        known = _role(head)
        if head is not None and known.generation >= role.generation:
            return known
        value, number = msgspec.msgpack.encode(role), role.generation
        if await swap(side, head, record(LINEAGE, LINEAGE, "mirror", value, head, step=number, updated=number)):
            return role


async def fence(side: Engine, generation: int) -> Fence:
    """The token of this generation on a side. Tokens of older generations are refused from now on."""
    while True:
        answer = await side.lease(_ROLE, f"{_OWNER}{generation}", _FOR_EVER)
        if isinstance(answer, Lease):
            return Fence(_ROLE, answer.token)
        held = int(answer.owner.removeprefix(_OWNER))
        if held > generation:
            raise Refused(LINEAGE, f"generation {generation} is over: this side is in generation {held}")
        await side.release(_ROLE, answer.owner)


def following(generation: int, active: Name) -> Role:
    """The role in the next generation in which this side is active. The primary's are odd and the replica's even, so
    two processes that change the roles on different sides of a partition never take the same number for different
    sides."""
    after = generation + 1
    return Role(after if after % 2 == (active == "primary") else after + 1, active)


def branch_prefix(generation: int) -> bytes:
    """The first two bytes of the ids of all branches that are started in a generation."""
    return (generation % 65536).to_bytes(2, "big")


def prefix_of(branch: bytes) -> bytes:
    """The part of a branch's id that tells the generation in which it was started: later ones are greater."""
    return branch[:2]


def is_own_record(name: str) -> bool:
    """True if a thread or lineage is a record of the mirror itself."""
    return name.startswith(RESERVED)
