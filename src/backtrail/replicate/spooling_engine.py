"""A mirror with a spool: while both sides are unreachable, saves are kept in a local store, and delivered afterwards.

A mirror is *adrift* from the first save that reaches neither side until everything in the spool has been delivered.
Meanwhile saves go directly to the spool. They build on the spooled head of a thread, on the last head that this process
saw or, for a thread that it never saw, on nothing. Reads are answered from the spool if it has the complete answer, and
are `Unavailable` otherwise: a head in memory may be old, which is good enough to build on (the delivery keeps both
saves) but must not be returned as the state.

Every process writes to branches of its own here, so that a save can be delivered later exactly as it was planned.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import msgspec

from backtrail.engines.base import Commit, Head, Row, Swap
from backtrail.engines.capabilities import SavesAdrift, WritesInGenerations
from backtrail.engines.conflicts import Refused, closed
from backtrail.engines.delegating_engine import DelegatingEngine, Method
from backtrail.errors import BacktrailError, LockLost, Unavailable
from backtrail.replicate import concurrency, limits
from backtrail.replicate.head_cache import HeadCache
from backtrail.replicate.mirror import Mirror, planned_before
from backtrail.replicate.spool import KEYS, NOTHING, Spool
from backtrail.replicate.spool_delivery import Courier
from backtrail.replicate.status import Mirrored, SpoolStatus, Status, log


def _can_be_spooled(commit: Commit, swap: Swap) -> bool:
    """True for a save, or a move of a thread that exists. A fork has nothing of its own that a spool could keep."""
    if swap.new is None or swap.thread.endswith(KEYS):
        return False
    return swap.expect is not None or any((row.branch, row.step) == swap.new.position for row in commit.rows)


class Spooled(DelegatingEngine, WritesInGenerations, SavesAdrift, Mirrored):
    """A mirror that accepts saves while both sides are unreachable."""

    def __init__(self, mirror: Mirror, spool: Spool) -> None:
        self.mirror = mirror
        self.properties = mirror.properties
        self._spool = spool
        self._courier = Courier(mirror, spool)
        self._tips = HeadCache()
        blocking = mirror.blocking
        self._delivering, self._save_gate = concurrency.Mutex(blocking), concurrency.Mutex(blocking)
        self._background = concurrency.Background(blocking, self._tick)
        self._lineage_locks = concurrency.LineageLocks(blocking)
        self._started = self._closed = False
        self._refusals = 0  # deliveries that failed
        self._holdings = SpoolStatus(records=0, bytes=0, since=None)
        self.adrift = False
        mirror.spool = self._status
        self._renew_prefix()

    def unwrap(self) -> Mirror:
        return self.mirror

    @property
    def generation(self) -> int:
        return self.mirror.generation

    @property
    def branch_prefix(self) -> bytes:
        return self.mirror.branch_prefix

    @property
    def may_drop(self) -> bool:
        return not self.adrift and self.mirror.may_drop

    def _renew_prefix(self) -> None:
        """Start new branches from now on: of an old one, a side may have a step that this process does not know."""
        self.mirror.process_prefix = b"\1" + os.urandom(4)

    # -- leaving and coming back ---------------------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Called before any read or save: first deliver the saves that an earlier process left in the spool."""
        if self._started and not self._closed:
            return
        if self._closed:
            raise closed("mirrored")
        await self._count()
        await self._try_to_deliver()
        self._started = True
        self._background.wake()

    def _go_adrift(self, error: BaseException) -> None:
        if not self.adrift:
            self.adrift = True
            # From here on, saves may build on heads older than those of the sides, so they start new branches: on an
            # old one, the next step may be taken.
            self._renew_prefix()
            log.warning("neither side can take a save: saves go to the spool from here on (%s)", error)
            self.mirror.announce()
        if self._started:
            self._background.wake()

    async def _deliver_spool(self) -> None:
        """Deliver what there is and return to normal operation. `Unavailable` if no side answers yet."""
        asked = self._refusals
        async with self._delivering:
            if self._started and not self.adrift and not self._holdings.records:
                return
            if self._refusals > asked:  # another caller tried while we waited
                raise self.mirror.failover.both_unreachable()
            try:
                was_adrift = await self._deliver_despite_role_changes()
            except Unavailable:
                self._refusals += 1
                raise
        if was_adrift:
            log.warning("a side is back, and what was spooled is delivered (%d saves left)", self._holdings.records)
            self.mirror.announce()

    async def _try_to_deliver(self) -> None:
        try:
            await self._deliver_spool()
        except Unavailable as error:
            self._go_adrift(error)

    async def _deliver_despite_role_changes(self) -> bool:
        for _ in limits.LANDING.attempts():
            try:
                return await self._deliver_everything()
            except LockLost as error:  # others are changing the roles
                last = error
        raise Unavailable(f"the spool could not be delivered yet: {last}") from last

    async def _deliver_everything(self) -> bool:
        await self.mirror.learn()
        await self._courier.deliver_all()
        async with self._save_gate:  # deliver the saves that came meanwhile; from here on saves wait
            await self._courier.deliver_all(stranded=False)
            self._renew_prefix()  # no save may continue a branch of which the spool has the next step
            was_adrift, self.adrift = self.adrift, False
        self.mirror.replicator.wake()
        await self._count()
        return was_adrift

    async def _count(self) -> None:
        async with self._save_gate:  # a save counts itself
            self._holdings = await self._spool.survey()

    def _status(self) -> SpoolStatus:
        limit = self.mirror.settings.spool_limit
        return msgspec.structs.replace(self._holdings, adrift=self.adrift, limit=limit)

    async def _tick(self) -> float:
        """Deliver if a side is reachable again, or if another process left saves in the spool."""
        try:
            await self._count()
            await self._deliver_spool()
        except (BacktrailError, Refused) as error:
            self.mirror.failover.last_error = str(error)
        except Exception as error:  # noqa: BLE001  # the background goes on; what is spooled stays, and is visible
            if not self._closed:
                self.mirror.failover.last_error = str(error)
                log.exception("the delivery of the spool failed; it is tried again")
        every = self.mirror.settings.health_every
        return min(limits.LOOK_AGAIN, every) if self.adrift else every

    # -- writing -------------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        if not all(_can_be_spooled(commit, swap) for swap in commit.swaps) or not commit.swaps:
            await super().commit(commit)
            for swap in commit.swaps:
                if swap.thread.endswith(KEYS):
                    await self._spool.remember(swap.thread, swap.new)
            await self._learn(commit)
            return
        await self._ready()
        async with self._lineage_locks.of(commit.lineage):
            await self._save(commit)
            await self._learn(commit)

    async def _learn(self, commit: Commit) -> None:
        """Know the heads that a commit left, and the rows that they are at: the next save may have to be spooled."""
        for thread in self._tips.learn(commit):
            if not self.adrift:
                with contextlib.suppress(Unavailable):  # this change is made; the next call will notice
                    await self.tip(thread)

    async def _save(self, commit: Commit) -> None:
        in_doubt = False
        if not self.adrift:
            if commit.lineage in self._courier.stranded:
                # If that is still not possible, what is stranded is kept beside this save later.
                async with self._delivering:
                    with contextlib.suppress(LockLost, Unavailable):
                        await self._courier.try_to_deliver(commit.lineage)
            try:
                await self.mirror.commit(commit)
                return
            except Unavailable as error:
                if self._closed:
                    raise
                # A side may have it. So the same save goes to the spool, and nothing else is written to its branch.
                in_doubt = True
                self._go_adrift(error)
        async with self._save_gate:
            if in_doubt:
                self._check_base(commit)
                self.adrift = True  # even if a side has just come back: the delivery recognizes the save
                self._background.wake()  # it may have checked the spool before; now it waits for the gate
            elif not self.adrift or planned_before(commit, self.generation, self.branch_prefix):
                raise Refused(commit.lineage, "the mirror went to its spool, or came back: look again")
            await self._put(commit, in_doubt=in_doubt)

    def _check_base(self, commit: Commit) -> None:
        """Refuse a save in doubt that continues a branch from a step after which this process has already written to
        it: no side can have it, and the next step is taken."""
        begun = {branch.id for branch in commit.branches}
        if all(row.branch in begun for row in commit.rows):
            return
        for swap in commit.swaps:
            known = self._tips.get(swap.thread)
            if known is None or known[0].key != swap.expect:
                raise Refused(swap.thread, f"thread {swap.thread!r} was saved to since: look again")

    async def _put(self, commit: Commit, *, in_doubt: bool) -> None:
        await self._check_room(commit.size)
        try:
            await self._spool.put(commit, in_doubt=in_doubt)
        except Unavailable as error:
            raise self._nothing_usable(error) from error
        held = self._holdings
        since = time.time() if held.since is None else held.since
        self._holdings = SpoolStatus(records=held.records + 1, bytes=held.bytes + commit.size, since=since)

    def _nothing_usable(self, error: Unavailable) -> Unavailable:
        return Unavailable(f"{self.mirror.failover.both_unreachable()}; and the spool cannot be used: {error}")

    async def _check_room(self, more: int) -> None:
        """Refuse a save for which the spool has no room; the spool is left unchanged."""
        limit = self.mirror.settings.spool_limit
        if limit is None or self._holdings.bytes + more <= limit:
            return
        self._holdings = await self._spool.survey()  # others may have delivered some
        if self._holdings.bytes + more > limit:
            raise Unavailable(
                f"{self.mirror.failover.both_unreachable()}; and the spool is full: it holds "
                f"{self._holdings.bytes:,} bytes, and this save of {more:,} would go beyond spool_limit={limit}; "
                "nothing was saved: bring a side back, or raise the limit"
            )

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _ask(self, method: Method[Any], *args: Any, **options: Any) -> Any:
        """Call the mirror. While it is adrift, the spool answers what it can; all else needs a side."""
        await self._ready()
        if self.adrift:
            found = await self._spool.answer(method.__name__, *args, **options)
            if found is not NOTHING:
                return found
            await self._deliver_spool()
        return await getattr(self.mirror, method.__name__)(*args, **options)

    async def base(self, thread: str) -> tuple[Head, Row | None] | None:
        await self._ready()
        if not self.adrift:
            try:
                return await self.tip(thread)
            except Unavailable as error:
                if self._closed:
                    raise
                self._go_adrift(error)
        try:
            found = await self._spool.answer("tip", thread)
        except Unavailable as error:
            raise self._nothing_usable(error) from error
        if found is not NOTHING:
            # A spooled head is the one to build on, whichever process saved it.
            self._tips.put(thread, found, sure=True)
        known = self._tips.get(thread)
        if known is not None and known[1] is None:
            raise self.mirror.failover.both_unreachable()  # it was moved to a step that this process has not seen
        return known

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        found = await super().tip(thread)
        self._tips.put(thread, found)
        return found

    async def head(self, thread: str) -> Head | None:
        if not thread.endswith(KEYS):
            return await super().head(thread)
        # A store needs its key ring when it is opened, so the ring is stored for times when no side answers. Nothing is
        # delivered before that: heads that lost could not be sealed without it.
        await self._spool.check()
        known = (await self._spool.rings(thread)).get(thread)
        try:
            ring = await self.mirror.head(thread)
        except Unavailable:
            if known is None or self._closed:
                raise  # a spool that never met this store cannot replace it
            return known.head
        if known is None or known.is_ring(ring) or not await self._spool.lineages():
            await self._spool.remember(thread, ring)
        return ring

    # -- the store -----------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return self.mirror.status()

    async def settle(self) -> Status:
        """Deliver all spooled saves, compare both sides and ship everything now; the status shows what is left."""
        await self._ready()
        await self._count()  # another process may have left saves
        await self._deliver_spool()
        return await self.mirror.settle()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._background.stop(limits.CLOSE_WITHIN)
        try:
            try:
                await self._count()
            except Unavailable as error:
                log.warning("closed, and the spool could not be read: %s", error)
            if self._holdings.records:
                log.warning(
                    "closed with %d saves (%d bytes) in the spool %s: they are delivered when it is opened again",
                    self._holdings.records,
                    self._holdings.bytes,
                    self._spool.path,
                )
        finally:
            await self.mirror.close()
            await self._spool.engine.close()
