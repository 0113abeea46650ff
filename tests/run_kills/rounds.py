"""Rounds: a process plays a run, is killed at a random instant, and another one goes on, until the run has ended.

Everything that opens the store is a forked process. Between two of them the questions that wait are answered, by several
processes at once; some of these are killed too.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

import backtrail
import backtrail.aio
from fix_children import Child, run
from run_kills.ledger import Ledger, findings
from run_kills.plan import Plan, draw
from run_kills.program import play, play_async

Api = Literal["sync", "async"]
HANGS = 60.0  # seconds after which a process that was not killed hangs
MOST_KILLS = 12  # of one run


class Rounds:
    """Runs on one store, over one API."""

    def __init__(self, url: str, options: dict[str, Any], api: Api, folder: Path, seed: str) -> None:
        self.url, self.options, self.api, self.folder, self.seed = url, options, api, folder, seed
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        _import_all()
        run(lambda _: backtrail.open(url, **options).close())  # a process that finds no store makes one

    def play(self, kills: int) -> None:
        """Play runs until so many processes were killed."""
        while self.counts["kills"] < kills:
            self._run(self.counts["runs"])
            self.counts["runs"] += 1

    def _run(self, number: int) -> None:
        run_id, plan = f"run-{number}", draw(f"{self.seed} {number}")
        path = self.folder / f"{run_id}.log"
        left = self.dice.randint(4, MOST_KILLS)
        begun = time.monotonic()
        while True:
            child = Child(self._player(run_id, plan, path))
            suspended = False
            if left > 0 and self._kill(child):
                left -= 1
                self.counts["kills"] += 1
            elif self._ended(child, f"{run_id} of {self.seed}") == b"F":
                break
            else:
                suspended = True
                self.counts["suspensions"] += 1
            if time.monotonic() - begun > 4 * HANGS:
                self.findings.append(f"{run_id} of {self.seed} does not end")
                return
            if suspended or self.dice.random() < 0.2:
                self._answer(run_id, path)
        self._check(run_id, plan, path)

    # -- processes ----------------------------------------------------------------------------------------------------

    def _player(self, run_id: str, plan: Plan, path: Path) -> Callable[[Callable[[bytes], None]], None]:
        def sync(send: Callable[[bytes], None]) -> None:
            with backtrail.open(self.url, **self.options) as store:
                play(store, run_id, plan, Ledger(path, send))

        async def awaiting(send: Callable[[bytes], None]) -> None:
            async with await backtrail.aio.open(self.url, **self.options) as store:
                await play_async(store, run_id, plan, Ledger(path, send))

        def work(send: Callable[[bytes], None]) -> None:
            try:
                if self.api == "sync":
                    sync(send)
                else:
                    asyncio.run(awaiting(send))
            except backtrail.Suspended:
                send(b"S")
            except backtrail.RunFinished:  # killed after its last commit
                send(b"F")
            else:
                send(b"F")

        return work

    def _kill(self, child: Child) -> bool:
        """Kill a process: after some events and a moment, or after a time; False if it was faster."""
        if self.dice.random() < 0.75:
            child.read(self.dice.choice((1, 1, 1, 2, 2, 3, 5, 8)))
            time.sleep(self.dice.uniform(0, 0.004))
        else:
            time.sleep(self.dice.uniform(0, 0.12))
        if child.ended():
            return False
        child.kill()
        return True

    def _ended(self, child: Child, what: str) -> bytes:
        """Wait for a process that nobody kills; the last byte it sent."""
        end = time.monotonic() + HANGS
        while not child.ended():
            if time.monotonic() > end:
                child.signal(signal.SIGKILL)
                self.findings.append(f"{what} hangs")
            time.sleep(0.001)
        status, sent = child.end()
        if status != 0:
            self.findings.append(f"{what}: a process ended with {status}; see its traceback above")
            return b"F"
        return sent[-1:]

    def _answer(self, run_id: str, path: Path) -> None:
        """Answer what waits, in a race of some processes."""
        racers = self.dice.choice((1, 1, 3))
        children = [Child(self._answerer(run_id, path, self.dice.randrange(1 << 30))) for _ in range(racers)]
        for child in children:
            if self.dice.random() < 0.2:
                time.sleep(self.dice.uniform(0, 0.02))
                self.counts["answerers killed"] += not child.ended()
                child.signal(signal.SIGKILL)
                child.end()
            else:
                self._ended(child, f"an answer to {run_id} of {self.seed}")

    def _answerer(self, run_id: str, path: Path, value: int) -> Callable[[Callable[[bytes], None]], None]:
        def work(send: Callable[[bytes], None]) -> None:
            ledger = Ledger(path)
            with backtrail.open(self.url, **self.options) as store:
                for pending in store.pending(prefix=run_id):
                    if pending.run_id != run_id:
                        continue
                    ledger.write("answering", pending.name, value)
                    try:
                        store.answer(run_id, pending.name, value, by=str(value), digest=pending.digest)
                    except backtrail.AlreadyAnswered:
                        continue
                    ledger.write("answered", pending.name, value)

        return work

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def _check(self, run_id: str, plan: Plan, path: Path) -> None:
        def read(send: Callable[[bytes], None]) -> None:
            with backtrail.open(self.url, **self.options) as store:
                outcome = store.run(run_id).outcome()
                send(msgspec.json.encode([outcome.status, outcome.result, len(store.pending(prefix=run_id))]))

        status, result, pending = msgspec.json.decode(run(read))
        ledger = Ledger(path)
        lines = ledger.lines()
        ledger.close()
        self.counts["effects"] += sum(line.event == "effect" for line in lines)
        self.counts["answers"] += sum(line.event == "answered" for line in lines)
        self.counts["repeated before they returned"] += _repeats(lines)
        found = findings(plan, lines, result)
        if status != "finished":
            found.append(f"its status is {status}")
        if pending:
            found.append(f"{pending} of its questions still wait")
        self.findings += [f"{run_id} of {self.seed}: {one}" for one in found]


def _repeats(lines: list[Any]) -> int:
    counts = Counter(line.id for line in lines if line.event == "effect")
    return sum(count - 1 for count in counts.values())


def _import_all() -> None:
    """Import what is imported when it is first used, so that each forked process need not do it again."""
    for module in ("sqlite", "jsonl", "redis", "postgres"):
        importlib.import_module(f"backtrail.engines.{module}")
    with backtrail.open("memory:") as store:
        with store.run("r") as one:
            one.step("s", int)
            one.sleep("a moment", 0.0)
        store.pending()

    async def asynchronous() -> None:
        async with await backtrail.aio.open("memory:") as store, store.run("r") as one:
            await one.step("s", int)

    asyncio.run(asynchronous())
