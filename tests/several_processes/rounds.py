"""Rounds: the processes are started, hurt as planned, healed and settled; then both sides are checked."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import backtrail
from backtrail.engines.coroutines import finish
from fix_children import Child, run
from several_processes.board import Board
from several_processes.checker import Checker, Finding, Found
from several_processes.client import QUICK, Place, Process, catch_up, clean, log_into, quick_limits
from several_processes.ledger import Ledger
from several_processes.plan import Client, Event, Plan, Setup, View, draw
from several_processes.sides import Side, two_sides
from several_processes.views import Views

ENDING = 90.0  # seconds after which a client that does not end hangs


class Result(msgspec.Struct, kw_only=True):
    """What came of a round."""

    seed: str
    folder: str
    findings: list[Finding]
    counts: dict[str, int]

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


class Round:
    """One round while it runs."""

    def __init__(self, plan: Plan, sides: tuple[Side, Side], folder: Path) -> None:
        self.plan = plan
        self.sides, self.folder, self.start = self.place = Place(sides, folder, time.monotonic_ns())
        self.boards = [Board() for _ in plan.clients]
        self.views = Views([client.spool for client in plan.clients])
        self.living: dict[int, Child] = {}
        self.stopped: set[int] = set()
        self.lives: Counter[int] = Counter()

    def run(self) -> list[Finding]:
        """What is wrong after it."""
        for client in self.plan.clients:
            self.boards[client.number].clock = client.clock
            self._start(client)
        begin = time.monotonic()
        for event in self.plan.events:
            time.sleep(max(0.0, begin + event.at - time.monotonic()))
            self._happen(event)
        time.sleep(max(0.0, begin + self.plan.setup.seconds - time.monotonic()))
        self._heal()
        hanging = self._end()
        findings = msgspec.json.decode(run(self._check), type=list[Finding])
        return [*hanging, *findings]

    # -- what happens -------------------------------------------------------------------------------------------------

    def _start(self, client: Client) -> None:
        life = self.lives[client.number]
        self.lives[client.number] += 1
        board = self.boards[client.number]
        self.living[client.number] = Child(lambda _: Process(self.plan, client, life, board, self.place).run())

    def _now(self) -> float:
        return (time.monotonic_ns() - self.start) / 1e9

    def _happen(self, event: Event) -> None:
        number = event.client
        board = self.boards[number]
        child = self.living.get(number)
        if event.do == "server start":
            self.sides[event.side].mend()
        elif event.do.startswith("server"):
            self.sides[event.side].hurt(event.do)
        elif event.do == "view":
            self._show(number, event.view)
        elif event.do == "clock":
            board.clock += event.clock
        elif event.do == "start":
            if child is None or child.ended():
                self._start(self.plan.clients[number])
        elif child is not None:
            signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}
            child.signal(signals[event.do])
            (self.stopped.add if event.do == "stop" else self.stopped.discard)(number)

    def _show(self, number: int, views: tuple[View, View]) -> None:
        for side, view in enumerate(views):
            if view not in ("away", "silent"):
                self.views.change(number, side, view, self._now())
            self.boards[number].set_view(side, view)
            self.sides[side].show(number, view)
            if view in ("away", "silent"):
                self.views.change(number, side, view, self._now(), stopped=number in self.stopped)

    def _heal(self) -> None:
        for number in range(len(self.plan.clients)):
            self._show(number, ("up", "up"))
        for side in self.sides:
            side.heal()
        for number, child in self.living.items():
            if number in self.stopped:
                child.signal(signal.SIGCONT)
        for board in self.boards:
            board.heal()

    def _end(self) -> list[Finding]:
        """Wait until all processes have caught up and ended."""
        end = time.monotonic() + ENDING
        hanging = []
        for number, child in self.living.items():
            while not child.ended():
                if time.monotonic() > end:
                    child.signal(signal.SIGKILL)
                    hanging.append(Finding("a client hangs", f"client {number}"))
                    break
                time.sleep(0.005)
            child.end()
        return hanging

    # -- afterwards, in a process of its own --------------------------------------------------------------------------

    def _check(self, send: Any) -> None:
        ledger = Ledger.read(self.folder, self.start)
        for told in self._settle():
            ledger.unsettled.append(told)
        one, two = (self._found(side) for side in self.sides)
        findings = Checker(ledger, self.views, one, two).findings()
        send(msgspec.json.encode(findings))

    def _found(self, side: Side) -> Found:
        with backtrail.open(side.engine(None, asynchronous=False)) as store:
            return Found(store)

    def _settle(self) -> Iterator[str]:
        """A fresh process delivers what dead ones left in their spools, and catches up."""
        log_into(self.folder / "fresh.log", self.start)
        quick_limits()
        spools: list[Path | None] = [*sorted(self.folder.glob("spool-*")), None]
        for spool in spools:
            options = {**QUICK, "replication": self.plan.setup.replication}
            if spool is not None:
                options["spool"] = spool
            one, two = (side.engine(None, asynchronous=False) for side in self.sides)
            with backtrail.open(one, replica=two, **options) as store:
                status = finish(catch_up(store, _pause))
                if not status or not clean(status):
                    yield f"a fresh process{f' with {spool.name}' if spool else ''}: {status}"


async def _pause(seconds: float) -> None:
    time.sleep(seconds)


class Rounds:
    """Rounds of one configuration, on sides that are begun anew for each."""

    def __init__(self, setup: Setup, sides: tuple[Side, Side], folder: Path) -> None:
        self.setup, self.sides, self.folder = setup, sides, folder
        self._number = 0
        folder.mkdir(parents=True, exist_ok=True)

    def play(self, seed: str) -> Result:
        """The round that the seed stands for."""
        return self.play_plan(draw(self.setup, seed))

    def play_plan(self, plan: Plan) -> Result:
        """One round; its folder is kept if something was found."""
        self._number += 1
        setup = plan.setup
        name = f"{setup.primary}+{setup.replica}-{setup.replication}-{setup.spool}-{plan.seed}-"
        folder = Path(tempfile.mkdtemp(prefix=name, dir=self.folder))
        for side in self.sides:
            side.begin(folder, self._number, len(plan.clients))
        played = Round(plan, self.sides, folder)
        findings = played.run()
        ledger = Ledger.read(folder, played.start)
        counts = Counter(each.do if each.acknowledged else "not acknowledged" for each in ledger.operations)
        counts["processes"] = sum(played.lives.values())
        counts["generations"] = max((each.before[1] for each in ledger.operations if each.before), default=0)
        if findings:
            (folder / "findings.txt").write_text(_told(plan, ledger, findings))
        else:
            shutil.rmtree(folder)
        return Result(seed=plan.seed, folder=str(folder), findings=findings, counts=dict(counts))


def _told(plan: Plan, ledger: Ledger, findings: list[Finding]) -> str:
    parts = [f"{plan.setup}, seed {plan.seed}", *(str(client) for client in plan.clients)]
    parts += [f"{event.at:8.3f} {event}" for event in plan.events]
    for finding in findings:
        parts += ["", str(finding)]
        words = [word for word in finding.words if word]
        if words:
            parts += ["  story:", ledger.story(*words)]
    return "\n".join(parts) + "\n"


@contextlib.contextmanager
def rounds_of(setup: Setup, folder: Path) -> Iterator[Rounds]:
    with two_sides(setup.primary, setup.replica) as sides:
        yield Rounds(setup, sides, folder)
