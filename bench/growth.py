"""How time and bytes grow with the number of steps of a thread, and of threads in a store.

    make bench-growth [ARGS="--only steps:append threads:sqlite"]

Every contender saves every step, from the first to the 300,000th, and creates every thread, up to 1,000,000, at
durability NORMAL. At each mark it is closed, its files are measured, and it is opened again. A contender's line ends
early where it has taken `SECONDS` in all, or where its files have `BYTES`.

This takes a quarter of an hour, so it is not part of `make bench`. The figures are kept in bench/growth.json, each with
its date; docs/bench.svg and the table of docs/performance.md are made from it. A run of some contenders replaces
theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

import backtrail.aio
from bench import page
from bench.contenders.backtrail import BacktrailAppend, BacktrailSave
from bench.contenders.floor import BareSqliteCommit
from bench.contenders.langgraph import LangGraphSqlite, LangGraphSqliteDelta
from bench.contenders.openai_agents import OpenAIAgentsSession
from bench.machine import machine
from bench.measure import Contender, Job, Lane, directory_bytes, median_seconds
from bench.run_context import RunContext, Scratch
from bench.summary import dumps, rounded
from bench.synthetic_messages import Message, make_conversation

KEPT = Path(__file__).with_suffix(".json")
STEPS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
THREADS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
SIZE = 600  #: bytes of a step, its two messages encoded
SECONDS = {"steps": 180, "threads": 600}
BYTES = 2 * 10**9
NEWEST = 20  #: messages, checkpoints or threads of a page
GROUP = 100  #: saves whose mean is taken, so that what a contender does at every hundredth counts
TIMED = 10 * GROUP  #: saves before a mark; the median of their groups is taken, so that a slow moment does not count
LABELLED = 5  #: the step that is looked for by its label
AT_ONCE = 500  #: new threads that share a commit while a store is filled

Reads = dict[str, Callable[[Any], object]]


@dataclass
class Curve:
    """The figures of one contender at each mark: milliseconds or bytes."""

    of: str  #: "steps" or "threads": what n counts
    what: str  #: "save", "read" or "bytes"
    key: str
    time: str = ""  #: when it was measured
    n: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    ended: str = ""  #: why it ends before the last mark

    def add(self, n: int, value: float) -> None:
        self.n.append(n)
        self.values.append(value)


# -- a thread of n steps -----------------------------------------------------------------------------------------------


class LabelledAppend(BacktrailAppend):
    """backtrail's append, with one label near the beginning."""

    def save(self, prepared: Any) -> None:
        thread, job = prepared
        thread.append("messages", job.new, label="early" if job.step == LABELLED else None)


def _thread(contender: BacktrailAppend) -> Any:
    return contender.store.thread("conversation")


#: Contender and reads. Who cannot read the newest messages alone reads the whole state.
OF_STEPS: dict[str, tuple[Callable[..., Contender], Reads]] = {
    "append": (
        LabelledAppend,
        {
            "append": lambda contender: _thread(contender).tail("messages", NEWEST),
            "history": lambda contender: _thread(contender).history(limit=NEWEST),
            "label": lambda contender: _thread(contender).find(label="early"),
        },
    ),
    "save": (BacktrailSave, {}),
    "sqlite": (LangGraphSqlite, {"sqlite": lambda contender: contender.load("conversation")["messages"][-NEWEST:]}),
    "delta": (LangGraphSqliteDelta, {"delta": lambda contender: contender.load("conversation")["messages"][-NEWEST:]}),
    "session": (OpenAIAgentsSession, {"session": lambda contender: contender.time_read("conversation", NEWEST)}),
    "floor": (BareSqliteCommit, {}),
}


class StepsLane:
    """One conversation that gets longer."""

    at_once = 250  #: steps between two looks at the clock

    def __init__(self, make: Callable[[], Contender], steps: int) -> None:
        some = make_conversation(64, size=SIZE)
        self._make = make
        self._lane = Lane(make(), [some[number % len(some)] for number in range(steps)])

    @property
    def contender(self) -> Contender:
        return self._lane.contender

    def grow(self, n: int, more: int) -> list[float]:
        """Add `more` to the `n` that are there; the seconds of each."""
        self._lane.run(n + 1, n + more)
        taken = list(self._lane.seconds.values())
        self._lane.seconds.clear()
        return taken

    def reopen(self) -> None:
        self._lane.contender.close()
        self._lane.contender = self._make()


# -- a store of n threads ----------------------------------------------------------------------------------------------


class BacktrailThreads(BacktrailAppend):
    """backtrail's append, always to a new thread."""

    def __init__(self, directory: Path, durability: str = "full") -> None:
        super().__init__(directory, durability)
        self._path = directory / "backtrail.db"

    def prepare(self, job: Job) -> Any:
        return self.store.thread(job.thread), job

    def fill(self, jobs: Iterator[Job]) -> None:
        """The same for many, which share commits."""

        async def gather() -> None:
            async with await backtrail.aio.open(str(self._path), durability="normal", compression=None) as store:
                while some := list(islice(jobs, AT_ONCE)):
                    await asyncio.gather(*(store.thread(job.thread).append("messages", job.new) for job in some))

        asyncio.run(gather())


class SqliteSaverThreads(LangGraphSqlite):
    """SqliteSaver; what its caller would remember of each thread is forgotten."""

    def times(self, jobs: Iterable[Job]) -> list[float]:
        taken = super().times(jobs)
        self.threads.clear()
        return taken


OF_THREADS: dict[str, tuple[Callable[..., Contender], Reads]] = {
    "append": (
        BacktrailThreads,
        {
            "append": lambda contender: contender.store.threads(newest_first=True, limit=NEWEST),
            "count": lambda contender: contender.store.count(),
        },
    ),
    "sqlite": (SqliteSaverThreads, {"sqlite": lambda contender: list(contender.saver.list(None, limit=NEWEST))}),
    "floor": (BareSqliteCommit, {}),
}


class ThreadsLane:
    """One store that gets more and more threads, each of one step."""

    at_once = 10_000  #: threads between two looks at the clock

    def __init__(self, make: Callable[[], Contender], threads: int) -> None:  # noqa: ARG002 (as StepsLane)
        self._make, self.contender = make, make()
        self._new = make_conversation(64, size=SIZE)

    def _jobs(self, numbers: range) -> Iterator[Job]:
        for number in numbers:
            new: list[Message] = self._new[number % len(self._new)]
            yield Job(f"user-{number:07}", 1, {"messages": new, "iteration": 1}, new)

    def grow(self, n: int, more: int) -> list[float]:
        """Add `more` to the `n` that are there; the seconds of each, or of the last ones."""
        timed = more
        if isinstance(self.contender, BacktrailThreads) and more > GROUP:
            timed = GROUP
            self.contender.fill(self._jobs(range(n, n + more - timed)))
        return self.contender.times(self._jobs(range(n + more - timed, n + more)))

    def reopen(self) -> None:
        self.contender.close()
        self.contender = self._make()


# -- a run -------------------------------------------------------------------------------------------------------------


def measure(of: str, key: str, scratch: Scratch, marks: tuple[int, ...]) -> list[Curve]:
    """Grow one contender from mark to mark, until the last one or a limit."""
    kind, reads = (OF_STEPS if of == "steps" else OF_THREADS)[key]
    directory = scratch.new_directory()
    lane = (StepsLane if of == "steps" else ThreadsLane)(partial(kind, directory, "normal"), marks[-1])
    save, size, *read = (Curve(of, what, name) for what, name in _names(key, reads))
    start, n, ended = monotonic(), 0, ""
    for mark in marks:
        taken: list[float] = []
        while n < mark and not ended:
            more = min(lane.at_once, mark - n)
            taken = [*taken, *lane.grow(n, more)][-TIMED:]
            n += more
            if monotonic() - start > SECONDS[of]:
                ended = f"{SECONDS[of] // 60} minutes"
            elif directory_bytes(directory) > BYTES:
                ended = f"{BYTES / 1e9:.0f} GB"
        if n >= STEPS[0]:  # the first ones create tables
            save.add(n, _steady(taken) * 1e3)
        lane.reopen()
        size.add(n, directory_bytes(directory))
        for curve in read:
            curve.add(n, median_seconds(partial(reads[curve.key], lane.contender), 25) * 1e3)
        if ended:
            break
    lane.contender.close()
    curves = [save, size, *read]
    for curve in curves:
        curve.ended = ended if curve.n[-1] < marks[-1] else ""
    return curves


def _steady(taken: list[float]) -> float:
    """The median of the means of groups, counted from the end."""
    groups = [taken[max(end - GROUP, 0) : end] for end in range(len(taken), 0, -GROUP)]
    return statistics.median(statistics.mean(group) for group in groups if len(group) == len(groups[0]))


def _names(key: str, reads: Reads) -> Iterator[tuple[str, str]]:
    yield "save", key
    yield "bytes", key
    for name in reads:
        yield "read", name


def main() -> int:
    names = [f"{of}:{key}" for of, kinds in (("steps", OF_STEPS), ("threads", OF_THREADS)) for key in kinds]
    parser = argparse.ArgumentParser(prog="bench.growth", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some contenders only")
    parser.add_argument("--most", type=int, help="no mark above this; nothing is kept")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"curves": []}
    curves = {(one["of"], one["what"], one["key"]): one for one in kept["curves"]}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=KEPT.parent) as root:
        context = RunContext(Path(root), console=console)
        for name in options.only:
            of, _, key = name.partition(":")
            marks = tuple(m for m in (STEPS if of == "steps" else THREADS) if m <= (options.most or m))
            start = monotonic()
            with context.scratch() as scratch:
                found = measure(of, key, scratch, marks)
            console.print(f"{name}: {monotonic() - start:.0f} seconds")
            about = machine(load)
            for curve in found:
                curve.time = about["time"]
                console.print(f"  {curve.what} {curve.key}", dict(zip(curve.n, rounded(curve.values), strict=True)))
                curves[curve.of, curve.what, curve.key] = rounded(vars(curve))
    if options.most is None:
        panels, contenders = list(page.NAMES), list(page.CONTENDERS)
        order = sorted(curves, key=lambda one: (panels.index(one[:2]), contenders.index(one[2])))
        KEPT.write_text(dumps({"machine": about, "curves": [curves[one] for one in order]}) + "\n", encoding="utf-8")
        from bench.publish import publish  # matplotlib is slow to import and only needed here

        publish()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
