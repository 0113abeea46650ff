"""Failover: the health of both sides, the generation, and the switch from one side to the other.

A mirror's knowledge of the roles is one frozen `Standing`, replaced as a whole and never by an older one; a caller
reads it once and uses that. Its fences verify it: each commit through it names the generation's token on its side, so
the engine refuses a mirror that missed a switch, and the mirror reads the roles again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from backtrail.engines.base import Engine, generation_of
from backtrail.engines.conflicts import Refused, closed
from backtrail.errors import Unavailable
from backtrail.replicate import concurrency, limits, role_record
from backtrail.replicate.role_record import Name, Role
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import log
from backtrail.telemetry import count_change_of_side

_PAGE = 1000


class Standing(msgspec.Struct, frozen=True):
    """A mirror's knowledge of the roles: the role record, and the sides that have joined its generation, with its fence
    on their writes."""

    role: Role = Role()
    joined: Mapping[Name, Engine] = {}

    @property
    def active(self) -> Name:
        return self.role.active

    @property
    def follower(self) -> Name:
        return opposite(self.role.active)

    @property
    def generation(self) -> int:
        return self.role.generation

    @property
    def is_sure(self) -> bool:
        """True if writes can be made: the active side has joined. At first, the roles have to be read."""
        return self.role.active in self.joined

    def side(self, name: Name) -> Engine:
        """A side to write to."""
        if name not in self.joined:
            raise Unavailable(f"the {name} has not joined generation {self.generation} yet")
        return self.joined[name]


def opposite(name: Name) -> Name:
    return "replica" if name == "primary" else "primary"


class Health(msgspec.Struct, frozen=True, eq=False):
    """What is known of a side: since when it has been healthy, or why it could not be reached. Another one takes its
    place whenever the side could not be reached, so an answer to a request from before says nothing."""

    since: float
    error: str | None = None


class Failover:
    """Holds, refreshes and changes the standing. `on_change` is called after a change, of a side's health
    too."""

    def __init__(
        self,
        sides: Mapping[Name, Engine],
        blocking: bool,
        settings: Settings,
        on_change: Callable[[], None],
    ) -> None:
        self.sides = sides
        self.standing = Standing()
        self.health: dict[Name, Health] = dict.fromkeys(sides, Health(time.monotonic()))
        self.failovers: list[float] = []  # when, by the monotonic clock
        self.failbacks = 0
        self.last_failover: float | None = None
        self.last_error: str | None = None
        self.closed = False  # the sides are being closed: a missing answer says nothing about their health
        self._blocking = blocking
        self._settings = settings
        self._on_change = on_change
        self._switching = concurrency.Mutex(blocking)
        self._lock = threading.Lock()

    # -- health ----------------------------------------------------------------------------------------------------

    def is_healthy(self, name: Name) -> bool:
        return self.health[name].error is None

    def can_follow(self, standing: Standing) -> bool:
        """True if the follower can be written to: it is healthy, and has joined this generation."""
        return standing.follower in standing.joined and self.is_healthy(standing.follower)

    @contextlib.contextmanager
    def asking(self, name: Name) -> Iterator[None]:
        """The calls in this block tell if a side can be reached."""
        asked = self.health[name]
        try:
            yield
        except Unavailable as error:
            self.note_unreachable(name, error)
            raise
        self.note_answer(name, asked)

    def note_answer(self, name: Name, asked: Health) -> None:
        """Record that a side answered a request made when this was known of it."""
        if asked.error is not None and self.health[name] is asked:
            self.health[name] = Health(time.monotonic())
            self._on_change()

    def note_unreachable(self, name: Name, error: BaseException) -> None:
        """Record that a side did not answer."""
        was_well = self.is_healthy(name)
        self.last_error = str(error)
        self.health[name] = Health(time.monotonic(), str(error))
        if was_well:
            self._on_change()

    async def ping(self, name: Name) -> bool:
        """Find out if a side can be reached."""
        with contextlib.suppress(Unavailable), self.asking(name):
            await self.sides[name].ping()
            return True
        return False

    def both_unreachable(self) -> Unavailable:
        causes = "; ".join(f"{name}: {health.error or 'not active'}" for name, health in self.health.items())
        return Unavailable(f"neither side of the mirror can serve this call: {causes}")

    # -- learning --------------------------------------------------------------------------------------------------

    async def learn(self) -> None:
        """Read both sides' role records; the newer one counts."""
        for _ in limits.LEARNING.attempts():
            known: dict[Name, Role] = {}
            for name, engine in self.sides.items():
                with contextlib.suppress(Unavailable), self.asking(name):
                    known[name] = await role_record.read(engine)
            if not known:
                raise self.both_unreachable()
            role = max(self.standing.role, *known.values(), key=lambda one: one.generation)
            try:
                if role.active not in known:
                    raise Unavailable(self.health[role.active].error or "unreachable")
                if role.generation == 0:
                    # A store opened on one side alone writes in generation 0, so a mirror never writes to the same
                    # branches. Its threads may come from another mirror: no version may be lower than theirs.
                    newest = max([await _newest_generation(self.sides[name]) for name in known])
                    role = role_record.following(newest, "primary")
                elif known[role.active].generation == 0:
                    role = await self._beside_an_old_one(role, known)
                if await self._adopt(role):
                    return
            except Unavailable as error:
                self.note_unreachable(role.active, error)
                self._believe(role, {})
                await self.fail_over(role.active)
                return
        raise Unavailable("other processes are changing the roles of this mirror all the time: try again")

    async def _beside_an_old_one(self, role: Role, known: Mapping[Name, Role]) -> Role:
        """The roles if the side that should be active is new. The old side's rows of this generation are not on the new
        one, so a new generation begins; and as long as the new side is empty, the old one is active."""
        active, other = role.active, opposite(role.active)
        heads = await self.sides[active].threads(limit=1)
        if self._settings.failover and other in known and all(role_record.is_own_record(head.thread) for head in heads):
            active = other
        return role_record.following(role.generation, active)

    async def _adopt(self, role: Role) -> bool:
        """Record the roles on both sides, and join their generation; False if one of the sides is in a newer one."""
        began = time.monotonic()
        active, other = role.active, opposite(role.active)
        joined: dict[Name, Engine] = {}
        while not joined:
            role = await role_record.write(self.sides[active], role)
            if role.active == other:
                return False
            try:
                joined[active] = await self._join(active, role)
            except Refused:
                # Another process has closed this generation and is about to record the next one.
                await concurrency.pause(self._blocking, limits.ROLE_CHANGE.backoff)
                if time.monotonic() - began > limits.ROLE_CHANGE.deadline:
                    role = role_record.following(role.generation, active)
        if self.is_healthy(other):
            try:
                if await role_record.write(self.sides[other], role) != role:
                    return False
                joined[other] = await self._join(other, role)
            except Unavailable as error:
                self.note_unreachable(other, error)
            except Refused:
                return False
        self._believe(role, joined)
        return True

    async def _join(self, name: Name, role: Role) -> Engine:
        """A side in this generation: it accepts no write of an older one any more. `Refused` if it is in a newer."""
        side = self.sides[name]
        return concurrency.FencedEngine(side, await role_record.fence(side, role.generation))

    def _believe(self, role: Role, joined: Mapping[Name, Engine]) -> None:
        with self._lock:
            if role.generation < self.standing.generation:
                return
            switched = role != self.standing.role
            self.standing = Standing(role, joined if switched else {**self.standing.joined, **joined})
        if switched:
            count_change_of_side(role.active)
            self._on_change()

    async def refresh(self) -> None:
        """Read the roles again if a side has a newer generation, or has not granted its token yet."""
        standing = self.standing
        names: list[Name] = [name for name in self.sides if self.is_healthy(name)]
        known = [(await role_record.read(self.sides[name])).generation for name in names]
        if max(known, default=0) > standing.generation or any(name not in standing.joined for name in names):
            await self.learn()

    # -- changing --------------------------------------------------------------------------------------------------

    async def fail_over(self, away: Name) -> None:
        """Make the other side active; `Unavailable` with the reason if that fails. Of several callers, one tries for
        all."""
        to = opposite(away)
        asked = self.health[to]
        async with self._switching:
            if self.closed:
                raise closed("mirrored")
            if self.standing.active != away:
                return
            if not self.is_healthy(to) and self.health[to] is not asked:
                raise self.both_unreachable()  # another caller tried meanwhile
            await self._change_sides(away, to)

    @property
    def may_change(self) -> bool:
        """True if the sides may be switched now."""
        begin = time.monotonic() - self._settings.failover_window
        return self._settings.failover and sum(at > begin for at in self.failovers) < self._settings.max_failovers

    async def _change_sides(self, away: Name, to: Name) -> None:
        settings, now = self._settings, time.monotonic()
        if not self.may_change:
            often = f"the mirror changed sides {settings.max_failovers} times within {settings.failover_window:g} s"
            reason = often if settings.failover else "failover is off"
            raise Unavailable(f"the {away} is unreachable, and {reason}: {self.health[away].error}")
        try:
            with self.asking(to):
                role = await role_record.read(self.sides[to])
                if role.generation <= self.standing.generation or role.active == away:
                    role = role_record.following(max(self.standing.generation, role.generation), to)
                done = role.active == to and await self._adopt(role)
        except Unavailable as error:
            raise self.both_unreachable() from error
        if not done:  # another process changed the roles at this moment: the next call reads them
            raise self.both_unreachable()
        self.failovers.append(now)
        self.last_failover = time.time()
        log.warning("the %s is unreachable, the %s is active now, in generation %d", away, to, self.standing.generation)

    async def close_generation(self) -> Standing:
        """Stop all writers of this generation, on both sides, so that the roles can return to the primary. Returns the
        next standing, in which only this process writes."""
        role = role_record.following(self.standing.generation, "primary")
        return Standing(
            role, {"replica": await self._join("replica", role), "primary": await self._join("primary", role)}
        )

    async def open_generation(self, role: Role) -> None:
        """Let all writers go on, in these roles. If processes compete, the replica's record decides."""
        await role_record.write(self.sides["replica"], role)
        await self.learn()
        if self.standing.role == role and role.active == "primary":
            self.failbacks += 1
            log.info("the primary is active again, in generation %d", role.generation)


async def _newest_generation(side: Engine) -> int:
    """The newest generation of any thread on a side that has no role record."""
    newest, after = 0, None
    while heads := await side.threads(after=after, limit=_PAGE):
        newest = max(newest, *(generation_of(head.version) for head in heads))
        after = heads[-1].thread
    return newest
