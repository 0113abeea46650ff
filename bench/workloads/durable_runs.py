"""Durable runs: what a step costs beside an append, DBOS and LangGraph's `@task`; resuming; workers.

Steps are of 1 KB and on disk when they return. Each contender has a process of its own; they take turns of 20 steps.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import psycopg

import backtrail
from backtrail.testing.servers import PostgresServer, private_directory
from bench.contenders.durable_steps import NAMES
from bench.measure import CHUNK, Outcome, Target
from bench.run_context import RunContext

STEPS, PEER_STEPS = 10_000, 600
QUEUED, WORKERS = 2_000, 4
MAX_TO_APPEND, MAX_GROWTH, MIN_TO_DBOS, MAX_RESUME = 1.3, 1.3, 5.0, 1.5


def run(context: RunContext) -> Outcome:
    rows: list[list[str]] = []
    targets: list[Target] = []
    raw: dict[str, Any] = {}
    with private_directory() as directory:
        postgres = PostgresServer(directory / "postgres", "-c", "max_connections=200")
        postgres.start()
        try:
            _steps(context, postgres, rows, targets, raw)
            _resume(context, rows, targets, raw)
            _workers(context, postgres, rows, targets, raw)
        finally:
            postgres.kill()
    note = "steps of 1 KB at full durability"
    return Outcome("Durable runs", ["what", "contender", "value", "unit"], rows, targets, raw, note)


# -- steps -------------------------------------------------------------------------------------------------------------


class Lane:
    """A contender in its process."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.times = kind, list[float]()
        command = [sys.executable, "-m", "bench.contenders.durable_steps", kind, url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def go(self, steps: int) -> None:
        """Do some steps more."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("["):
            if not line:
                raise RuntimeError(f"the process of {self.kind} ended")
        self.times += json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def _steps(
    context: RunContext, postgres: PostgresServer, rows: list[list[str]], targets: list[Target], raw: dict[str, Any]
) -> None:
    peer, whole = context.scaled(PEER_STEPS), context.scaled(STEPS)
    with context.scratch() as scratch, contextlib.ExitStack() as stack:
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            admin.execute("CREATE DATABASE steps")
        lanes = {
            "append": Lane("append", str(scratch.new_directory() / "s.db")),
            "step": Lane("step", str(scratch.new_directory() / "s.db")),
            "dbos": Lane("dbos", f"sqlite:///{scratch.new_directory() / 'dbos.sqlite'}"),
            "task": Lane("task", str(scratch.new_directory() / "graph.db")),
            "append on PostgreSQL": Lane("append", f"{postgres.url}?schema=appends"),
            "step on PostgreSQL": Lane("step", f"{postgres.url}?schema=steps"),
            "dbos on PostgreSQL": Lane("dbos", _database(postgres.url, "steps")),
        }
        for lane in lanes.values():
            stack.callback(lane.close)
            lane.go(CHUNK)
            lane.times.clear()  # the first of them import, connect and plan
        with context.progress("durable steps", whole) as bar:
            for turn, first in enumerate(range(0, whole, CHUNK)):
                names = [name for name in lanes if first < peer or name in ("append", "step")]
                shift = turn % len(names)
                for name in [*names[shift:], *names[:shift]]:
                    lanes[name].go(CHUNK)
                bar.advance_to(min(first + CHUNK, whole))
        medians = {name: statistics.median(lane.times[:peer]) for name, lane in lanes.items()}
        for name, lane in lanes.items():
            rows.append(["a step of 1 KB", _title(name, lane), f"{medians[name] * 1e3:.3f}", "ms"])
        tenth = whole // 10
        step, append = lanes["step"].times, lanes["append"].times
        first, last = statistics.median(step[:tenth]), statistics.median(step[-tenth:])
        late = last / statistics.median(append[-tenth:])
        rows.append([f"the last tenth of {whole:,} steps", NAMES["step"], f"{last * 1e3:.3f}", "ms"])
        targets += [
            Target(
                "runs",
                "a step of 1 KB against an `append`",
                statistics.median(step) / statistics.median(append),
                MAX_TO_APPEND,
            ),
            Target("runs", f"the same, last tenth of {whole:,} steps", late, MAX_TO_APPEND),
            Target("runs", f"last tenth of {whole:,} steps against the first", last / first, MAX_GROWTH),
            Target(
                "runs",
                "a DBOS step against ours, SQLite",
                medians["dbos"] / medians["step"],
                MIN_TO_DBOS,
                at_least=True,
            ),
            Target(
                "runs",
                "a DBOS step against ours, PostgreSQL",
                medians["dbos on PostgreSQL"] / medians["step on PostgreSQL"],
                MIN_TO_DBOS,
                at_least=True,
            ),
        ]
        raw["steps"] = {name: {"median_ms": value * 1e3} for name, value in medians.items()}
        raw["steps"]["step"] |= {"first_tenth_ms": first * 1e3, "last_tenth_ms": last * 1e3}


def _title(name: str, lane: Lane) -> str:
    return f"{NAMES[lane.kind]}{', PostgreSQL' if name.endswith('PostgreSQL') else ', SQLite'}"


def _database(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    before, _, rest = url.partition("?")
    return f"{before.rsplit('/', 1)[0]}/{name}{'?' + rest if rest else ''}"


# -- resuming ----------------------------------------------------------------------------------------------------------


def _resume(context: RunContext, rows: list[list[str]], targets: list[Target], raw: dict[str, Any]) -> None:
    count = context.scaled(STEPS)
    with context.scratch() as scratch:
        path = scratch.new_directory() / "s.db"
        with (
            backtrail.open(path, durability="normal") as store,
            contextlib.suppress(KeyboardInterrupt),
            store.run("r") as run,
        ):
            for number in range(count):
                run.step("s", _kilobyte, number)
            raise KeyboardInterrupt  # the run stays as it is, to be resumed

        def load() -> None:
            with backtrail.open(path) as store:
                store.thread("r").load()

        def resume() -> None:
            with backtrail.open(path) as store, contextlib.suppress(KeyboardInterrupt), store.run("r"):
                raise KeyboardInterrupt

        taken = {"load": list[float](), "resume": list[float]()}
        for _ in range(3 * context.rounds):
            for name, call in (("load", load), ("resume", resume)):
                start = process_time()  # the pages are in the kernel's cache: what is left is the processor's
                call()
                taken[name].append(process_time() - start)
    loaded, resumed = (statistics.median(taken[name]) for name in ("load", "resume"))
    rows += [
        [f"{count:,} steps", "backtrail, load of the state", f"{loaded * 1e3:.1f}", "CPU ms"],
        [f"{count:,} steps", "backtrail, resume of the run", f"{resumed * 1e3:.1f}", "CPU ms"],
    ]
    targets.append(Target("runs", f"resume of {count:,} steps against a load", resumed / loaded, MAX_RESUME))
    raw["resume"] = {"load_ms": loaded * 1e3, "resume_ms": resumed * 1e3}


def _kilobyte(number: int) -> str:
    return f"{number:06d} " * 146


# -- workers -----------------------------------------------------------------------------------------------------------


def _workers(
    context: RunContext, postgres: PostgresServer, rows: list[list[str]], targets: list[Target], raw: dict[str, Any]
) -> None:
    count = context.scaled(QUEUED)
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE queue")
    urls = {"work": f"{postgres.url}?schema=work", "work-dbos": _database(postgres.url, "queue")}
    titles = {"work": "backtrail, `store.work`", "work-dbos": "DBOS, a queue"}
    twice, rates = {}, {}
    with context.scratch() as scratch:
        for kind, url in urls.items():
            log = scratch.new_directory() / "log"
            seconds = _queue(kind, url, log, count)
            done = Counter(log.read_text(encoding="ascii").split())
            twice[kind], rates[kind] = sum(done.values()) - len(done), count / seconds
            rows.append(
                [f"{count:,} runs, {WORKERS} processes, PostgreSQL", titles[kind], f"{rates[kind]:,.0f}", "runs/s"]
            )
    targets.append(Target("runs", f"{count:,} runs by {WORKERS} processes: done twice", twice["work"], 0, unit="runs"))
    raw["workers"] = {"runs_per_second": rates, "done_twice": twice}


def _queue(kind: str, url: str, log: Path, count: int) -> float:
    """Seconds from the start of all workers until the last run is done."""
    module = [sys.executable, "-m", "bench.contenders.run_queues"]
    if kind == "work-dbos":  # its tables are made by the first that begins
        with _processes([*module, kind, url, str(log)], 1) as (first,):
            _tell(first)
            _await(first, "launched")
    subprocess.run(
        [*module, kind.replace("work", "submit"), url, str(log), str(count)], check=True, stdout=subprocess.DEVNULL
    )
    with _processes([*module, kind, url, str(log)], WORKERS) as workers:
        start = perf_counter()
        for worker in workers:
            _tell(worker)
        while not log.exists() or len(set(log.read_text(encoding="ascii").split())) < count:
            if perf_counter() - start > 600:
                raise RuntimeError(f"{kind}: not all runs were done in ten minutes")
            time.sleep(0.01)
        return perf_counter() - start


@contextlib.contextmanager
def _processes(command: list[str], count: int) -> Iterator[list[subprocess.Popen[str]]]:
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(count)
    ]
    try:
        for worker in workers:
            _await(worker, "ready")
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _await(worker: subprocess.Popen[str], word: str) -> None:
    """Wait until a worker says this."""
    assert worker.stdout is not None
    while (line := worker.stdout.readline()).strip() != word:
        if not line:
            raise RuntimeError(f"{worker.args!r}: the worker ended")


def _tell(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()
