"""W3, concurrent writers: 8 threads, 8 asyncio tasks, 4 processes; each writer has a conversation of its own."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.contenders.backtrail import BacktrailAppend, BacktrailAsyncAppend
from bench.contenders.langgraph import LangGraphAsyncSqlite, LangGraphSqliteDelta
from bench.measure import Contender, Job, Outcome, Target, quantile
from bench.run_context import RunContext
from bench.synthetic_messages import Message, make_conversation

WRITERS = 8
PROCESSES = 4
WINDOW = 10  #: newest steps that a caller keeps in its state


def jobs(writer: int, count: int) -> list[Job]:
    """The saves of one writer. The state holds the last few steps, as that of an agent that trims its context."""
    conversation = make_conversation(min(count, 100), seed=200 + writer)
    made: list[Job] = []
    for step in range(1, count + 1):
        recent: list[Message] = []
        for past in range(max(0, step - WINDOW), step):
            recent += conversation[past % len(conversation)]
        new = conversation[(step - 1) % len(conversation)]
        made.append(Job(f"writer-{writer}", step, {"messages": recent, "iteration": step}, new))
    return made


def alone(contender: Contender, count: int) -> tuple[float, list[float]]:
    """One writer: saves per second, and the seconds of each save."""
    work = jobs(0, count)
    start = perf_counter()
    taken = contender.times(work)
    return count / (perf_counter() - start), taken


def in_threads(contender: Contender, count: int) -> tuple[float, list[float]]:
    """`WRITERS` threads on one open store."""
    work = [jobs(writer, count // WRITERS) for writer in range(WRITERS)]
    taken: list[list[float]] = [[] for _ in work]
    ready = threading.Barrier(WRITERS + 1)

    def write(number: int) -> None:
        ready.wait()
        taken[number] = contender.times(work[number])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = perf_counter()
    for thread in threads:
        thread.join()
    done = [seconds for each in taken for seconds in each]
    return len(done) / (perf_counter() - start), done


def in_tasks(contender: BacktrailAsyncAppend | LangGraphAsyncSqlite, count: int) -> tuple[float, list[float]]:
    """`WRITERS` tasks in one event loop."""
    work = [jobs(writer, count // WRITERS) for writer in range(WRITERS)]
    start = perf_counter()
    taken = contender.times_concurrent(work)
    done = [seconds for each in taken for seconds in each]
    return len(done) / (perf_counter() - start), done


def _process(kind: Any, directory: Path, number: int, count: int, pipe: Connection) -> None:
    """The program of a writing process: open the store, warm up, wait for the start, write, report."""
    contender = kind(directory, "full")
    work = jobs(number, count)
    contender.times(work[:5])
    pipe.send("ready")
    pipe.recv()
    start = perf_counter()
    taken = contender.times(work[5:])
    pipe.send((perf_counter() - start, taken))
    contender.close()


def in_processes(kind: Any, directory: Path, count: int) -> tuple[float, list[float]]:
    """`PROCESSES` processes on one file."""
    context = multiprocessing.get_context("spawn")
    kind(directory, "full").close()
    pipes, processes = [], []
    for number in range(PROCESSES):
        here, there = context.Pipe()
        process = context.Process(target=_process, args=(kind, directory, number, count // PROCESSES, there))
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    answers = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    done = [seconds for _, taken in answers for seconds in taken]
    return len(done) / max(seconds for seconds, _ in answers), done


Run = Callable[[Path], tuple[float, list[float]]]


def runs(count: int) -> dict[str, Run]:
    """All kinds of writers, under the names of the report."""

    def closing(kind: Any, how: Callable[[Any, int], tuple[float, list[float]]]) -> Run:
        def go(directory: Path) -> tuple[float, list[float]]:
            contender = kind(directory, "full")
            try:
                return how(contender, count)
            finally:
                contender.close()

        return go

    return {
        "backtrail, one writer": closing(BacktrailAppend, alone),
        "backtrail, 8 threads": closing(BacktrailAppend, in_threads),
        "backtrail, one task": closing(BacktrailAsyncAppend, alone),
        "backtrail, 8 tasks": closing(BacktrailAsyncAppend, in_tasks),
        "backtrail, 4 processes": lambda directory: in_processes(BacktrailAppend, directory, count),
        "DeltaChannel, one writer": closing(LangGraphSqliteDelta, alone),
        "DeltaChannel, 8 threads": closing(LangGraphSqliteDelta, in_threads),
        "AsyncSqliteSaver, 8 tasks": closing(LangGraphAsyncSqlite, in_tasks),
        "DeltaChannel, 4 processes": lambda directory: in_processes(LangGraphSqliteDelta, directory, count),
    }


def run(context: RunContext) -> Outcome:
    count, rounds = context.scaled(3200), context.rounds + 2
    rates: dict[str, list[float]] = {}
    medians: dict[str, list[float]] = {}
    tails: dict[str, list[float]] = {}
    table = runs(count)
    with context.progress("W3: writers at the same time", rounds * len(table)) as bar:
        for number in range(rounds):
            order = list(table)
            for name in order[number:] + order[:number]:
                with context.scratch() as scratch:
                    speed, taken = table[name](scratch.new_directory())
                rates.setdefault(name, []).append(speed)
                medians.setdefault(name, []).append(statistics.median(taken))
                tails.setdefault(name, []).append(quantile(taken, 0.99))
                bar.advance()
    rate = {name: statistics.median(values) for name, values in rates.items()}
    median = {name: statistics.median(values) for name, values in medians.items()}
    tail = {name: statistics.median(values) for name, values in tails.items()}
    rows = [[name, f"{rate[name]:,.0f}", f"{median[name] * 1e3:.3f}", f"{tail[name] * 1e3:.3f}"] for name in table]
    # The steady pace of one writer: a stall of a busy machine must not make it look slow, and eight writers fast.
    one = max(rate["backtrail, one writer"], 1 / median["backtrail, one writer"])
    note = f"one writer: {one:,.0f}/s"
    slow = tail["backtrail, 4 processes"] / median["backtrail, one writer"]
    targets = [
        Target(
            "W3",
            "8 threads against one writer, saves/s, FULL",
            rate["backtrail, 8 threads"] / one,
            1.6,
            True,
            note=note,
        ),
        Target(
            "W3", "8 tasks against one writer, saves/s, FULL", rate["backtrail, 8 tasks"] / one, 2.3, True, note=note
        ),
        Target("W3", "4 processes, p99 against one writer's median, FULL", slow, 8),
    ]
    raw = {name: {"per_second": rate[name], "median": median[name], "p99": tail[name]} for name in table}
    columns = ["writers", "saves/s", "median ms", "p99 ms"]
    note = f"{count} saves of 2.3 KB in all at synchronous=FULL, a thread per writer; {rounds} rounds"
    return Outcome("W3: writers at the same time", columns, rows, targets, raw, note)
