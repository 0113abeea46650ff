"""Which checkpoint has which id, remembered with a thread's tip.

An engine may have to look through a whole lineage to find an id, or to say that it is not there. A thread in which ids
are looked up again and again, because its caller chooses them, would pay that with every save. Whoever adds a
checkpoint to a thread moves its head, so the ids that belong to a head do not change while it stands.
"""

from __future__ import annotations

from clew.engines.base import Engine

MANY = 1 << 17  # ids of a lineage that are remembered, 200 bytes each; one that has more is asked for each of them
TWINS = 1024  # rows of one id that are looked at: deleted ones, and those of other threads of the lineage
_LOW, _HIGH = bytes(16), b"\xff" * 16


class Ids:
    """The ids of one thread, and of the rest of its lineage when they were fetched. They are fetched when somebody asks
    for the second time, and from then on every save adds its own."""

    __slots__ = ("_asked", "_complete", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, list[tuple[bytes, int]]] = {}
        self._asked = 0
        self._complete = False

    def add(self, id: bytes, branch: bytes, step: int) -> None:
        """A save made a checkpoint at this place."""
        self.known[id] = [*self.known.get(id, ()), (branch, step)]

    async def places(self, engine: Engine, lineage: str, id: bytes) -> list[tuple[bytes, int]]:
        """Where rows of this id are, of this thread and perhaps of others."""
        self._asked += 1
        if self._asked == 2:
            await self._fetch(engine, lineage)
        return self.known.get(id, []) if self._complete else await places(engine, lineage, id)

    async def _fetch(self, engine: Engine, lineage: str) -> None:
        found = await engine.locate(lineage, _LOW, _HIGH, MANY)
        if len(found) == MANY:
            return
        for branch, step, id in found:
            there = self.known.get(id, [])
            if (branch, step) not in there:  # a save may be adding to it at this moment
                self.known[id] = [*there, (branch, step)]
        self._complete = True


async def places(engine: Engine, lineage: str, id: bytes) -> list[tuple[bytes, int]]:
    """The same by the engine's word."""
    return [(branch, step) for branch, step, _ in await engine.locate(lineage, id, id, TWINS)]
