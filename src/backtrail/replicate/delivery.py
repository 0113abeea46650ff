"""Delivering a spool lineage by lineage: one that has to wait keeps no other waiting, and comes first later on."""

from __future__ import annotations

from functools import partial
from typing import Any

from backtrail.engines.conflicts import Refused
from backtrail.errors import Corrupt, LockLost, Unavailable
from backtrail.replicate import limits
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.replay import Hop, ReplayTarget, Stranded, deliver
from backtrail.replicate.spool import Spool
from backtrail.replicate.status import log


class Delivery:
    """What is brought from a spool to the active side of a mirror. One at a time: the caller sees to that."""

    def __init__(self, spool: Spool, hop: Hop[Any], mirror: Mirror) -> None:
        self._spool = spool
        self._hop = hop
        self._mirror = mirror
        self.under_way = False
        self.stranded: set[str] = set()  # lineages that could not be delivered

    async def everything(self, without: set[str]) -> set[str]:
        """Deliver all lineages but these; those that have to wait, with these."""
        left = set(without)
        lineages: list[str] = await self._hop(self._spool.lineages())
        for lineage in lineages:
            if lineage in left:
                continue
            try:
                await self._lineage(lineage)
            except (Refused, Corrupt) as error:
                self.stranded.add(lineage)
                left.add(lineage)
                self._mirror.failed(error)
                log.warning("%s", error)
        return left

    async def first(self, lineage: str) -> None:
        """What waits in the spool came before what is to be saved now; if it still cannot be delivered, it is kept
        beside later."""
        self.under_way = True
        try:
            await self._lineage(lineage)
        except (Refused, LockLost, Corrupt, Unavailable) as error:
            self._mirror.failed(error)
        finally:
            self.under_way = False

    async def _lineage(self, lineage: str) -> None:
        refused: Refused | None = None
        for _ in limits.DELIVERY.attempts():
            try:
                if await deliver(self._spool, self._hop, self._shore(), lineage):
                    self.stranded.discard(lineage)
                    return
                refused = None
            except Stranded:
                raise
            except Refused as error:  # others write to the same threads
                refused = error
        if refused is not None:
            raise refused

    def _shore(self) -> ReplayTarget:
        active = self._mirror.active
        return ReplayTarget(active, self._mirror.reachable, self._mirror.mark, partial(self._mirror.keep, active))
