"""Brings the follower up to date: ships queued commits, compares lineages that may differ, and fails back.

Only one round runs at a time, started by the background task, by a caller that wants both sides equal now, or by close.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from backtrail.engines.base import Commit, Engine, Head, HeadKey
from backtrail.engines.conflicts import Refused
from backtrail.errors import BacktrailError, Conflict, LockLost, Unavailable
from backtrail.replicate import concurrency, limits, role_record, sweep_tombstones
from backtrail.replicate.anti_entropy import NO_DOUBTS, Doubts, UnderWay, differing, reconcile
from backtrail.replicate.failover import Failover, Standing
from backtrail.replicate.outbox import Outbox
from backtrail.replicate.report import Diverged, KeepOn, Kept
from backtrail.replicate.role_record import Name
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import log


class Replicator:
    """The background work of a mirror."""

    def __init__(self, failover: Failover, blocking: bool, settings: Settings) -> None:
        self.pending = Outbox(settings.max_pending)
        self.lineage_locks = concurrency.ReentrantLineageLocks(blocking)
        self.on_diverged: KeepOn | None = None
        self.held: Callable[[], bool] = lambda: False  # while true, a spool is being delivered: nothing is compared
        self.diverged = 0
        self._failover = failover
        self._blocking = blocking
        self._settings = settings
        self._background = concurrency.Background(
            blocking, self._tick, limits.GATHER if settings.replication == "async" else 0.0
        )
        self._round = concurrency.Mutex(blocking)
        self._refused: dict[str, list[Commit]] = {}  # by lineage: accepted by the follower, refused by the active side
        self._counted: set[tuple[str, HeadKey]] = set()  # heads that lost and were reported
        self._alone: dict[str, dict[str, tuple[Head, float]]] = {}  # heads that only the follower has, and since when
        self._checked = -math.inf
        self._until_whole = 0
        self._stopped = False

    def wake(self) -> None:
        self._background.wake()

    def look_soon(self) -> None:
        """Make the next round check and compare everything, because something changed."""
        self._checked, self._until_whole = -math.inf, 0

    def _wait(self) -> float:
        """Seconds between two checks of both sides."""
        failover = self._failover
        busy = self.pending.behind or failover.standing.active == "replica"
        unwell = not (failover.is_healthy("primary") and failover.is_healthy("replica"))
        return min(limits.LOOK_AGAIN, self._settings.health_every) if busy or unwell else self._settings.health_every

    async def _tick(self) -> float:
        await self.round()
        return min(limits.LOOK_AGAIN, self._wait()) if self.pending.records else self._wait()

    async def round(self, whole: bool = False) -> None:
        """Check both sides, ship queued commits, compare marked lineages, fail back."""
        async with self._round:
            if whole:
                self.look_soon()
            try:
                if whole:
                    await self.ship()  # queued commits would hide differences
                if time.monotonic() - self._checked >= self._wait():
                    await self._check()
                for work in (self.ship, self._compare, self._fail_back):
                    if self._stopped:
                        return
                    await work()
            except (BacktrailError, Refused) as error:
                self._failover.last_error = str(error)  # a head moved or a side failed: the next round tries again
            except Exception as error:  # noqa: BLE001
                if self._stopped:
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
        for name in failover.sides:
            asked = failover.failures[name]
            try:
                await failover.sides[name].ping()
                failover.recovered(name, asked)
            except Unavailable as error:
                failover.note_unreachable(name, error)
                if name == failover.standing.active:
                    await failover.fail_over(name)
        await failover.refresh()
        standing = failover.standing
        if failover.is_healthy(standing.follower):
            due, self._until_whole = self._until_whole <= 0, self._until_whole - 1
            if due:
                # Before the comparison: a change during it requests another one.
                self._until_whole = limits.LOOKS_PER_COMPARISON
                await self._look_at_all(standing)

    async def _look_at_all(self, standing: Standing) -> None:
        """Compare all heads, and mark the lineages that differ."""
        failover = self._failover
        try:
            for lineage in await differing(failover.sides[standing.active], failover.sides[standing.follower]):
                if await self._differs(lineage):
                    self.pending.mark(lineage)
            self.pending.mark(*await sweep_tombstones.lineages(failover.sides[standing.active]))
            for side, other in (standing.active, standing.follower), (standing.follower, standing.active):
                await role_record.clear_tombstones(failover.fenced(side), failover.sides[other])
        except (BacktrailError, Refused):
            self._until_whole = 0
            raise

    async def _differs(self, lineage: str) -> bool:
        """True if a lineage still differs, and no queued commit explains it."""
        standing, sides = self._failover.standing, self._failover.sides
        async with self.lineage_locks.of(lineage):  # no save is half done
            if self.pending.expects(lineage):
                return False
            theirs = await sides[standing.follower].heads(lineage)
            return theirs != await sides[standing.active].heads(lineage) and not self.pending.expects(lineage)

    async def ship(self, most: int | None = None) -> None:
        """Ship the commits that are queued now, in order; those queued meanwhile wait for the next time."""
        failover = self._failover
        sent, left = 0, self.pending.records
        while left > 0 and (most is None or sent < most):
            follower = failover.standing.follower
            shipment = self.pending.next() if failover.is_healthy(follower) else None
            if shipment is None:
                return
            commit = shipment.commit
            try:
                await failover.fenced(follower).commit(commit)
            except Unavailable as error:
                self.pending.mark(commit.lineage)
                failover.note_unreachable(follower, error)
            except (Refused, LockLost):
                if not await self._has(follower, commit):
                    self.pending.mark(commit.lineage)
            except BaseException:
                self.pending.mark(commit.lineage)
                raise
            finally:
                self.pending.arrived(shipment)
            sent, left = sent + 1, left - shipment.saves

    async def _has(self, name: Name, commit: Commit) -> bool:
        """True if a side refused a commit because a comparison had copied it already."""
        try:
            heads = [await self._failover.sides[name].head(swap.thread) for swap in commit.swaps]
        except Unavailable:
            return False
        return bool(heads) and all(_at_or_past(head, swap.new) for head, swap in zip(heads, commit.swaps, strict=True))

    async def _compare(self) -> None:
        failover = self._failover
        if self.held() or not failover.is_healthy(failover.standing.follower):
            return
        lineages = self.pending.take_behind()
        failed: Exception | None = None
        try:
            for lineage in lineages:
                if self._stopped or self.held():
                    return
                try:
                    await self._reconcile(lineage)
                    self.pending.compared(lineage)
                except UnderWay as error:
                    log.debug("%s", error)
                except (Refused, LockLost) as error:
                    failed = error  # only this lineage has to wait
        finally:
            self.pending.give_back()
        if failed is not None:
            raise failed

    async def _reconcile(self, lineage: str) -> None:
        failover, standing = self._failover, self._failover.standing
        follower = standing.follower
        here, there = failover.fenced(standing.active, standing), failover.fenced(follower, standing)
        if follower not in standing.fences:
            raise Unavailable(f"the {follower} has not joined generation {standing.generation} yet")
        try:
            async with self.lineage_locks.of(lineage):
                refused = self._refused.get(lineage, ())
                doubts = Doubts(
                    _prefix_number(standing),
                    {swap.new.key for commit in refused for swap in commit.swaps if swap.new is not None},
                    {(row.branch, row.step) for commit in refused for row in commit.rows},
                    {branch.id for commit in refused for branch in commit.branches},
                    lambda head: self._under_way(lineage, head),
                    self._settings.spool is not None,
                )
                await reconcile(here, there, lineage, mirror=True, keep=partial(self.keep, here), doubts=doubts)
                self._refused.pop(lineage, None)
                self._alone.pop(lineage, None)
        except Unavailable:
            await self._check_follower(follower)
            raise

    def _under_way(self, lineage: str, head: Head) -> bool:
        """True if a process may still be making a save that only the follower has. Within a generation the follower has
        nothing of its own: the active side either gets the save, too, or refuses it."""
        if self.held():
            return True
        if role_record.generation_of(head.branch) != _prefix_number(self._failover.standing):
            return False
        seen = self._alone.setdefault(lineage, {})
        known, since = seen.get(head.thread, (None, 0.0))
        if known != head:
            seen[head.thread] = (head, time.monotonic())
            return True
        return time.monotonic() - since < limits.SAVE_UNDER_WAY.deadline

    def refused(self, commit: Commit) -> None:
        """Record a save that the follower accepted and the active side refused. Its caller may repeat it, so it is not
        a divergence, and is deleted when the lineage is compared."""
        self._refused.setdefault(commit.lineage, []).append(commit)

    def roles_changed(self) -> None:
        """Forget everything recorded about the follower: another side follows now."""
        self._refused.clear()
        self._alone.clear()
        self.pending.mark_all()
        self.look_soon()

    async def _check_follower(self, follower: Name) -> None:
        """Ping the follower, to find out if an `Unavailable` came from it; callers notice by themselves if the active
        side fails."""
        try:
            await self._failover.sides[follower].ping()
        except Unavailable as error:
            self._failover.note_unreachable(follower, error)

    async def keep(self, active: Engine, found: Diverged) -> Kept:
        """Count a head of the follower that lost, log it, and have it labelled on `active`, the side where it lost,
        even if another one becomes active meanwhile."""
        if not found.known:
            self._count(found.head)
        kept = Kept.ENOUGH
        if self.on_diverged is not None:
            try:
                kept = await self.on_diverged(active, found)
            except LockLost:
                raise  # this generation is over
            except Conflict as error:
                raise Refused(found.head.thread, str(error)) from error  # its writers were faster: compared again
        if kept is Kept.NAMED:  # even if it was known: an earlier comparison was interrupted before it could label it
            self._count(found.head)
        return kept

    def _count(self, head: Head) -> None:
        lost = (head.thread, head.key)
        if lost not in self._counted:  # an interrupted comparison meets it again
            self._counted.add(lost)
            self.diverged += 1
            log.warning("thread %r was written to on both sides; the head that lost is kept", head.thread)

    async def catch_up(self, follower: Name, lineage: str, raised: BaseException | None) -> None:
        """Compare a lineage now, because a commit that must reach the follower could not simply be repeated there."""
        if isinstance(raised, Unavailable):
            self._failover.note_unreachable(follower, raised)
        elif self._failover.is_healthy(follower):
            try:
                await self._reconcile_now(lineage)
                return
            except (Unavailable, Refused, LockLost) as error:
                raised = error  # it kept moving, or a side failed: left to the background
        self.pending.mark(lineage)
        self.wake()
        if self._settings.replica_required:
            raise Unavailable(
                f"the active side has this save, the {follower} has not, and replica_required=True: "
                f"{self._failover.errors[follower] or raised or 'it is still catching up'}"
            ) from raised

    async def _reconcile_now(self, lineage: str) -> None:
        """Compare a lineage while its caller waits: a save in progress is soon done, or refused."""
        for attempt in limits.SAVE_UNDER_WAY.attempts():
            try:
                return await self._reconcile(lineage)
            except UnderWay as error:
                last = error
            await concurrency.pause(self._blocking, limits.SAVE_UNDER_WAY.pause(attempt))
        raise last

    async def _fail_back(self) -> None:
        """Return to the primary once it has been healthy for long enough and has everything."""
        failover = self._failover
        since = failover.healthy_since["primary"]
        if self.held() or failover.standing.active != "replica" or since is None or not failover.is_healthy("primary"):
            return
        if time.monotonic() - since < self._settings.failback_after or self.pending.behind or self.pending.records:
            return
        replica, primary = failover.sides["replica"], failover.sides["primary"]
        for lineage in await differing(replica, primary):
            await self._reconcile(lineage)
        role = await failover.close_generation()  # from here on no process writes to either side
        try:
            doubts = NO_DOUBTS._replace(spools=self._settings.spool is not None)
            for lineage in await differing(replica, primary):
                await reconcile(replica, primary, lineage, mirror=True, keep=_not_now, doubts=doubts)
            if await differing(replica, primary):
                raise Refused(role_record.LINEAGE, "the sides still differ: they are compared again")
        except (BacktrailError, Refused):
            await failover.stay(role)
            raise
        await failover.return_home(role)

    async def stop(self, *, drain: bool) -> None:
        """Ship queued commits, within the time that close() has; log what is left."""
        end = time.monotonic() + self._settings.drain
        pending, follower = self.pending, self._failover.standing.follower
        in_vain = 0
        most = limits.VAIN_ROUNDS.retries
        while drain and in_vain <= most and self._failover.is_healthy(follower) and time.monotonic() < end:
            before = (pending.records, pending.behind)
            if before == (0, 0):
                break
            await self.round()
            if (pending.records, pending.behind) >= before:
                await concurrency.pause(self._blocking, limits.VAIN_ROUNDS.pause(in_vain))
                in_vain += 1
        self._stopped = True
        await self._background.stop(max(limits.CLOSE_WITHIN, end - time.monotonic()))
        if pending.records or pending.behind:
            log.warning(
                "closed with %d commits and %d lineages that the %s lacks: they are found when it is opened again",
                pending.records,
                pending.behind,
                follower,
            )


def _prefix_number(standing: Standing) -> int:
    """The generation as it is in the prefix of branch ids: 16 bits."""
    return role_record.generation_of(role_record.branch_prefix(standing.generation))


def _at_or_past(head: Head | None, new: Head | None) -> bool:
    """True if a head is where a swap would put it, or further in the same incarnation. Versions count only within one
    generation, in which one side made them all."""
    if head is None or new is None:
        return head is new
    same = head.owner == new.owner and role_record.generation_of(head.branch) == role_record.generation_of(new.branch)
    return head == new or (same and head.version > new.version)


async def _not_now(found: Diverged) -> Kept:
    if found.known:
        return Kept.ENOUGH
    raise Refused(found.head.thread, "an older generation wrote to the primary just now: looked at again")
