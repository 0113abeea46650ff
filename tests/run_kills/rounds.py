"""Rounds: a process plays a run, is killed at a random instant, and another one goes on, until the run has ended.

Everything that opens the store is a forked process. Between two of them the questions that wait are answered, by
several processes at once; some of these are killed too. In rounds of workers, several processes do all runs of a store
with `store.work`; each is killed and started again.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec

import backtrail
import backtrail.aio
from fix_children import Child, run
from run_kills import processes
from run_kills.ledger import Ledger, findings
from run_kills.plan import Plan, draw

Api = Literal["sync", "async"]
HANGS = 60.0  # seconds after which a process that was not killed hangs
MOST_KILLS = 12  # of one run
WORKERS = 2  # processes


class Rounds:
    """Runs on one store, over one API."""

    def __init__(self, url: str, options: dict[str, Any], api: Api, folder: Path, seed: str) -> None:
        self.url, self.options, self.api, self.folder, self.seed = url, options, api, folder, seed
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._processes = processes.Processes(url, options, folder)
        run(lambda _: backtrail.open(url, **options).close())  # a process that finds no store makes one

    def play(self, kills: int) -> None:
        """Play one run after the other until so many processes were killed."""
        while self.counts["kills"] < kills:
            self._run(self.counts["runs"])
            self.counts["runs"] += 1

    def _run(self, number: int) -> None:
        run_id = f"run-{number}"
        plan = draw(f"{self.seed} {number}")
        left = self.dice.randint(4, MOST_KILLS)
        begun = time.monotonic()
        while True:
            child = Child(self._processes.player(self.api, run_id, plan))
            suspended = False
            if left > 0 and self._kill(child):
                left -= 1
                self.counts["kills"] += 1
            elif self._ended(child, run_id) == processes.FINISHED:
                break
            else:
                suspended = True
                self.counts["suspensions"] += 1
            if time.monotonic() - begun > 4 * HANGS:
                self._found(run_id, "does not end")
                return
            if suspended or self.dice.random() < 0.2:
                self._answer(run_id)
        self._check(run_id, plan)

    def work(self, kills: int, *, elsewhere: bool = False) -> None:
        """Submit runs, and let workers do them, which are killed so often. `elsewhere`: a dead process is not known to
        be one, as if it were on another machine, so its runs are free when its leases end."""
        plans = {f"work-{n}": draw(f"{self.seed} work {n}") for n in range(2 + kills // 4)}
        run(self._processes.submitter(plans))
        workers = [self._worker(plans, elsewhere) for _ in range(WORKERS)]
        end = time.monotonic() + 8 * HANGS + kills
        while self.counts["workers killed"] < kills or run(self._processes.unfinished(plans)):
            if time.monotonic() > end:
                self._found(", ".join(plans), "do not all end")
                break
            time.sleep(self.dice.choice((0.0, 0.01, 0.05, 0.2)))
            if self.counts["workers killed"] < kills:
                number = self.dice.randrange(WORKERS)
                time.sleep(self.dice.choice((0.01, 0.05, 0.2)) * self.dice.random())
                if not workers[number].ended():
                    self.counts["workers killed"] += 1
                workers[number].kill()
                workers[number] = self._worker(plans, elsewhere)
            self._answer("work-")
        for worker in workers:
            worker.signal(signal.SIGTERM)
            self._ended(worker, "a worker that was told to stop")
        for run_id, plan in plans.items():
            self._check(run_id, plan)
        self.counts["runs of workers"] += len(plans)

    # -- processes ----------------------------------------------------------------------------------------------------

    def _worker(self, plans: dict[str, Plan], elsewhere: bool) -> Child:
        return Child(self._processes.worker(self.api, plans, elsewhere))

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
                self._found(what, "hangs")
            time.sleep(0.001)
        status, sent = child.end()
        if status != 0:
            self._found(what, f"a process ended with {status}; see its traceback above")
            return processes.FINISHED
        return sent[-1:]

    def _answer(self, prefix: str) -> None:
        """Answer what waits, in a race of some processes."""
        racers = self.dice.choice((1, 1, 3))
        children = [Child(self._processes.answerer(prefix, self.dice.randrange(1 << 30))) for _ in range(racers)]
        for child in children:
            if self.dice.random() < 0.2:
                time.sleep(self.dice.uniform(0, 0.02))
                self.counts["answerers killed"] += not child.ended()
                child.kill()
            else:
                self._ended(child, f"an answer to {prefix}")

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def _check(self, run_id: str, plan: Plan) -> None:
        status, result, pending = msgspec.json.decode(run(self._processes.reader(run_id)))
        ledger = Ledger(self._processes.ledger_path(run_id))
        lines = ledger.lines()
        ledger.close()
        self.counts["effects"] += sum(line.event == "effect" for line in lines)
        self.counts["answers"] += sum(line.event == "answered" for line in lines)
        effects = Counter(line.id for line in lines if line.event == "effect")
        self.counts["repeated before they returned"] += sum(count - 1 for count in effects.values())
        for one in findings(plan, lines, result):
            self._found(run_id, one)
        if status != "finished":
            self._found(run_id, f"its status is {status}")
        if pending:
            self._found(run_id, f"{pending} of its questions still wait")

    def _found(self, what: str, wrong: str) -> None:
        self.findings.append(f"{what} of {self.seed}: {wrong}")
