"""An engine around two engines that hold the same: one is active and answers, the other follows and can take over.

A commit goes to the active side, and the very same commit to the follower: before it is acknowledged (sync) or soon
after (async). A follower that cannot take it is brought up to date by comparison later. When the active side is away
the other becomes active in a new generation; a caller in the middle of a save sees a Conflict, which history answers
by looking again and saving on the new active side, on a branch of the new generation.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from clew.engines.base import Branch, Commit, Drop, Engine, Fence, Head, Lease, Row, Step, Taken
from clew.errors import Conflict, LockLost, Unavailable
from clew.replicate import colour, control
from clew.replicate.control import Name, Role
from clew.replicate.reconcile import Diverged, Report, differing, reconcile
from clew.replicate.settings import Settings
from clew.replicate.shipping import Pending
from clew.replicate.status import Meters, Side, Status, announce, log

_SETTLING = 5.0  # seconds after which a change of roles that another process began counts as abandoned
_QUICK = 0.5  # seconds between looks while something is wrong or under way


class Mirror(Engine):
    """Two engines as one. `on_diverged` is told of heads that lost against the active side, to label them."""

    def __init__(self, primary: Engine, replica: Engine, settings: Settings) -> None:
        blocking = primary.properties.blocking and replica.properties.blocking
        self._blocking = blocking
        self.settings = settings
        self._sides: dict[Name, Engine] = {
            "primary": colour.side(primary, blocking),
            "replica": colour.side(replica, blocking),
        }
        one, two = primary.properties, replica.properties
        self.properties = msgspec.structs.replace(
            one, name=f"{one.name}+{two.name}", blocking=blocking, shared=one.shared and two.shared
        )
        self.on_diverged: Callable[[Diverged], Awaitable[None]] | None = None
        self._active: Name = "primary"
        self._fence: Fence | None = None
        self._known = False
        self._errors: dict[Name, str | None] = {"primary": None, "replica": None}
        self._healthy_since: dict[Name, float | None] = {"primary": time.monotonic(), "replica": time.monotonic()}
        self._pending = Pending(settings.max_pending)
        self._background = colour.Background(blocking, self._tick)
        self._turn = colour.Turn(blocking)
        self._checked = 0.0
        self._failovers: list[float] = []
        self._counts = {"failovers": 0, "failbacks": 0, "diverged": 0}
        self._last_failover: float | None = None
        self._last_error: str | None = None
        self._meters = Meters()
        self._closed = False

    # -- roles -----------------------------------------------------------------------------------------------------

    @property
    def _other(self) -> Name:
        return "replica" if self._active == "primary" else "primary"

    @property
    def active(self) -> Engine:
        return self._sides[self._active]

    @property
    def follower(self) -> Engine:
        return self._sides[self._other]

    def _well(self, name: Name) -> bool:
        return self._errors[name] is None

    async def _start(self) -> None:
        """Learn the roles at the first call: the newer generation is right."""
        if self._closed:
            raise Unavailable("the mirrored store is closed: open it again with clew.open()")
        if not self._known:
            await self._learn()
            self._known = True
            self._background.wake()

    async def _learn(self) -> None:
        """Read both sides' control records and take the newer one's word."""
        roles: dict[Name, Role] = {}
        for name, engine in self._sides.items():
            try:
                roles[name] = (await control.read(engine))[0]
                self._recovered(name)
            except Unavailable as error:
                self._away(name, error)
        if not roles:
            raise self._both_away()
        role = max(roles.values(), key=lambda known: known.generation)
        if role.active not in roles:  # the active side is away: the other takes over
            self._active = role.active
            await self._fail_over(role.active)
            return
        await self._adopt(role)

    async def _adopt(self, role: Role) -> None:
        """Take part in a generation."""
        began = time.monotonic()
        while True:
            try:
                fence = await control.fence(self._sides[role.active], role.generation)
                break
            except Conflict:
                # Another process has closed this generation and is about to write down the next one.
                await colour.pause(self._blocking, 0.02)
                known = (await control.read(self._sides[role.active]))[0]
                if known.generation > role.generation:
                    role = known
                elif time.monotonic() - began > _SETTLING:
                    role = Role(role.generation + 1, role.active)
                    await control.write(self._sides[role.active], role)
        changed = role.active != self._active or self.generation != role.generation
        self._active, self.generation, self._fence = role.active, role.generation, fence
        if changed:
            self._pending.mark_all()
            self._checked = 0.0
            self._meters.changed(role.active)
            self._announce()

    def _away(self, name: Name, error: BaseException) -> None:
        was_well = self._well(name)
        self._errors[name] = str(error)
        self._last_error = str(error)
        self._healthy_since[name] = None
        if name == self._other:
            self._pending.mark_all()
        if was_well:
            self._announce()

    def _recovered(self, name: Name) -> None:
        if self._healthy_since[name] is None:
            self._healthy_since[name] = time.monotonic()
        if not self._well(name):
            self._errors[name] = None
            self._checked = 0.0
            self._announce()

    def _announce(self) -> None:
        status = self.status()
        announce(status)
        if self.settings.on_change is not None:
            self.settings.on_change(status)

    def _both_away(self) -> Unavailable:
        causes = "; ".join(f"{name}: {error or 'not active'}" for name, error in self._errors.items())
        return Unavailable(f"neither side of the mirror can serve this call: {causes}")

    async def _fail_over(self, away: Name) -> None:
        """Make the other side active, or say why not. Of several that want it at once one does it."""
        async with self._turn:
            if self._active == away:
                await self._change_sides(away)

    async def _change_sides(self, away: Name) -> None:
        to: Name = "replica" if away == "primary" else "primary"
        now = time.monotonic()
        self._failovers = [at for at in self._failovers if now - at < self.settings.failover_window]
        if not self.settings.failover:
            raise Unavailable(f"the {away} is away and failover is off: {self._errors[away]}")
        if len(self._failovers) >= self.settings.max_failovers:
            raise Unavailable(
                f"the {away} is away, and the mirror changed sides {len(self._failovers)} times within "
                f"{self.settings.failover_window:g} s: {self._errors[away]}"
            )
        try:
            generation = max(self.generation, (await control.read(self._sides[to]))[0].generation)
            role = await control.write(self._sides[to], Role(generation + 1, to))
        except Unavailable as error:
            self._away(to, error)
            raise self._both_away() from error
        self._failovers.append(now)
        self._counts["failovers"] += 1
        self._last_failover = time.time()
        if role.active == away:
            raise self._both_away()
        log.warning("the %s is away, the %s is active now, in generation %d", away, to, role.generation)
        await self._adopt(role)
        self._background.wake()

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Ask the active side; if it is away, the other one."""
        await self._start()
        for last in (False, True):
            name = self._active
            try:
                return await getattr(self._sides[name], method)(*args, **options)
            except Unavailable as error:
                self._away(name, error)
                if last:
                    raise self._both_away() from error
                await self._fail_over(name)
        raise AssertionError("the loop above returns or raises")

    # -- writing ---------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        await self._start()
        settings = self.settings
        if settings.replica_required and not self._well(self._other):
            raise Unavailable(f"the replica is away and replica_required=True: {self._errors[self._other]}")
        await self._bury(commit)
        name, follower = self._active, self._other
        own = commit if commit.fence is not None else msgspec.structs.replace(commit, fence=self._fence)
        plain = msgspec.structs.replace(commit, fence=None)
        at_once = (
            settings.replication == "sync" and self._well(follower) and not self._pending.is_behind(commit.lineage)
        )
        if at_once and not self._blocking:
            raised, other = await colour.both(False, self._sides[name].commit(own), self._sides[follower].commit(plain))
        else:
            raised, other = await self._try(self._sides[name], own), None
        if raised is not None:
            if at_once and not self._blocking and other is None:
                self._pending.mark(commit.lineage)  # the follower took what the active side refused
            await self._refused(name, raised, commit)
        if settings.replication == "async":
            await self._queue(plain)
            return
        if at_once and self._blocking:
            other = await self._try(self._sides[follower], plain)
        if not at_once or other is not None:
            await self._catch_up(follower, commit.lineage, other)

    async def _try(self, side: Engine, commit: Commit) -> Exception | None:
        try:
            await side.commit(commit)
        except Exception as error:  # noqa: BLE001  # handed to the caller as a value
            return error
        return None

    async def _refused(self, name: Name, raised: BaseException, commit: Commit) -> None:
        """The active side did not take a commit: its answer is the caller's, its absence is ours to deal with."""
        if isinstance(raised, LockLost) and commit.fence is None:
            await self._learn()
            raise Conflict(
                commit.lineage, None, None, "the mirror changed sides during the save: look again"
            ) from raised
        if isinstance(raised, Unavailable):
            self._away(name, raised)
            await self._fail_over(name)
            raise Conflict(
                commit.lineage, None, None, "the mirror changed sides during the save: look again"
            ) from raised
        raise raised

    async def _bury(self, commit: Commit) -> None:
        for swap in commit.swaps:
            if swap.new is None and not control.hidden(swap.thread):
                head = await self._call("head", swap.thread)
                if head is not None:
                    await control.bury(self.active, swap.thread, head.owner, self.generation)

    async def _catch_up(self, follower: Name, lineage: str, raised: BaseException | None) -> None:
        """A commit that is acknowledged only when the follower has it, too, could not simply be repeated there."""
        if isinstance(raised, Unavailable):
            self._away(follower, raised)
        elif self._well(follower):
            try:
                await self._reported(await reconcile(self.active, self._sides[follower], lineage))
                return
            except Unavailable as error:
                self._away(follower, error)
            except Conflict:
                raised = None  # it kept moving under other writers: the background goes on with it
        self._pending.mark(lineage)
        self._background.wake()
        if self.settings.replica_required:
            raise Unavailable(
                f"the active side has this save, the {follower} has not, and replica_required=True: "
                f"{self._errors[follower] or 'it is still catching up'}"
            ) from raised

    async def _queue(self, commit: Commit) -> None:
        if not self._well(self._other):
            self._pending.mark(commit.lineage)
        elif not self._pending.add(commit):
            log.warning("more than %d commits wait for the follower: it will be compared", self.settings.max_pending)
        while self.settings.back_pressure and self._pending.records >= self.settings.max_pending:
            await self._ship(1)
        self._meters.lag(self._pending.records)
        self._background.wake()

    async def drop(self, drop: Drop) -> None:
        await self._call("drop", drop)
        if self._well(self._other):
            try:
                await self.follower.drop(drop)
            except Unavailable as error:
                self._away(self._other, error)
            except Conflict:
                self._pending.mark(drop.lineage)  # it is behind; what it has too much is harmless

    # -- the background --------------------------------------------------------------------------------------------

    async def _tick(self) -> float:
        """One round: look at both sides, ship what waits, compare what has to be, return home. Seconds to the next."""
        try:
            if time.monotonic() - self._checked >= self._wait():
                await self._check()
            await self._ship()
            await self._compare()
            await self._fail_back()
        except Unavailable as error:
            self._last_error = str(error)
        except Conflict as error:
            self._last_error = str(error)  # something moved: the next round looks again
        except Exception as error:  # noqa: BLE001
            # Whatever it is, the background must go on: what is not shipped stays marked, and is visible.
            self._last_error = f"{type(error).__name__}: {error}"
            log.exception("the mirror's background work failed; it is tried again")
        return self._wait()

    def _wait(self) -> float:
        busy = self._pending.behind or self._pending.records or self._active == "replica"
        unwell = not all(map(self._well, self._sides))
        return min(_QUICK, self.settings.health_every) if busy or unwell else self.settings.health_every

    async def _check(self) -> None:
        """Ping both sides; a follower that is back is compared as a whole."""
        self._checked = time.monotonic()
        for name in self._sides:
            was_well = self._well(name)
            try:
                await self._sides[name].ping()
            except Unavailable as error:
                self._away(name, error)
                if name == self._active:
                    await self._fail_over(name)
            else:
                if not was_well or self._healthy_since[name] is None:
                    self._recovered(name)
        role = max([(await control.read(self.active))[0]], key=lambda known: known.generation)
        if role.generation > self.generation:
            await self._learn()
        if self._well(self._other):
            known = (await control.read(self.follower))[0]
            if known.generation > self.generation:
                await self._learn()
            else:
                if known.generation < self.generation or self.generation == 0:
                    await control.write(self.follower, Role(self.generation, self._active))
                await control.fence(self.follower, self.generation)  # writers of older generations are stopped there
            self._pending.mark(*await differing(self.active, self.follower))

    async def _ship(self, most: int | None = None) -> None:
        sent = 0
        while self._well(self._other) and (most is None or sent < most):
            commit = self._pending.next()
            if commit is None:
                return
            try:
                await self.follower.commit(commit)
            except Unavailable as error:
                self._pending.mark(commit.lineage)
                self._away(self._other, error)
            except Conflict:
                self._pending.mark(commit.lineage)
            sent += 1

    async def _compare(self) -> None:
        if not self._well(self._other):
            return
        lineages = self._pending.take_behind()
        for number, lineage in enumerate(lineages):
            try:
                await self._reported(await reconcile(self.active, self.follower, lineage))
            except Exception:
                self._pending.mark(*lineages[number:])
                raise
        if lineages:
            await control.clear(self.active, self.follower)
            await control.clear(self.follower, self.active)

    async def _reported(self, report: Report) -> None:
        for found in report.diverged:
            self._counts["diverged"] += 1
            log.warning("thread %r was written to on both sides; the other side's head is kept", found.head.thread)
            if self.on_diverged is not None:
                await self.on_diverged(found)

    async def _fail_back(self) -> None:
        """Return to the primary once it has been well for long enough and has everything."""
        since = self._healthy_since["primary"]
        if self._active != "replica" or since is None or not self._well("primary"):
            return
        if time.monotonic() - since < self.settings.failback_after or self._pending.behind or self._pending.records:
            return
        for lineage in await differing(self.active, self.follower):
            await self._reported(await reconcile(self.active, self.follower, lineage))
        following = self.generation + 1
        await control.fence(self._sides["replica"], following)  # from here on nobody writes to the replica
        for lineage in await differing(self._sides["replica"], self._sides["primary"]):
            await self._reported(await reconcile(self._sides["replica"], self._sides["primary"], lineage))
        if await differing(self._sides["replica"], self._sides["primary"]):
            raise Conflict(control.LINEAGE, None, None, "the sides still differ: they are compared again")
        role = Role(following, "primary")
        await control.write(self._sides["primary"], role)
        await control.write(self._sides["replica"], role)
        self._counts["failbacks"] += 1
        log.info("the primary is active again, in generation %d", following)
        await self._adopt(role)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        found: Head | None = await self._call("head", thread)
        return found

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        found: tuple[Head, Row | None] | None = await self._call("tip", thread)
        return found

    async def heads(self, lineage: str) -> list[Head]:
        found: list[Head] = await self._call("heads", lineage)
        return found

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        found: list[Head] = await self._call(
            "threads", prefix=prefix, after=after, limit=limit, kind=kind, newest_first=newest_first
        )
        return found

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        found: list[str] = await self._call("lineages", after=after, limit=limit)
        return found

    async def branches(self, lineage: str) -> list[Branch]:
        found: list[Branch] = await self._call("branches", lineage)
        return found

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        found: Row | None = await self._call("row", lineage, branch, step)
        return found

    async def steps(self, lineage: str, branch: bytes, first: int, last: int) -> list[Step]:
        found: list[Step] = await self._call("steps", lineage, branch, first, last)
        return found

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = await self._call("payloads", lineage, branch, first, last)
        return found

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        found: list[Row] = await self._call("rows", lineage, branch, first, last)
        return found

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        found: list[tuple[bytes, int, bytes]] = await self._call("locate", lineage, low, high, limit)
        return found

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await self._call("blobs", pool, ids)
        return found

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = await self._call("blob_ids", pool, after=after, limit=limit)
        return found

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        answer: Lease | Taken = await self._call("lease", name, owner, ttl)
        return answer

    async def release(self, name: str, owner: str) -> bool:
        given: bool = await self._call("release", name, owner)
        return given

    # -- the place -------------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self._call("ping")

    async def stats(self) -> dict[str, int]:
        figures: dict[str, int] = await self._call("stats")
        return figures

    async def compact(self) -> None:
        await self._call("compact")
        if self._well(self._other):
            await self.follower.compact()

    def status(self) -> Status:
        """Where the mirror stands."""
        return Status(
            active=self._active,
            generation=self.generation,
            replication=self.settings.replication,
            primary=self._side("primary"),
            replica=self._side("replica"),
            behind=self._pending.behind,
            lag_records=self._pending.records,
            lag_bytes=self._pending.bytes,
            lag_seconds=self._pending.seconds,
            failovers=self._counts["failovers"],
            failbacks=self._counts["failbacks"],
            last_failover=self._last_failover,
            diverged=self._counts["diverged"],
            last_error=self._last_error,
        )

    def _side(self, name: Name) -> Side:
        engine = self._sides[name].properties.name
        return Side(
            role=name, engine=engine, healthy=self._well(name), active=name == self._active, error=self._errors[name]
        )

    async def settle(self) -> Status:
        """Compare both sides and ship everything now; what is left shows in the status."""
        await self._start()
        self._checked = 0.0
        await self._tick()
        return self.status()

    async def close(self) -> None:
        if self._closed:
            return
        end = time.monotonic() + self.settings.drain
        while self._known and time.monotonic() < end and self._well(self._other):
            if not self._pending.records and not self._pending.behind:
                break
            await self._tick()
        self._closed = True
        await self._background.stop(max(0.1, end - time.monotonic()))
        if self._pending.records or self._pending.behind:
            log.warning(
                "closed with %d commits and %d lineages that the %s lacks: they are found when it is opened again",
                self._pending.records,
                self._pending.behind,
                self._other,
            )
        for engine in self._sides.values():
            await engine.close()
