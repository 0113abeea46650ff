"""LangGraph: how many tasks run again, because their process was killed right after they had returned.

    .venv-adapters/bin/python -m bench.killed_tasks --rounds 12

A graph of 24 tasks, one after another, kills its process with SIGKILL when a task has returned its result to it, and
the next process, forked from one that has only imported the modules, resumes the graph. LangGraph saves the result of a
task in the background, so a saver has until then, and how far it gets depends on what else the machine does: rounds
alternate between LangGraph's own `SqliteSaver` and backtrail, both with synchronous = FULL, and the load is shown. In
the third kind, each task's work is a step of a durable run around the graph.

    .venv-adapters/bin/python -m bench.killed_tasks --trace

shows why: nobody is killed, and for each task the clock is read when its function returns, when the program has its
result, when LangGraph calls the saver, and when the saver has stored it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from statistics import mean, median, pstdev
from time import perf_counter
from typing import Any

from langgraph._internal._constants import RETURN
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError
from langgraph.func import entrypoint, task

import backtrail
from backtrail.adapters.langgraph import BacktrailSaver

TASKS = 24
STEPS = "backtrail, run.step"
KINDS = ("SqliteSaver", "backtrail", STEPS)


def make_saver(kind: str, path: Path, store: backtrail.Store) -> Any:
    if kind != "SqliteSaver":
        return BacktrailSaver(store)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return SqliteSaver(connection)


def live(kind: str, path: Path, log: Path) -> None:
    """One life of the process: it ends by SIGKILL, unless every task has run."""
    begun = log.exists()
    done = set(log.read_text().split()) if begun else set()

    def effect(n: int) -> int:
        with log.open("a") as file:
            file.write(f"{n}\n")
        return n

    store = backtrail.open(path if kind != "SqliteSaver" else "memory:")
    run = store.run("r")

    @task
    def work(n: int) -> int:
        return run.step("work", effect, n, key=n) if kind == STEPS else effect(n)

    @entrypoint(checkpointer=make_saver(kind, path, store))
    def flow(n: int) -> int:
        for i in range(n):
            work(i).result()
            if str(i) not in done:
                os.kill(os.getpid(), signal.SIGKILL)
        return n

    config: Any = {"configurable": {"thread_id": "t"}}
    with run if kind == STEPS else contextlib.nullcontext():
        invoke(flow, begun, config)


def invoke(flow: Any, begun: bool, config: Any) -> None:
    """Begin the graph, or go on with it."""
    try:
        flow.invoke(None if begun else TASKS, config)
    except EmptyInputError:  # the first checkpoint was lost, too
        flow.invoke(TASKS, config)


def one_life(kind: str, path: Path, log: Path) -> int:
    """The exit status of a forked process, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            live(kind, path, log)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tasks_run_again(kind: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        path, log = Path(directory, "s.db"), Path(directory, "log")
        while (status := one_life(kind, path, log)) != 0:
            if status != -signal.SIGKILL:
                raise SystemExit(f"{kind}: a life ended with {status}")
        runs = Counter(log.read_text().split())
    return sum(times > 1 for times in runs.values())


class Moments:
    """When each task returned, the program had its result, the saver was called, and the saver had stored it."""

    def __init__(self) -> None:
        self.returned, self.had, self.called, self.stored = (dict[int, float]() for _ in range(4))

    def of_saver(self, put_writes: Any) -> Any:
        """The method of a saver, with a look at the clock before and after it."""

        @functools.wraps(put_writes)  # LangGraph looks at its parameters
        def timed(config: Any, writes: Any, *args: Any, **named: Any) -> None:
            numbers = [value for channel, value in writes if channel == RETURN]
            now = perf_counter()
            put_writes(config, writes, *args, **named)
            for number in numbers:
                self.called[number], self.stored[number] = now, perf_counter()

        return timed


def trace(kind: str) -> Moments:
    """One run of the graph in which nobody is killed."""
    moments = Moments()
    with tempfile.TemporaryDirectory() as directory, backtrail.open(Path(directory, "s.db")) as store:
        saver = make_saver(kind, Path(directory, "graph.db"), store)
        saver.put_writes = moments.of_saver(saver.put_writes)

        @task
        def work(n: int) -> int:
            moments.returned[n] = perf_counter()
            return n

        @entrypoint(checkpointer=saver)
        def flow(n: int) -> int:
            for i in range(n):
                work(i).result()
                moments.had[i] = perf_counter()
            return n

        flow.invoke(TASKS, {"configurable": {"thread_id": "t"}})
    return moments


def show_trace(rounds: int) -> None:
    """Medians over all tasks, in microseconds after a task's function returned."""
    for kind in KINDS[:2]:
        seen = [trace(kind) for _ in range(rounds)]
        after = {
            what: median(getattr(one, what)[n] - one.returned[n] for one in seen for n in range(TASKS)) * 1e6
            for what in ("had", "called", "stored")
        }
        pairs = [(one.had[n], one.called[n], one.stored[n]) for one in seen for n in range(TASKS)]
        print(
            f"{kind}: after a task's function returned, the program had the result after {after['had']:,.0f} µs, the "
            f"saver was called after {after['called']:,.0f} µs and had stored it after {after['stored']:,.0f} µs; "
            f"of {len(pairs)} tasks the program had the result before the saver was called in "
            f"{sum(had < called for had, called, _ in pairs)}, and before it was stored in "
            f"{sum(had < stored for had, _, stored in pairs)}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.killed_tasks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--trace", action="store_true", help="kill nobody, and show when each thing happens")
    options = parser.parse_args()
    if options.trace:
        show_trace(options.rounds)
        return 0
    again: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
            again[kind].append(tasks_run_again(kind))
        print(
            f"{number + 1}:",
            *(f"{kind} {again[kind][-1]}" for kind in KINDS),
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    for kind, found in again.items():
        print(f"{kind}: {mean(found):.1f} of {TASKS} tasks ran again (standard deviation {pstdev(found):.1f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
