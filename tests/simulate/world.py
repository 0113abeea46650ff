"""Plays a plan: starts the processes, lets things go wrong, heals everything, and waits until all is quiet.

A machine runs one process after the other: if one dies, the next is started on the same spool and goes on with the
operations that are left. After everything is healed, each process that lives, and one that is new, compares the sides
until its status says that nothing is left to do; then the checker looks at both servers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

import msgspec

import backtrail
import backtrail.aio
from backtrail.engines.base import Commit, Engine
from backtrail.engines.reserved_names import RESERVED
from backtrail.errors import BacktrailError, Unavailable
from backtrail.replicate.deleted_threads import Tombstone

from .checker import Failure, check
from .clocks import simulated
from .loop import NOBODY, PROCESS, Process, SimulatedLoop, Stuck
from .network import Link, Network, Server, TooManyCalls, deleted_threads
from .plan import Fault, Plan
from .servers import alive, history, kept_beside
from .story import Story
from .workload import CALL, Call, Ledger, perform

PATIENCE = 150.0  #: seconds within which every call returns once everything is healed
ROUNDS = 40  #: comparisons until both sides are one
RESTART = 0.5  #: seconds until a process that died is started again


class Machine:
    """One machine: its processes, one after the other, their spool, and the operations that are left to do."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.disk = world.disk if world.plan.shared_spool else Server("disk", local=True)
        self.started = 0
        self.process = Process("")
        self.store: backtrail.aio.AsyncStore | None = None
        operations = [one for one in world.plan.operations if one.process == number]
        self.lanes = {one.lane: [two for two in operations if two.lane == one.lane] for one in operations}
        self.done: dict[int, asyncio.Event] = {}

    def start(self) -> None:
        """Start the next process."""
        self.started += 1
        self.store = None
        self.process = Process(f"{'ABCDEFGH'[self.number]}{self.started if self.started > 1 else ''}")
        self.done = {lane: asyncio.Event() for lane in self.lanes}
        self.world.spawn(self.process, self._run())

    async def _run(self) -> None:
        await self.open()
        for lane in self.lanes:
            self.world.loop.create_task(self._run_lane(lane))

    async def open(self) -> None:
        world, plan = self.world, self.world.plan
        options = dict(plan.options)
        if plan.spool:
            options["spool"] = Link(world.network, self.process, self.disk)
        one, two = (Link(world.network, self.process, server) for server in world.network.servers.values())
        while True:
            try:
                self.store = await backtrail.aio.open(one, replica=two, replication=plan.replication, **options)
                return
            except Unavailable:
                await asyncio.sleep(0.5)
            except Exception as error:  # noqa: BLE001  # reported, as of any call
                world.broken(Failure("an error that no caller may see", f"open: {type(error).__name__}: {error}"))
                return

    async def _run_lane(self, lane: int) -> None:
        world, left, process = self.world, self.lanes[lane], self.process
        while left:
            await asyncio.sleep(max(0.0, world.began + left[0].at - world.loop.now))
            operation = left.pop(0)
            call = Call(operation, self.process.name, world.loop.now)
            world.ledger.calls.append(call)
            CALL.set(call)
            world.story.begins(call)
            try:
                if operation.kind == "reopen":
                    await self._reopen()
                elif self.store is not None:
                    await perform(self.store, call, world.ledger)
            except Exception as error:  # noqa: BLE001  # the checker decides which are allowed
                if process.dead:
                    return  # this was thrown away, and nobody is left to see what it raises
                call.error = error
            call.ended = world.loop.now
            if call.kind == "delete_at":
                call.beside = {*kept_beside(world.engines, call.thread)}
            CALL.set(None)
            world.story.ends(call)
        self.done[lane].set()

    async def _reopen(self) -> None:
        if self.store is not None:
            await self.store.close()
        await self.open()

    def die(self) -> None:
        """The process is gone, and everything that it had only in memory."""
        self.process.dead = True
        self.store = None

    @property
    def idle(self) -> bool:
        """True if its process lives, its store is open, and nothing is left to do."""
        return self.store is not None and all(one.is_set() for one in self.done.values())


class World:
    """A plan, and everything that is in it while it is played."""

    def __init__(self, plan: Plan, story: Story | None = None) -> None:
        self.plan = plan
        self.loop = SimulatedLoop()
        self.began = self.loop.now
        self.story = story or Story(silent=True)
        self.story.clock = lambda: self.loop.now - self.began
        self.ledger = Ledger()
        self.failures: list[Failure] = []
        self.network = Network(self.loop, plan.noise, plan.calm, self.story)
        self.network.on_write = self._before_write
        self.network.asking = CALL.get
        self.disk = Server("disk", local=True)  #: for the spools of all machines, if they share one
        self.machines = [Machine(self, number) for number in range(plan.processes)]

    @property
    def engines(self) -> dict[str, Engine]:
        return {name: server.engine for name, server in self.network.servers.items()}

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in a process."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.loop.create_task(work, context=context)

    def broken(self, failure: Failure) -> None:
        self.failures.append(failure)

    # -- a run ----------------------------------------------------------------------------------------------------

    def play(self) -> list[Failure]:
        """Play the plan; returns what is wrong in the end."""
        with simulated(self.loop, self.plan.seed), _listening(self):
            try:
                self.loop.run_until_complete(self._play())
                if not self.failures:
                    self.failures += check(self.plan, self.ledger, self.engines)
            except (Stuck, TooManyCalls) as error:
                self.broken(Failure("no end", str(error)))
            finally:
                self.loop.close()
        for context in self.loop.errors:
            error = context.get("exception")
            if not isinstance(error, BacktrailError):
                self.broken(Failure("an error in the background", f"{type(error).__name__}: {error}"))
        if not self.story.silent:
            self.story.sides(self.engines)
        return self.failures

    async def _play(self) -> None:
        for machine in self.machines:
            machine.start()
        for fault in self.plan.faults:
            self.loop.call_at(self.began + fault.at, self._due, fault, context=NOBODY)
        await self._until_healed()
        self._heal()
        await self._until(lambda: all(machine.idle for machine in self.machines), "an operation")
        await self._until(lambda: self.network.under_way == 0, "the network")
        self.machines.append(fresh := Machine(self, len(self.machines)))
        fresh.start()
        await self._until(lambda: fresh.idle, "open()")
        if self.failures:
            return
        await self._settle()
        if self.plan.linger and not self.failures and await self._linger():
            await self._settle()
        for machine in self.machines:
            if machine.store is not None and not self.failures:
                await self._in(machine, machine.store.close())

    async def _until_healed(self) -> None:
        """Wait for the end of the faults; or less, if nobody has anything left to do and no fault is to come."""
        plan, began = self.plan, self.began
        last = began + max([0.0, *(fault.at for fault in plan.faults)])
        quiet = 0.0
        while self.loop.now < began + plan.healed and (quiet < plan.patience or self.loop.now < last):
            await asyncio.sleep(min(0.25, began + plan.healed - self.loop.now))
            quiet = quiet + 0.25 if all(machine.idle for machine in self.machines) else 0.0

    async def _until(self, happened: Callable[[], bool], what: str) -> None:
        end = self.loop.now + PATIENCE
        while not happened() and not self.failures:
            if self.loop.now > end:
                hanging = [str(call) for call in self.ledger.calls if call.ended is None]
                self.broken(Failure("a call never returns", f"{what}: {hanging[-3:]}"))
            await asyncio.sleep(0.25)

    async def _in(self, machine: Machine, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the machine's process, within reason."""
        task = self.spawn(machine.process, work)
        done, _ = await asyncio.wait([task], timeout=PATIENCE)
        if not done:
            self.broken(Failure("a call never returns", f"catch_up or close of {machine.process.name}"))
            return None
        error = task.exception()
        if isinstance(error, TooManyCalls):
            raise error
        if error is not None and not isinstance(error, Unavailable):
            what = f"catch_up or close of {machine.process.name}: {type(error).__name__}: {error}"
            self.broken(Failure("an error that no caller may see", what))
        return None if error is not None else task.result()

    async def _linger(self) -> bool:
        """Let time pass, until the primary is active for everybody: then nothing would happen any more. False if it is
        from the beginning."""
        end, waited = self.loop.now + self.plan.linger, False
        while self.loop.now < end:
            statuses = [await self._in(one, one.store.status()) for one in self.machines if one.store is not None]
            if not self.plan.patient and all(status and status.active == "primary" for status in statuses):
                break
            await asyncio.sleep(1.0)
            waited = True
        return waited

    async def _settle(self) -> None:
        """Compare both sides in every process, until none of them has anything left to do."""
        self.story.tell("everybody compares both sides until nothing is left to do")
        statuses: list[Any] = []
        for _ in range(ROUNDS):
            waiting = [self._in(machine, machine.store.catch_up()) for machine in self.machines if machine.store]
            statuses = await asyncio.gather(*waiting)
            if self.failures or all(map(_settled, statuses)):
                return
            await asyncio.sleep(1.0)
        self.broken(Failure("the sides do not become one", _shown(next(one for one in statuses if not _settled(one)))))

    # -- faults ---------------------------------------------------------------------------------------------------

    def _due(self, fault: Fault) -> None:
        machine = self.machines[fault.process]
        if fault.call:
            self.network.at_call(lambda process: process is machine.process, fault, lambda: self._happen(fault))
        else:
            self._happen(fault)

    def _happen(self, fault: Fault) -> str | None:
        """Let a fault happen; returns what becomes of the call at which it does."""
        machine = self.machines[fault.process]
        process, now = machine.process, self.loop.now
        self.story.fault(fault, process.name)
        if fault.kind == "cut":
            self.network.cut(process, fault)
        elif fault.kind == "down":
            self.network.cut(None, fault)
        elif fault.kind == "crash":
            machine.die()
            self.loop.call_at(now + RESTART, self._restart, machine, context=NOBODY)
            return None if fault.after else "never"
        elif fault.kind == "stop":
            self.loop.stop_process(process, fault.lasting)
        elif fault.kind == "clock":
            process.clock_error += fault.jump
        else:
            return fault.kind
        return None

    def _restart(self, machine: Machine) -> None:
        if machine.process.dead:
            machine.start()
            self.story.tell(f"{machine.process.name} is started")

    def _heal(self) -> None:
        self.network.heal()
        for machine in self.machines:
            machine.process.stopped_until = 0.0
            self.loop.resume(machine.process)
        self.story.tell("everything is healed")

    # -- what the checker has to know -----------------------------------------------------------------------------

    def _before_write(self, server: Server, request: Any, asked_by: Call | None) -> Callable[[], None] | None:
        """Around a write: keep it, and note that its call has done something; if it deletes the call's thread, what its
        server has in that; and if it prunes, what is alive no more."""
        if server.local or not isinstance(request, Commit):
            return None
        if request.lineage.startswith(RESERVED):
            for swap in request.swaps if asked_by is not None else ():
                if swap.new is not None and swap.new.kind == "gone":
                    asked_by.generation = msgspec.msgpack.decode(swap.new.note, type=Tombstone).generation
            return None
        if asked_by is None:
            return lambda: self.ledger.trace.add(server.name, request, None, self.loop.now)
        known: list[set[str]] = []
        if asked_by.kind in ("delete", "delete_at") and asked_by.thread in deleted_threads(request):
            beside = set().union(*kept_beside(self.engines, asked_by.thread).values())
            whole = {one.id for one in history(backtrail.open(server.engine), asked_by.thread)}
            known.append(whole - beside)
            asked_by.known_beside |= whole & beside

        before = alive(server.engine) if asked_by.kind == "prune" and request.marks else set()

        def made() -> None:
            self.ledger.trace.add(server.name, request, asked_by, self.loop.now)
            asked_by.applied = True
            asked_by.known += known
            if before:
                asked_by.marked |= before - alive(server.engine)

        return made


def _settled(status: Any) -> bool:
    if status is None or status.behind or status.lag_records:
        return False
    spooled = status.spool is not None and (status.spool.records or status.spool.adrift)
    return not spooled and bool(status.primary.healthy and status.replica.healthy)


def _shown(status: Any) -> str:
    if status is None:
        return "catch_up raises Unavailable"
    spooled = f", {status.spool.records} in the spool" if status.spool else ""
    unwell = "".join(f", the {one.role} is unreachable" for one in (status.primary, status.replica) if not one.healthy)
    return f"behind {status.behind}, lag {status.lag_records}{spooled}{unwell}; last error: {status.last_error}"


class _listening(logging.Handler):  # noqa: N801  # a context manager
    """Hears what the mirrors log: for the story, and for errors that they did not expect."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR if world.story.silent else logging.INFO)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        name = process.name if process else "the world"
        self.world.story.logs(name, record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, BacktrailError):
            self.world.broken(Failure("an error in the background", f"{name}: {type(error).__name__}: {error}"))

    def __enter__(self) -> None:
        self._log = logging.getLogger("backtrail")
        self._before = self._log.level, self._log.propagate
        self._log.addHandler(self)
        self._log.propagate = False
        self._log.setLevel(self.level)

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.level, self._log.propagate = self._before
