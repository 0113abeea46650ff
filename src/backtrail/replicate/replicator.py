"""Brings the follower up to date: ships new saves, merges lineages that may differ, and fails back.

Only one round runs at a time, started by the background task, by a caller that wants both sides equal now, or by close.
"""

from __future__ import annotations

import contextlib
import math
import time

import msgspec

from backtrail.engines.base import Engine
from backtrail.engines.conflicts import Refused
from backtrail.errors import BacktrailError, Corrupt, LockLost, Unavailable
from backtrail.replicate import concurrency, limits, role_record
from backtrail.replicate.deleted_threads import clear_tombstones
from backtrail.replicate.failover import Failover, Standing
from backtrail.replicate.fast_forward import fast_forward
from backtrail.replicate.head_comparison import differing
from backtrail.replicate.lineage_copy import heads_of
from backtrail.replicate.merge import merge
from backtrail.replicate.merge_rules import Codec, Moving, Outdated
from backtrail.replicate.outbox import Outbox
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import log


class Replicator:
    """The background work of a mirror."""

    codec: Codec  #: set when the store is opened

    def __init__(self, failover: Failover, blocking: bool, settings: Settings) -> None:
        self.outbox = Outbox(settings.max_pending)
        self.diverged = 0
        self._failover = failover
        self._blocking = blocking
        self._settings = settings
        self._background = concurrency.Background(
            blocking, self._tick, limits.GATHER if settings.replication == "async" else 0.0
        )
        self._round = concurrency.Mutex(blocking)
        self._checked = -math.inf
        self._until_whole = 0
        self._moving: set[str] = set()  # lineages that could not be merged, because others write to them all the time

    def wake(self) -> None:
        self._background.wake()

    def mark(self, lineage: str) -> None:
        """Have a lineage merged soon: the follower may lack something of it."""
        self.outbox.mark(lineage)
        self.wake()

    def look_soon(self) -> None:
        """Make the next round check and compare everything, because something changed."""
        self._checked, self._until_whole = -math.inf, 0

    def _wait(self) -> float:
        """Seconds between two checks of both sides."""
        failover = self._failover
        busy = self.outbox.behind or failover.standing.active == "replica"
        unwell = not (failover.is_healthy("primary") and failover.is_healthy("replica"))
        return min(limits.LOOK_AGAIN, self._settings.health_every) if busy or unwell else self._settings.health_every

    async def _tick(self) -> float:
        await self.round()
        return min(limits.LOOK_AGAIN, self._wait()) if self.outbox.records else self._wait()

    async def round(self, whole: bool = False) -> None:
        """Check both sides, bring the follower up to date, fail back. `whole`: compare all heads."""
        async with self._round:
            if whole:
                self.look_soon()
            try:
                if whole:
                    await self.ship()  # saves that are only waiting would look like differences
                if time.monotonic() - self._checked >= self._wait():
                    await self._check()
                for work in (self.ship, self._fail_back):
                    if self._failover.closed:
                        return
                    await work()
            except (BacktrailError, Refused) as error:
                self._failover.last_error = str(error)  # a head moved or a side failed: the next round tries again
            except Exception as error:  # noqa: BLE001
                if self._failover.closed:
                    log.debug("the mirror was closed in the middle of its background work", exc_info=True)
                    return
                # Whatever the error, the background must continue: what is not shipped stays marked, and is visible in
                # the status.
                self._failover.last_error = f"{type(error).__name__}: {error}"
                log.exception("the mirror's background work failed; it is tried again")

    async def _check(self) -> None:
        """Ping both sides, and compare all heads if that is due."""
        failover = self._failover
        self._checked = time.monotonic()
        self._until_whole -= 1
        for name in failover.sides:
            if not await failover.ping(name) and name == failover.standing.active:
                await failover.fail_over(name)
        await failover.refresh()
        standing = failover.standing
        if failover.can_follow(standing) and self._until_whole <= 0:
            # Before the comparison: a change during it requests another one.
            self._until_whole = limits.LOOKS_PER_COMPARISON
            try:
                await self._compare_all(standing)
            except (BacktrailError, Refused):
                self._until_whole = 0
                raise

    async def _compare_all(self, standing: Standing) -> None:
        """Compare all heads, and mark the lineages that differ."""
        failover = self._failover
        active, follower = failover.sides[standing.active], failover.sides[standing.follower]
        for lineage in await differing(active, follower):
            # A save that was only on its way to the follower has arrived by now.
            waits = self.outbox.is_waiting(lineage)
            if not waits and await heads_of(follower, lineage) != await heads_of(active, lineage):
                self.outbox.mark(lineage)
        for side, other in (standing.active, standing.follower), (standing.follower, standing.active):
            await clear_tombstones(standing.side(side), failover.sides[other])

    async def ship(self) -> None:
        """Bring the follower up to date with the lineages that wait now; what is added meanwhile waits for the next
        time."""
        failed: Exception | None = None
        self._moving.clear()
        for lineage in self.outbox.lineages():
            standing = self._failover.standing
            if self._failover.closed or not self._failover.can_follow(standing):
                return  # if it has not joined this generation yet, the next check has it join
            try:
                await self._ship(lineage)
            except Moving as error:
                self._moving.add(lineage)
                self._failover.last_error = str(error)
            except (Refused, LockLost, Corrupt) as error:
                # Only this lineage has to wait. If it is damaged, it does until it is repaired; if it is sealed with
                # the keys of a namespace, until a store is opened in that.
                failed = error
        if failed is not None:
            raise failed

    async def _ship(self, lineage: str) -> None:
        """Bring the follower up to date with one lineage."""
        standing = self._failover.standing
        lacking = self.outbox.take(lineage)
        try:
            sides = standing.side(standing.active), standing.side(standing.follower)
            blobs = None if lacking is None or lacking.behind else lacking.blobs
            try:
                done = await fast_forward(*sides, lineage, blobs, standing.generation)
            except Refused:
                done = False  # its heads moved, or are not what they seemed
            if not done:
                await self._merge(sides, lineage, standing.generation)
        except BaseException as error:
            self.outbox.give_back(lineage, lacking)
            if isinstance(error, Unavailable):
                await self._failover.ping(standing.follower)  # was it that side? Callers notice if the active one fails
            elif isinstance(error, LockLost):
                await self._failover.learn()  # a side is in a newer generation
            raise
        self.outbox.arrived(lacking)

    async def _merge(
        self, sides: tuple[Engine, Engine], lineage: str, generation: int, *, every_row: bool = False
    ) -> None:
        try:
            merged = await merge(*sides, lineage, self.codec, generation=generation, every_row=every_row)
        except Outdated:
            await self._failover.learn()
            raise
        self.count_diverged(merged.diverged)

    def count_diverged(self, diverged: list[tuple[str, str]]) -> None:
        """Count and log threads whose heads lost, with the names under which those are kept."""
        for thread, name in diverged:
            self.diverged += 1
            log.warning("thread %r was written to on both sides; the head that lost is kept as %r", thread, name)

    async def merge_now(self, lineage: str) -> None:
        """Make a lineage equal on both sides, to the last row; `Refused` if the follower cannot be reached."""
        standing = self._failover.standing
        if not self._failover.can_follow(standing):
            raise Refused(lineage, f"what was spooled for {lineage!r} waits for the {standing.follower}")
        sides = standing.side(standing.active), standing.side(standing.follower)
        await self._merge(sides, lineage, standing.generation, every_row=True)

    async def _fail_back(self) -> None:
        """Return to the primary, once it has been healthy for long enough and has everything, except for what can only
        be merged while nobody writes."""
        failover = self._failover
        if failover.standing.active != "replica" or not failover.is_healthy("primary"):
            return
        if time.monotonic() - failover.health["primary"].since < self._settings.failback_after:
            return
        replica, primary = failover.sides["replica"], failover.sides["primary"]
        for lineage in await differing(replica, primary):
            self.outbox.mark(lineage)
            with contextlib.suppress(Moving):  # it is merged below, while nobody writes
                await self._ship(lineage)
        standing = await failover.close_generation()  # from here on no process writes to either side
        sides = standing.side("replica"), standing.side("primary")
        try:
            for lineage in await differing(replica, primary):
                await self._merge(sides, lineage, standing.generation)
            if await differing(replica, primary):
                raise Refused("", "the sides still differ: they are compared again")
        except (BacktrailError, Refused):
            await failover.open_generation(role_record.following(standing.generation, "replica"))
            raise
        await failover.open_generation(standing.role)

    async def catch_up(self, lineage: str) -> bool:
        """Merge a lineage now, because a commit that must reach the follower could not simply be repeated there. False
        if that is left to the background."""
        follower = self._failover.standing.follower
        raised: Exception | None = None
        in_vain = lineage in self._moving and not self._settings.replica_required
        if self._failover.is_healthy(follower) and not in_vain:
            try:
                await self._ship(lineage)
                return True
            except (Unavailable, Refused, LockLost, Corrupt) as error:
                raised = error  # it kept moving, a side failed, or it is damaged: left to the background
        self.mark(lineage)
        if self._settings.replica_required:
            raise Unavailable(
                f"the active side has this save, the {follower} has not, and replica_required=True: "
                f"{self._failover.health[follower].error or raised or 'it is still catching up'}"
            ) from raised
        return False

    async def stop(self) -> None:
        """Ship what waits, within the time that close() has; log what is left."""
        end = time.monotonic() + self._settings.drain
        outbox, follower = self.outbox, self._failover.standing.follower
        rounds = limits.LAST_ROUNDS
        for number in msgspec.structs.replace(rounds, deadline=self._settings.drain).attempts():
            if not (outbox.records or outbox.behind) or not self._failover.is_healthy(follower):
                break
            if number:
                await concurrency.pause(self._blocking, rounds.pause(number))
            await self.round()
        self._failover.closed = True
        await self._background.stop(max(limits.CLOSE_WITHIN, end - time.monotonic()))
        if outbox.records or outbox.behind:
            log.warning(
                "closed with %d commits and %d lineages that the %s lacks: they are found when it is opened again",
                outbox.records,
                outbox.behind,
                follower,
            )
