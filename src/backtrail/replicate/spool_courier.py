"""The courier: takes each lineage of a spool to the sides, and knows which could not be delivered.

A lineage that has to wait does not delay others.
"""

from __future__ import annotations

from functools import partial

from backtrail.engines.base import Head
from backtrail.engines.conflicts import Refused
from backtrail.errors import Corrupt, InvalidInput, LockLost, Unavailable
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.spool import KEYS, Spool
from backtrail.replicate.spool_delivery import Stranded, deliver
from backtrail.replicate.status import log


def made(ring: Head | None) -> int | None:
    """The time at which a key ring was made: the same for two copies of one."""
    return None if ring is None else ring.created


class Courier:
    """Delivers the lineages of a spool to the active side of a mirror."""

    def __init__(self, mirror: Mirror, spool: Spool) -> None:
        self._mirror, self._spool = mirror, spool
        self.stranded: set[str] = set()  #: lineages that could not be delivered

    async def deliver_all(self, without: set[str]) -> set[str]:
        """Deliver all lineages except `without`; returns these and all others that have to wait."""
        left = set(without)
        for lineage in await self._spool.lineages():
            if lineage in left:
                continue
            try:
                await self._deliver(lineage)
            except (Refused, Corrupt) as error:
                self.stranded.add(lineage)
                left.add(lineage)
                self._mirror.failover.last_error = str(error)
                log.warning("%s", error)
        return left

    async def try_to_deliver(self, lineage: str) -> None:
        """Deliver a stranded lineage before the next save to it. If that is still not possible, its saves are kept
        beside that one later."""
        try:
            await self._deliver(lineage)
        except (Refused, LockLost, Corrupt, Unavailable) as error:
            self._mirror.failover.last_error = str(error)

    async def _deliver(self, lineage: str) -> None:
        failover, replicator = self._mirror.failover, self._mirror.replicator
        standing = failover.standing
        active = failover.fenced(standing.active, standing)
        sides = [active, *([failover.sides[standing.follower]] if failover.is_healthy(standing.follower) else [])]
        deliver_to = partial(deliver, self._spool, lineage, active, sides, replicator.codec, standing.generation)
        try:
            merged = await deliver_to()
        except Stranded:
            await replicator.merge_now(lineage)
            merged = await deliver_to(detach=True)
        self.stranded.discard(lineage)
        replicator.count_diverged(merged.diverged)
        replicator.mark(lineage)  # the follower lacks it

    async def check_same_store(self) -> None:
        """Refuse to deliver to a store that is sealed with other keys than the spooled saves."""
        side = self._mirror.sides[self._mirror.failover.standing.active]
        for name, facts in await self._spool.all_facts():
            if name.endswith(KEYS) and made(await side.head(name)) != made(facts.head):
                raise InvalidInput(
                    "the spool holds saves of a store with another key ring: open it with that store, or give spool= "
                    "another directory"
                )
