"""An engine over two engines with the same data: one is active and answers, the other follows and can take over.

A commit goes to the active side, and the same commit to the follower: before it is acknowledged (sync) or soon after
(async). A follower that misses a commit is brought up to date later, by comparison. When the active side is
unreachable, the other becomes active in a new generation; a save in progress is refused, and history reads the head
again and saves on the new active side, on a branch of the new generation.

Two sides that were both written to never wrote on the same branch, because a save that was planned in one generation is
not committed in another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from backtrail.engines.base import Commit, Drop, Engine, Head
from backtrail.engines.capabilities import FailsFast, PrefixesBranches, capability
from backtrail.engines.conflicts import Refused
from backtrail.errors import Closed, LockLost, Unavailable
from backtrail.replicate import concurrency, role_record, sweep_tombstones
from backtrail.replicate.delegating_engine import DelegatingEngine
from backtrail.replicate.failover import Failover, Standing, opposite
from backtrail.replicate.replicator import Replicator
from backtrail.replicate.report import Diverged, KeepOn, Kept
from backtrail.replicate.role_record import Name
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import Announcer, Meters, Mirrored, Side, SpoolStatus, Status, log


class _Lacking(NamedTuple):
    """A side that did not get a commit, and the error that it raised."""

    side: Name
    raised: BaseException | None


class Mirror(DelegatingEngine, PrefixesBranches, Mirrored):
    """Two engines as one. `on_diverged` is called with heads that lost against the active side, to label them."""

    def __init__(self, primary: Engine, replica: Engine, settings: Settings) -> None:
        blocking = primary.properties.blocking and replica.properties.blocking
        self._blocking = blocking
        self.settings = settings
        self.sides: dict[Name, Engine] = {
            "primary": concurrency.side(primary, blocking),
            "replica": concurrency.side(replica, blocking),
        }
        one, two = primary.properties, replica.properties
        self.properties = msgspec.structs.replace(
            one, name=f"{one.name}+{two.name}", blocking=blocking, shared=one.shared and two.shared
        )
        self._meters = Meters()
        self._announcer = Announcer(self.status, settings.on_change)
        self._failover = Failover(self.sides, blocking, settings, self._on_health, self._on_switch)
        self._replicator = Replicator(self._failover, blocking, settings)
        self._starting = concurrency.Mutex(blocking)
        for name, engine in (("primary", primary), ("replica", replica)):
            if (waiting := capability(engine, FailsFast)) is not None:
                waiting.fail_fast = partial(self._can_do_without, cast("Name", name))
        # If both sides are written at once, two processes that race for one step may each win it on one side. So each
        # process has branches of its own then; also with a spool, in which saves may have to wait.
        self._process_prefix = bytes(3) if blocking and settings.spool is None else _new_process_prefix()
        self.spool: SpoolStatus | None = None  # None without a spool
        self._known = False
        self._closed = False

    @property
    def branch_prefix(self) -> bytes:
        return self.branch_prefix_in(0)

    def branch_prefix_in(self, generation: int) -> bytes:
        """The current prefix of branch ids; for this generation, if the mirror's own is not known yet."""
        return role_record.branch_prefix(self._failover.standing.generation or generation) + self._process_prefix

    @property
    def on_diverged(self) -> KeepOn | None:
        return self._replicator.on_diverged

    @on_diverged.setter
    def on_diverged(self, keep: KeepOn) -> None:
        self._replicator.on_diverged = keep

    def _can_do_without(self, name: Name) -> bool:
        """True if a refused connection to a side is final, because the other one has everything and may answer."""
        standing, settings = self._failover.standing, self.settings
        if not self._failover.is_healthy(opposite(name)):
            return False
        if not self._failover.is_healthy(name):
            return True  # it was retried before
        if not self._known:
            return False  # servers that are started together may not be up yet
        if name == standing.follower:
            return not settings.replica_required
        # Otherwise a mere restart of a server would turn commits that are not shipped yet into a divergence.
        in_step = settings.replication == "sync" and not self._replicator.pending.behind
        return in_step and self._failover.may_change

    def _on_health(self, name: Name, well: bool) -> None:
        if well:
            self._replicator.look_soon()
        elif name == self._failover.standing.follower:
            self._replicator.pending.mark_all()
        self.announce()

    def _on_switch(self) -> None:
        self._replicator.roles_changed()
        self._meters.changed(self._failover.standing.active)
        self.announce()

    def announce(self) -> None:
        """Report a change to the log and the callback."""
        self._announcer.tell()

    async def _start(self) -> Standing:
        """Read the roles at the first call: the newer generation counts."""
        if self._closed:
            raise _closed()
        if not self._known:
            async with self._starting:
                if not self._known:
                    await self._failover.learn()
                    self._known = True
                    self._replicator.wake()
        return self._failover.standing

    def _check_open(self, error: Unavailable) -> None:
        """Raise if the mirror is being closed: an unanswered call is not a reason for a failover then."""
        if self._closed:
            raise _closed() from error

    async def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Call the active side; if it is unreachable, the other one."""
        await self._start()
        for last in (False, True):
            name = self._failover.standing.active
            try:
                return await getattr(self.sides[name], method)(*args, **options)
            except Unavailable as error:
                self._check_open(error)
                self._failover.note_unreachable(name, error)
                if last:
                    raise self._failover.both_unreachable() from error
                await self._failover.fail_over(name)
                self._replicator.wake()
        raise AssertionError("the loop above returns or raises")

    # -- for a spool ---------------------------------------------------------------------------------------------------

    def pause_comparing_while(self, held: Callable[[], bool]) -> None:
        """Do not compare the sides while `held` returns true. A save whose answer was lost may be on one side while the
        spool is about to deliver it to the other: a comparison in between would see a divergence."""
        self._replicator.held = held

    def resume_comparing(self) -> None:
        """Compare again: `held` is false now."""
        self._replicator.wake()

    @property
    def generation(self) -> int:
        return self._failover.standing.generation

    @property
    def active(self) -> Engine:
        """The active side, with the fence of this generation on its writes."""
        return self._failover.fenced(self._failover.standing.active)

    @property
    def reachable(self) -> list[Engine]:
        """The sides that answered last."""
        return [side for name, side in self.sides.items() if self._failover.is_healthy(name)]

    async def learn(self) -> None:
        """Find out which sides answer and which is active; `Unavailable` if none is."""
        if self._closed:
            raise _closed()
        await self._failover.learn()
        self._known = True
        self._replicator.look_soon()
        self._replicator.wake()

    def renew_process_prefix(self) -> None:
        """Start new branches from now on: of an old one, a side may have a step that this process does not know."""
        self._process_prefix = _new_process_prefix()

    def planned_before(self, commit: Commit, prefix: bytes) -> bool:
        """True if a save must not be committed, because it continues a branch of an older prefix."""
        return _planned_before(commit, prefix)

    def mark(self, lineage: str) -> None:
        """Mark a lineage for comparison: the follower lacks something of it."""
        self._replicator.pending.mark(lineage)
        self._replicator.wake()

    async def keep(self, active: Engine, found: Diverged) -> Kept:
        """Count a head that lost, log it, and have it labelled."""
        return await self._replicator.keep(active, found)

    def note_unreachable(self, name: Name, error: BaseException) -> None:
        """Record that a side did not answer a caller that used it directly."""
        self._failover.note_unreachable(name, error)

    def failed(self, error: BaseException) -> None:
        self._failover.last_error = str(error)

    def both_unreachable(self) -> Unavailable:
        return self._failover.both_unreachable()

    # -- writing ---------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        await self._start()
        async with self._replicator.lineage_locks.of(commit.lineage):
            lacking = await self._commit(commit)
        if lacking is not None:
            await self._replicator.catch_up(lacking.side, commit.lineage, lacking.raised)

    async def _commit(self, commit: Commit) -> _Lacking | None:
        """Commit on the active side, and on the follower if it is in step; returns the follower if it lacks the
        commit."""
        standing = self._failover.standing
        active, follower = standing.active, standing.follower
        if self.settings.replica_required and not self._failover.is_healthy(follower):
            raise Unavailable(
                f"the {follower} is unreachable and replica_required=True: {self._failover.errors[follower]}; "
                "nothing was saved"
            )
        if _planned_before(commit, role_record.branch_prefix(standing.generation) + self._process_prefix):
            raise _look_again(commit)
        own = commit if commit.fence is not None else msgspec.structs.replace(commit, fence=standing.fences.get(active))
        theirs = msgspec.structs.replace(commit, fence=standing.fences.get(follower))
        at_once = self.settings.replication == "sync" and self._in_step(standing, commit.lineage)
        ended: list[Head] = []
        try:
            ended = await self._write_tombstones(commit, standing)
            if at_once and not self._blocking:
                raised, other = await self._both(own, theirs, standing)
            else:
                raised, other = await concurrency.attempt(self.sides[active], own), None
        except LockLost as error:  # a tombstone was refused: this generation is over
            await self._failover.learn()
            raise _look_again(commit) from error
        except Unavailable as error:
            raised, other = error, error
        if raised is not None:
            taken = at_once and not self._blocking and other is None
            await self._refused(standing, raised, commit, ended, taken)
            return None
        if self.settings.replication == "async":
            await self._queue(commit, follower)
            return None
        if at_once and self._blocking:
            other = await concurrency.attempt(self.sides[follower], theirs)
        if isinstance(other, LockLost):
            # The follower is in a newer generation: the save went to a side that is no longer active.
            await self._failover.learn()
            if self._failover.standing.generation > standing.generation:
                raise _look_again(commit) from other
        if not at_once or other is not None or not self._in_step(standing, commit.lineage):
            return _Lacking(follower, other)
        return None

    def _in_step(self, standing: Standing, lineage: str) -> bool:
        """True if the follower can take the same commits as the active side."""
        follower = standing.follower
        return (
            follower in standing.fences
            and self._failover.is_healthy(follower)
            and not self._replicator.pending.is_behind(lineage)
        )

    async def _both(self, own: Commit, theirs: Commit, standing: Standing) -> tuple[Exception | None, Exception | None]:
        """Commit on both sides at once."""
        try:
            return await concurrency.at_once(self.sides[standing.active], own, self.sides[standing.follower], theirs)
        except asyncio.CancelledError:
            self.renew_process_prefix()  # one side may have it, and the other may get another row at that step
            self._replicator.pending.mark(own.lineage)
            self._replicator.wake()
            raise

    async def _refused(
        self, standing: Standing, raised: BaseException, commit: Commit, ended: Sequence[Head], taken: bool
    ) -> None:
        """Handle a commit that failed on the active side: a refusal is raised to the caller, an unreachable side causes
        a failover. `taken`: the follower has the commit."""
        active = standing.active
        if not self._blocking:
            # A branch of which the follower may have an extra step must not be continued.
            self._process_prefix = _new_process_prefix()
        if taken:
            if not isinstance(raised, Unavailable):
                self._replicator.refused(commit)
            self._replicator.pending.mark(commit.lineage)
            self._replicator.wake()
        if isinstance(raised, Unavailable):
            self._check_open(raised)
            self._failover.note_unreachable(active, raised)
            await self._failover.fail_over(active)
            self._replicator.wake()
            if taken and await self._arrived(commit, standing.follower):
                return
            raise _look_again(commit) from raised
        for head in ended:
            await role_record.delete_tombstone(self.sides[active], head.thread, head.owner)
        if isinstance(raised, LockLost) and commit.fence is None:
            await self._failover.learn()
            raise _look_again(commit) from raised
        raise raised

    async def _arrived(self, commit: Commit, side: Name) -> bool:
        """True if a commit that only one side has is the newest there, and that side is active now."""
        if self._failover.standing.active != side or not commit.swaps:
            return False
        return all([await self.sides[side].head(swap.thread) == swap.new for swap in commit.swaps])

    async def _write_tombstones(self, commit: Commit, standing: Standing) -> list[Head]:
        """Write tombstones for the threads that a commit will delete; returns the heads of those with a new
        tombstone."""
        side = self._failover.fenced(standing.active)
        ended = []
        for swap in commit.swaps:
            if swap.new is None and not role_record.is_own_record(swap.thread):
                head = await side.head(swap.thread)
                if (
                    head is not None
                    and head.key == swap.expect
                    and await role_record.write_tombstone(side, head, standing.generation)
                ):
                    ended.append(head)
        return ended

    async def _queue(self, commit: Commit, follower: Name) -> None:
        pending = self._replicator.pending
        if not self._failover.is_healthy(follower):
            pending.mark(commit.lineage)
        elif not pending.add(msgspec.structs.replace(commit, fence=None)):
            log.warning("more than %d commits wait for the follower: it will be compared", self.settings.max_pending)
        while self.settings.back_pressure and pending.records >= self.settings.max_pending:
            await self._replicator.ship(1)
        self._meters.lag(pending.records)
        self._replicator.wake()

    async def drop(self, drop: Drop) -> None:
        standing = await self._start()
        in_step = self._in_step(standing, drop.lineage)
        if not in_step:
            await self._write_sweep_tombstones(drop, standing)
        await self._ask("drop", drop)
        if not in_step:
            return
        try:
            await self.sides[standing.follower].drop(drop)
        except (Unavailable, Refused) as error:
            if isinstance(error, Unavailable):
                self._failover.note_unreachable(standing.follower, error)
            await self._write_sweep_tombstones(drop, standing)
            self._replicator.pending.mark(drop.lineage)
            self._replicator.wake()

    async def _write_sweep_tombstones(self, drop: Drop, standing: Standing) -> None:
        """Write tombstones for a sweep that the follower misses, so that the swept rows are not copied back."""
        try:
            await sweep_tombstones.write(self._failover.fenced(standing.active), drop)
        except LockLost as error:
            await self._failover.learn()
            raise Refused(drop.lineage, "the mirror changed sides during a sweep: look again") from error

    # -- the store -------------------------------------------------------------------------------------------------

    async def compact(self) -> None:
        await self._ask("compact")
        follower = self._failover.standing.follower
        if self._failover.is_healthy(follower):
            try:
                await self.sides[follower].compact()
            except Unavailable as error:
                self._failover.note_unreachable(follower, error)

    def status(self) -> Status:
        """The state of the mirror."""
        roles, following = self._failover, self._replicator
        return Status(
            active=roles.standing.active,
            generation=roles.standing.generation,
            replication=self.settings.replication,
            primary=self._side("primary"),
            replica=self._side("replica"),
            behind=following.pending.behind,
            lag_records=following.pending.records,
            lag_bytes=following.pending.bytes,
            lag_seconds=following.pending.seconds,
            failovers=roles.counts["failovers"],
            failbacks=roles.counts["failbacks"],
            last_failover=roles.last_failover,
            diverged=following.diverged,
            last_error=roles.last_error,
            spool=self.spool,
        )

    def _side(self, name: Name) -> Side:
        error = self._failover.errors[name]
        return Side(
            role=name,
            engine=self.sides[name].properties.name,
            healthy=error is None,
            active=name == self._failover.standing.active,
            error=error,
        )

    async def settle(self) -> Status:
        """Compare both sides and ship everything now; the status shows what is left."""
        await self._start()
        await self._replicator.round(whole=True)
        return self.status()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._replicator.stop(drain=self._known)
        self._failover.closed = True
        for engine in self.sides.values():
            await engine.close()


def _planned_before(commit: Commit, prefix: bytes) -> bool:
    """True if a save continues a branch that must no longer be written to: it was planned before a switch."""
    new = {branch.id for branch in commit.branches}
    return bool(commit.swaps) and any(
        row.branch not in new and not row.branch.startswith(prefix) for row in commit.rows
    )


def _new_process_prefix() -> bytes:
    """The part of a process's branch ids after the generation; never the same as a blocking mirror's."""
    return b"\1" + os.urandom(4)


def _closed() -> Unavailable:
    return Closed("the mirrored store is closed: open it again with backtrail.open()")


def _look_again(commit: Commit) -> Refused:
    return Refused(commit.lineage, "the mirror changed sides during the save: look again")
