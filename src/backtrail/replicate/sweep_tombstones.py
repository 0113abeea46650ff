"""Tombstones of a sweep: a record of what one side deleted, so that it is not copied back from the other.

A comparison makes the union of the rows of two sides, so rows that only one has would be copied. A sweep that the
follower misses (it is unreachable, or behind) therefore writes a *tombstone* on the active side, which names what it
deleted. The next comparison does not copy these records from the follower, but deletes them there; then it deletes the
tombstone.

A tombstone has no effect on records that its own side has.

A lineage with tombstones has a *marker*, so that one read finds out. The marker changes after each new tombstone, so a
process that deletes the tombstones it has read deletes the marker only if no more have been written since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from backtrail.engines.base import Drop, Engine, Head, Position
from backtrail.engines.reserved_record import record, swap, update
from backtrail.errors import DECODE_ERRORS, Corrupt
from backtrail.replicate.role_record import LINEAGE, RESERVED

_SWEPT = f"{RESERVED}swept/"
_MOST = 64  # records that one tombstone names: a head's note is a few KB at most


class _Names(msgspec.Struct, frozen=True, array_like=True):
    """The records that one tombstone names."""

    lineage: str
    rows: list[Position] = []
    bodies: list[Position] = []
    branches: list[bytes] = []
    blobs: list[bytes] = []


_NAMES = msgspec.msgpack.Decoder(_Names)


class Swept:
    """Everything that was swept from a lineage on one side, and the tombstones that name it."""

    def __init__(self, marker: Head | None = None, tombstones: Sequence[Head] = ()) -> None:
        self.marker = marker
        self.tombstones = tombstones
        self.rows: set[Position] = set()
        self.bodies: set[Position] = set()
        self.branches: set[bytes] = set()
        self.blobs: set[bytes] = set()
        for tombstone in tombstones:
            names = _decode(tombstone)
            self.rows.update(names.rows)
            self.bodies.update(names.bodies)
            self.branches.update(names.branches)
            self.blobs.update(names.blobs)

    def add(self, rows: Iterable[Position], branches: Iterable[bytes]) -> None:
        """Delete these as well, although no tombstone names them."""
        self.rows.update(rows)
        self.branches.update(branches)

    def spare(self, way: Mapping[bytes, int]) -> None:
        """Keep these branches up to these steps, because something builds on them."""
        self.rows = {position for position in self.rows if position[1] > way.get(position[0], -1)}
        self.bodies = {position for position in self.bodies if position[1] > way.get(position[0], -1)}
        self.branches -= way.keys()
        self.blobs.clear()

    def __bool__(self) -> bool:
        return bool(self.marker or self.rows or self.branches)

    def __contains__(self, position: object) -> bool:
        return isinstance(position, tuple) and (position in self.rows or position[0] in self.branches)


async def write(side: Engine, drop: Drop) -> None:
    """Write the tombstones of a sweep."""
    marker = _marker(drop.lineage)
    for names in _parts(drop):
        note = msgspec.msgpack.encode(names)
        name = f"{marker}/{hashlib.blake2b(note, digest_size=16).hexdigest()}"
        if await side.head(name) is None:
            await swap(side, None, record(name, LINEAGE, "swept", note))
    note = msgspec.msgpack.encode(_Names(drop.lineage))
    await update(side, marker, lambda known: record(marker, LINEAGE, "swept", note, known))


async def read(side: Engine, lineage: str) -> Swept:
    """Everything swept from a lineage on a side, by its tombstones."""
    marker = await side.head(_marker(lineage))
    return Swept() if marker is None else Swept(marker, await side.threads(prefix=f"{marker.thread}/"))


async def lineages(side: Engine) -> set[str]:
    """The lineages for which a side has tombstones."""
    return {_decode(tombstone).lineage for tombstone in await side.threads(prefix=_SWEPT)}


def _decode(tombstone: Head) -> _Names:
    try:
        return _NAMES.decode(tombstone.note)
    except DECODE_ERRORS as error:
        raise Corrupt("a tombstone of a sweep", str(error)) from error


async def apply(side: Engine, other: Engine, lineage: str, swept: Swept, heads: Iterable[Head]) -> None:
    """Delete on `other`, whose heads are these, what `side` swept; then the tombstones. `Refused` if a head moved."""
    here = {branch.id for branch in await side.branches(lineage)}
    rows = [position for position in sorted(swept.rows) if await side.row(lineage, *position) is None]
    bodies = [
        position
        for position in sorted(swept.bodies)
        if (row := await side.row(lineage, *position)) is None or not row.root
    ]
    kept = await side.blobs(lineage, list(swept.blobs)) if swept.blobs else {}
    expect = [(head.thread, head.key) for head in heads]
    blobs = [id for id in swept.blobs if id not in kept]
    await other.drop(Drop(lineage, expect, rows, bodies, [id for id in swept.branches if id not in here], blobs))
    for tombstone in swept.tombstones:
        await swap(side, tombstone, None)
    await swap(side, swept.marker, None)


def _marker(lineage: str) -> str:
    """The name of a lineage's marker."""
    return f"{_SWEPT}{hashlib.blake2b(lineage.encode(), digest_size=16).hexdigest()}"


def _parts(drop: Drop) -> Iterator[_Names]:
    for kind in ("rows", "bodies", "branches", "blobs"):
        things = list(getattr(drop, kind))
        for start in range(0, len(things), _MOST):
            yield _Names(drop.lineage, **{kind: things[start : start + _MOST]})
