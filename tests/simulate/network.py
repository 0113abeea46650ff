"""The network: carries every engine call of a process to one of two servers, and the answer back.

A server is a `MemoryEngine` that all processes share and that never loses anything. A process has a `Link` to each: an
engine whose calls are messages. A message takes a while, so that calls of different processes, and calls that one
process makes at once, overtake each other. It may be refused; it may be lost before the server has it, or the answer
after it; it may arrive long after its caller got `Unavailable`; a write may arrive a second time, as it does if a
client repeats a request whose first copy was only slow. (The engines' own clients do so: `engines.retry`.)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any

import msgspec

from backtrail.engines.base import Commit, Engine
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Unavailable

from .loop import NOBODY, PROCESS, Process, SimulatedLoop
from .plan import SIDES, Fault
from .story import Story

WRITES = ("commit", "drop", "lease", "release")
TIMEOUT = 1.0  #: seconds after which a client gives up
MOST_CALLS = 30_000  #: of one plan: beyond this, something repeats without end


class TooManyCalls(BaseException):
    """A call is repeated without end, in no time."""


class ServerEngine(MemoryEngine):
    """Without a lock: the whole world is in one thread."""

    def _inside(self) -> AbstractContextManager[None]:
        return _ALONE


_ALONE = RLock()  #: nobody waits for it; `with` enters and leaves it without a frame


class Server:
    """An engine that processes call, over the network; or a `local` one, on the disk of their own machine."""

    def __init__(self, name: str, *, local: bool = False) -> None:
        self.name, self.local = name, local
        self.engine = ServerEngine()


class Network:
    """Two servers, and what lies between them and the processes."""

    def __init__(self, loop: SimulatedLoop, noise: int, calm: bool, story: Story) -> None:
        self.loop = loop
        self.servers = {name: Server(name) for name in SIDES}
        self.under_way = 0  #: messages that will still reach a server
        self.calls = 0
        #: called with (server, request, asked by) before a write; what it returns is called once the write is made
        self.on_write: Callable[[Server, Any, Any], Callable[[], None] | None] = lambda *_: None
        self.asking: Callable[[], Any] = lambda: None  #: what the caller is doing
        self.dice = random.Random(noise)
        self.draw = self.dice.random
        self._calm = calm
        self.story = story
        self.cuts: dict[tuple[Process | None, str], list[Fault]] = {}
        self._due: list[_AtCall] = []

    # -- faults ---------------------------------------------------------------------------------------------------

    def at_call(self, process: Callable[[Process], bool], fault: Fault, happen: Callable[[], str | None]) -> None:
        """Have something happen at a call; it returns what becomes of the call, if that is not as usual."""
        self._due.append(_AtCall(process, fault.call, happen))

    def cut(self, process: Process | None, fault: Fault) -> None:
        """Cut a process (None: everybody) off a server."""
        key = (process, fault.side)
        self.cuts.setdefault(key, []).append(fault)
        self.loop.call_later(fault.lasting, self._mend, key, fault, context=NOBODY)

    def _mend(self, key: tuple[Process | None, str], fault: Fault) -> None:
        if fault in self.cuts.get(key, ()):
            self.cuts[key].remove(fault)
            if not self.cuts[key]:
                del self.cuts[key]
            self.story.tell(f"the {key[1]} can be reached again by {key[0].name if key[0] else 'all'}")

    def heal(self) -> None:
        self.cuts.clear()
        self._due.clear()

    def how_cut(self, process: Process, server: Server) -> str | None:
        if not self.cuts:
            return None
        cuts = self.cuts.get((process, server.name)) or self.cuts.get((None, server.name))
        return cuts[0].how if cuts else None

    # -- messages -------------------------------------------------------------------------------------------------

    def delay(self) -> float:
        """The seconds that one message takes."""
        if self._calm:
            return 0.001
        drawn = self.draw()
        if drawn < 0.9:
            return 0.0005 + drawn * 0.002
        return 0.02 if drawn < 0.98 else 0.3

    def send(self, process: Process, server: Server, method: str, args: Any, options: Any) -> asyncio.Future[Any]:
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooManyCalls(f"{self.calls} calls")
        fate = self._fate(process) if self._due else None
        if server.local and fate != "never":
            fate = None  # a disk loses nothing
        loop = self.loop
        outcome: asyncio.Future[Any] = asyncio.Future(loop=loop)
        message = Message(self, process, server, method, args, options, outcome, self.asking())
        request = self.delay()
        if fate is None and not self.cuts:
            self.under_way += 1
            loop.call_nobody(request, message.arrive)
        else:
            message.send(fate, request)
        return outcome

    def _fate(self, process: Process) -> str | None:
        """What becomes of this call of a process, if something is to happen at it."""
        fate: str | None = None
        for one in [one for one in self._due if one.concerns(process)]:
            one.left -= 1
            if one.left == 0:
                self._due.remove(one)
                fate = one.happen() or fate
        return fate

    def apply(self, message: Message) -> tuple[Any, BaseException | None]:
        """On the server: carry out a request."""
        made = self.on_write(message.server, message.args[0], message.asked_by) if message.method in WRITES else None
        work = getattr(message.server.engine, message.method)(*message.args, **message.options)
        try:
            work.send(None)
        except StopIteration as done:
            if made is not None:
                made()
            return done.value, None
        except Exception as error:  # noqa: BLE001  # the server's answer
            return None, error
        raise AssertionError("a MemoryEngine suspended")


class _AtCall:
    def __init__(self, concerns: Callable[[Process], bool], call: int, happen: Callable[[], str | None]) -> None:
        self.concerns, self.left, self.happen = concerns, call, happen


class Message(msgspec.Struct, eq=False):
    """One call on its way to a server and back. A struct, like a `Handle`: there are hundreds for each seed."""

    network: Network
    process: Process
    server: Server
    method: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    outcome: asyncio.Future[Any]
    asked_by: Any
    lose_answer: bool = False

    def send(self, fate: str | None, request: float) -> None:
        """Send it while there are faults: to arrive after `request` seconds, or to fare otherwise."""
        network = self.network
        cut = network.how_cut(self.process, self.server)
        if fate is None and cut in ("refused", "silent"):
            fate = cut
            if cut == "silent" and self.method in WRITES and network.draw() < 0.1:
                fate = "late"
        if fate is None:
            self._arrive_in(request, self.arrive)
        elif fate == "refused":
            self._after(request, self._fail, "the connection was refused")
        elif fate in ("silent", "request"):
            self._after(TIMEOUT, self._fail, "no answer")
        elif fate == "late":
            self._after(TIMEOUT, self._fail, "no answer")
            self._arrive_in(TIMEOUT + network.dice.choice((0.01, 0.5, 3.0)), self._arrive_late)
        elif fate != "never":  # then the process died before it was sent
            if fate == "twice" and self.method in WRITES:
                self._arrive_in(request + network.dice.choice((0.005, 0.1, 2.0)), self._arrive_late)
            if fate == "slow":
                request += network.dice.choice((0.05, 0.4, 0.9))
            self.lose_answer = fate == "answer"
            self._arrive_in(request, self.arrive)

    def _after(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self.network.loop.call_nobody(seconds, callback, *args)

    def _arrive_in(self, seconds: float, callback: Callable[[], None]) -> None:
        self.network.under_way += 1
        self.network.loop.call_nobody(seconds, callback)

    def arrive(self) -> None:
        """Reach the server, and send its answer back."""
        network = self.network
        network.under_way -= 1
        if self.process.dead and network.draw() < 0.5:
            self._note("never arrived: its process is dead")
            return
        if network.cuts and network.how_cut(self.process, self.server) in ("refused", "silent"):
            self._after(TIMEOUT, self._fail, "no answer")
            return
        value, error = network.apply(self)
        if self.lose_answer:
            self._note("was carried out, and the answer lost", error)
            self._after(TIMEOUT, self._fail, "no answer")
            return
        network.loop.call_nobody(network.delay(), self._answer, value, error)

    def _arrive_late(self) -> None:
        self.network.under_way -= 1
        _, error = self.network.apply(self)
        if error is None and self.asked_by is not None:
            self.asked_by.arrived_late = True
        self._note("arrived now, late or a second time", error)

    def _answer(self, value: Any, error: BaseException | None) -> None:
        network, outcome = self.network, self.outcome
        if network.cuts and network.how_cut(self.process, self.server) is not None:
            self._note("was carried out, and the answer lost", error)
            self._after(TIMEOUT, self._fail, "no answer")
            return
        if not network.story.silent:
            self._note("", error)
        if outcome.cancelled() or self.process.dead:
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)

    def _fail(self, why: str) -> None:
        self._note(f"Unavailable: {why}")
        if not self.outcome.cancelled() and not self.process.dead:
            self.outcome.set_exception(Unavailable(f"{self.server.name}: {why}"))

    def _note(self, what: str, error: BaseException | None = None) -> None:
        if not self.network.story.silent:
            self.network.story.message(self, what, error)


class Link(Engine):
    """A server, as seen by one process."""

    def __init__(self, network: Network, process: Process, server: Server) -> None:
        self._network, self._process, self._server = network, process, server
        self._closed = False
        self.properties = msgspec.structs.replace(
            MemoryEngine.properties, name=server.name, blocking=False, shared=True, durable=True
        )

    async def close(self) -> None:
        self._closed = True


def _passing(name: str) -> Any:
    async def call(self: Link, *args: Any, **options: Any) -> Any:
        if self._closed:
            raise Unavailable(f"the {self._server.name} was closed")
        if PROCESS.get() is not self._process:
            raise GeneratorExit  # the interpreter throws a coroutine of a dead process away: that does nothing more
        return await self._network.send(self._process, self._server, name, args, options)

    return call


for _name in {name for name in vars(Engine) if not name.startswith("_")} - {"properties", "unwrap", "close"}:
    setattr(Link, _name, _passing(_name))
Link.__abstractmethods__ = frozenset()


def deleted_threads(commit: Commit) -> list[str]:
    """The threads whose heads a commit deletes."""
    return [swap.thread for swap in commit.swaps if swap.new is None]
