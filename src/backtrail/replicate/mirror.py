"""An engine over two engines with the same data: one is active and answers, the other follows and can take over.

A commit goes to the active side, and then the same commit to the follower: before it is acknowledged (sync) or soon
after (async). So within a generation the follower has nothing that the active side does not have. A follower that
misses a commit is brought up to date by a merge. When the active side is unreachable, the other becomes active in a new
generation; a save in progress is refused, and history reads the head again and saves on the new active side, on a
branch of the new generation.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from backtrail.engines.base import Commit, Drop, Engine, Fence, HeadKey, Lease, Taken, generation_of
from backtrail.engines.capabilities import FailsFast, WritesInGenerations, capability
from backtrail.engines.conflicts import Deferred, Refused, closed, fence_stale
from backtrail.engines.delegating_engine import DelegatingEngine, Method
from backtrail.errors import LockLost, Unavailable
from backtrail.lru import LRU
from backtrail.replicate import concurrency, role_record
from backtrail.replicate.deleted_threads import write_tombstone
from backtrail.replicate.failover import Failover, Standing, opposite
from backtrail.replicate.lineage_copy import LineageRecords, free_all
from backtrail.replicate.merge_rules import Codec
from backtrail.replicate.replicator import Replicator
from backtrail.replicate.role_record import Name
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import Announcer, Mirrored, Side, SpoolStatus, Status, log
from backtrail.telemetry import record_lag

_READ = 4096  # threads
_SHARED_PREFIX = bytes(3)  # of branches that every process of a generation may continue
_TOKENS = 2**32  # the lower bits of a lease's token are its side's, those above them are the generation


class Mirror(DelegatingEngine, WritesInGenerations, Mirrored):
    """Two engines as one."""

    def __init__(self, primary: Engine, replica: Engine, settings: Settings) -> None:
        self.settings = settings
        self.blocking = primary.properties.blocking and replica.properties.blocking
        self.sides: dict[Name, Engine] = {
            "primary": concurrency.side(primary, self.blocking),
            "replica": concurrency.side(replica, self.blocking),
        }
        one, two = primary.properties, replica.properties
        self.properties = msgspec.structs.replace(
            one, name=f"{one.name}+{two.name}", blocking=self.blocking, shared=one.shared and two.shared
        )
        self.process_prefix = _SHARED_PREFIX  # a spool sets another
        self.spool: Callable[[], SpoolStatus] | None = None  # None without a spool
        self._announcer = Announcer(self.status, settings.on_change)
        self.failover = Failover(self.sides, self.blocking, settings, self._on_change)
        self.replicator = Replicator(self.failover, self.blocking, settings)
        self._read_in: LRU[str, int] = LRU(_READ)  # by thread: the generation in which its head was read last
        self._reading = threading.Lock()
        self._compared: tuple[str, Sequence[tuple[str, HeadKey]]] | None = None  # the last sweep that was compared for
        for name, engine in (("primary", primary), ("replica", replica)):
            if (waiting := capability(engine, FailsFast)) is not None:
                waiting.fail_fast = partial(self._can_do_without, cast("Name", name))
        self._closed = False

    @property
    def generation(self) -> int:
        return self.failover.standing.generation

    @property
    def branch_prefix(self) -> bytes:
        return role_record.branch_prefix(self.generation) + self.process_prefix

    def use_codec(self, codec: Codec) -> None:
        """Merge with this codec, which opens and seals the records of the store."""
        self.replicator.codec = codec

    def _can_do_without(self, name: Name) -> bool:
        """True if a refused connection to a side is final, because the other one has everything and may answer."""
        standing, settings = self.failover.standing, self.settings
        if not self.failover.is_healthy(opposite(name)):
            return False
        if not self.failover.is_healthy(name):
            return True  # it was retried before
        if not standing.is_sure:
            return False  # servers that are started together may not be up yet
        if name == standing.follower:
            return not settings.replica_required
        # Otherwise a mere restart of a server would turn commits that are not shipped yet into a divergence.
        in_step = settings.replication == "sync" and not self.replicator.outbox.behind
        return in_step and self.failover.may_change

    def _on_change(self) -> None:
        """The roles or the health of a side have changed: what waits may be more than it was, and all is compared."""
        self.replicator.outbox.mark_all()
        self.replicator.look_soon()
        self.announce()

    def announce(self) -> None:
        """Report a change to the log and the callback."""
        self._announcer.tell()

    async def _start(self) -> Standing:
        """The roles, which are read at the first call: the newer generation counts."""
        if self._closed:
            raise closed("mirrored")
        while not (standing := self.failover.standing).is_sure:
            await self.learn()
        return standing

    async def learn(self) -> None:
        """Find out which sides answer and which is active; `Unavailable` if none is."""
        if self._closed:
            raise closed("mirrored")
        await self.failover.learn()
        self.replicator.wake()

    async def _ask(self, method: Method[Any], *args: Any, **options: Any) -> Any:
        """Call the active side; if it is unreachable, the other one."""
        for last in (False, True):
            standing = await self._start()
            try:
                found = await getattr(self.sides[standing.active], method.__name__)(*args, **options)
                if method in (Engine.head, Engine.tip):
                    self._note_read(args, standing)
                elif method is Engine.heads:
                    self._note_read([head.thread for head in found], standing)
                return found
            except Unavailable as error:
                await self._leave(standing.active, error, final=last)
        raise AssertionError("the loop above returns or raises")

    def _note_read(self, threads: Iterable[str], standing: Standing) -> None:
        for thread in threads:
            if self._read_in.peek(thread) != standing.generation:
                with self._reading:
                    self._read_in.put(thread, standing.generation)

    def _was_read_before(self, commit: Commit, generation: int) -> bool:
        """True if the heads that a commit moves were read in an earlier generation. What else it builds on may have
        been read in this one, on a side that was not equal yet."""
        reads = [self._read_in.peek(swap.thread) for swap in commit.swaps if swap.expect is not None]
        return any(read is not None and read < generation for read in reads)

    async def _leave(self, name: Name, error: Unavailable, *, final: bool = False) -> None:
        """Make the other side active, because this one did not answer; `Unavailable` if that is not possible."""
        if self._closed:
            raise closed("mirrored") from error  # an unanswered call is not a reason for a failover then
        self.failover.note_unreachable(name, error)
        if final:
            raise self.failover.both_unreachable() from error
        await self.failover.fail_over(name)
        self.replicator.wake()

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        """Only the active side knows a lease. Its token has the generation in it, because the other side may have given
        the same number to somebody else: so a failover ends the leases that were held before."""
        while True:
            generation = (await self._start()).generation
            answer = await super().lease(name, owner, ttl)
            if generation == self.generation:
                break
        return answer._replace(token=generation * _TOKENS + answer.token) if isinstance(answer, Lease) else answer

    # -- writing ---------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        standing = await self._start()
        if commit.fence is not None:
            name, token = commit.fence
            if token // _TOKENS != standing.generation:
                raise fence_stale(commit.fence)
            commit = msgspec.structs.replace(commit, fence=Fence(name, token % _TOKENS))
        follower = standing.follower
        if self.settings.replica_required and not self.failover.is_healthy(follower):
            raise Unavailable(
                f"the {follower} is unreachable and replica_required=True: {self.failover.health[follower].error}; "
                "nothing was saved"
            )
        generation = standing.generation
        if planned_before(commit, generation, self.branch_prefix) or self._was_read_before(commit, generation):
            raise _look_again(commit.lineage)
        try:
            await self._commit_on_active(commit, standing)
            self._note_read([swap.thread for swap in commit.swaps], standing)
            if self.settings.replication == "async":
                await self._queue(commit)
            elif not await self._commit_on_follower(commit, standing):
                arrived = await self.replicator.catch_up(commit.lineage)
                if not arrived and self.generation > generation:
                    raise _look_again(commit.lineage)  # it went to a side that is over
        except (Refused, LockLost):
            raise
        except BaseException:  # it was cancelled, or its outcome is unknown: the follower may lack it
            self.replicator.mark(commit.lineage)
            raise

    async def _commit_on_active(self, commit: Commit, standing: Standing) -> None:
        side = standing.side(standing.active)
        try:
            for swap in commit.swaps:
                if swap.new is None and not role_record.is_own_record(swap.thread):
                    head = await side.head(swap.thread)
                    if head is not None and head.key == swap.expect:
                        await write_tombstone(side, head, standing.generation)
            await side.commit(commit)
        except LockLost as error:
            if commit.fence is not None:
                raise  # the caller's own lock
            await self.failover.learn()
            raise _look_again(commit.lineage) from error
        except Unavailable as error:
            await self._leave(standing.active, error)
            raise _look_again(commit.lineage) from error

    async def _commit_on_follower(self, commit: Commit, standing: Standing) -> bool:
        """Repeat a commit on the follower; False if the lineage has to be merged instead."""
        follower = standing.follower
        if not self.failover.can_follow(standing) or self.replicator.outbox.is_waiting(commit.lineage):
            return False
        try:
            unlocked = commit if commit.fence is None else msgspec.structs.replace(commit, fence=None)
            await standing.side(follower).commit(unlocked)
        except Unavailable as error:
            self.failover.note_unreachable(follower, error)
            return False
        except LockLost as error:  # the follower is in a newer generation: the save went to a side that is over
            await self.failover.learn()
            if self.generation > standing.generation:
                raise _look_again(commit.lineage) from error
            return False
        except Refused:
            return False
        return True

    async def _queue(self, commit: Commit) -> None:
        """Leave a commit to the background, which ships it."""
        outbox = self.replicator.outbox
        if not self.failover.is_healthy(self.failover.standing.follower):
            outbox.mark(commit.lineage)
        elif not outbox.add(commit):
            log.warning("more than %d commits wait for the follower: it will be compared", self.settings.max_pending)
        while self.settings.back_pressure and outbox.records >= self.settings.max_pending:
            await self.replicator.ship()
        record_lag(outbox.records)
        self.replicator.wake()

    @property
    def may_drop(self) -> bool:
        return self.failover.can_follow(self.failover.standing)

    async def drop(self, drop: Drop) -> None:
        """Delete on both sides, or not at all: of a side that was deleted from alone, nobody could tell what it never
        had. The follower is first; if it is not equal, the sweep is left to a later one."""
        standing = await self._start()
        if not self.may_drop:
            raise Deferred(drop.lineage)
        active, follower = self.sides[standing.active], self.sides[standing.follower]
        heads = await self.heads(drop.lineage)
        if {(head.thread, head.key) for head in heads} != {*drop.expect}:
            raise _look_again(drop.lineage)  # the sweep was planned on the other side, before that became the follower
        try:
            if heads:
                await self._compare(drop, active, follower)
            if standing is not self.failover.standing:
                raise _look_again(drop.lineage)
            await _drop(follower, drop)
        except Unavailable as error:
            self.failover.note_unreachable(standing.follower, error)
            raise Deferred(drop.lineage) from error
        try:
            await _drop(active, drop)
        except Unavailable as error:
            await self._leave(standing.active, error)
            raise _look_again(drop.lineage) from error

    async def _compare(self, drop: Drop, active: Engine, follower: Engine) -> None:
        """Before the first deletion of a sweep, make sure that both sides have the same. Heads do not tell of all
        garbage; and of some that only one side has, a deletion would leave the end hanging in the air."""
        sweep = (drop.lineage, drop.expect)
        if self._compared == sweep:
            return
        if not await _alike(active, follower, drop.lineage):
            await self.replicator.catch_up(drop.lineage)
            if not await _alike(active, follower, drop.lineage):
                await self.replicator.merge_now(drop.lineage)
                raise _look_again(drop.lineage)
        self._compared = sweep

    # -- the store -------------------------------------------------------------------------------------------------

    async def compact(self) -> None:
        await super().compact()
        follower = self.failover.standing.follower
        if self.failover.is_healthy(follower):
            with contextlib.suppress(Unavailable), self.failover.asking(follower):
                await self.sides[follower].compact()

    def status(self) -> Status:
        """The state of the mirror."""
        roles, outbox = self.failover, self.replicator.outbox
        return Status(
            active=roles.standing.active,
            generation=roles.standing.generation,
            replication=self.settings.replication,
            primary=self._side("primary"),
            replica=self._side("replica"),
            behind=outbox.behind,
            lag_records=outbox.records,
            lag_bytes=outbox.bytes,
            lag_seconds=outbox.seconds,
            failovers=len(roles.failovers),
            failbacks=roles.failbacks,
            last_failover=roles.last_failover,
            diverged=self.replicator.diverged,
            last_error=roles.last_error,
            spool=None if self.spool is None else self.spool(),
        )

    def _side(self, name: Name) -> Side:
        error = self.failover.health[name].error
        return Side(
            role=name,
            engine=self.sides[name].properties.name,
            healthy=error is None,
            active=name == self.failover.standing.active,
            error=error,
        )

    async def settle(self) -> Status:
        """Compare both sides and ship everything now; the status shows what is left."""
        await self._start()
        await self.replicator.round(whole=True)
        return self.status()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.replicator.stop()
        for engine in self.sides.values():
            await engine.close()


def planned_before(commit: Commit, generation: int, prefix: bytes) -> bool:
    """True if a commit must not be made, because it was planned in an earlier generation."""
    new = {branch.id for branch in commit.branches}
    continues = any(row.branch not in new and not row.branch.startswith(prefix) for row in commit.rows)
    old = any(
        swap.new is not None and swap.new.step and generation_of(swap.new.version) < generation for swap in commit.swaps
    )
    return bool(commit.swaps) and (continues or old)


async def _drop(side: Engine, drop: Drop) -> None:
    """Delete what a sweep found. Without a thread everything is garbage; and of that, a side may have more."""
    if drop.expect:
        await side.drop(drop)
    else:
        await free_all(side, drop.lineage)


async def _alike(one: Engine, two: Engine, lineage: str) -> bool:
    here, there = await LineageRecords.read(one, lineage), await LineageRecords.read(two, lineage)
    return here.heads == there.heads and here.rows_like(there)


def _look_again(lineage: str) -> Refused:
    return Refused(lineage, "the mirror changed sides meanwhile: look again")
