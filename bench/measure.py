"""Times and what is made of them: jobs, contenders that take turns, series, quantiles, targets."""

from __future__ import annotations

import os
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bench.traffic import Message

State = dict[str, Any]


class Job(NamedTuple):
    """One save: what the caller has in its hands at that moment."""

    thread: str
    step: int
    state: State  #: the whole state, its new messages included
    new: list[Message]  #: what was added to `state["messages"]` since the save before


class Contender(ABC):
    """A store that can be given jobs. `times` may drive an event loop; the clock runs around single saves only."""

    name: str

    @abstractmethod
    def times(self, jobs: Iterable[Job]) -> list[float]:
        """Do the jobs one after the other; the seconds each took."""

    def close(self) -> None:  # noqa: B027 (some contenders hold nothing)
        """Release the files, as a program that ends does."""


class Blocking(Contender):
    """A contender with a blocking `save`."""

    def prepare(self, job: Job) -> Any:
        """What its caller would have ready before the save; not timed."""
        return job

    @abstractmethod
    def save(self, prepared: Any) -> None: ...

    def times(self, jobs: Iterable[Job]) -> list[float]:
        taken, prepare, save = [], self.prepare, self.save
        for job in jobs:
            prepared = prepare(job)
            start = perf_counter()
            save(prepared)
            taken.append(perf_counter() - start)
        return taken


@dataclass
class Lane:
    """A contender on its way through one conversation, with a list of messages that grows in place."""

    contender: Contender
    conversation: Sequence[list[Message]]
    sampled: bool = False  #: takes part only in every `SAMPLE`th chunk, because its cost grows with the square
    seconds: dict[int, float] = field(default_factory=dict)  #: step -> seconds
    _messages: list[Message] = field(default_factory=list)

    def run(self, first: int, last: int) -> None:
        """Save at steps first..last (counted from 1); steps left out before are in the state, but were not saved."""
        state: State = {"messages": self._messages, "iteration": 0, "usage": {"input_tokens": 0, "output_tokens": 0}}
        done = len(self._messages) // 2
        for new in self.conversation[done : first - 1]:
            self._messages.extend(new)

        def jobs() -> Iterable[Job]:
            for step in range(first, last + 1):
                new = self.conversation[step - 1]
                self._messages.extend(new)
                state["iteration"] = step
                state["usage"] = {"input_tokens": 731 * step, "output_tokens": 412 * step}
                yield Job("conversation", step, state, new)

        for step, seconds in zip(range(first, last + 1), self.contender.times(jobs()), strict=True):
            self.seconds[step] = seconds


CHUNK = 20
SAMPLE = 5


def race(lanes: Sequence[Lane], steps: int, tick: Callable[[int], None]) -> None:
    """Lead all lanes through `steps` steps, in turns of `CHUNK`; who goes first changes with every turn."""
    for turn, first in enumerate(range(1, steps + 1, CHUNK)):
        last = min(first + CHUNK - 1, steps)
        shift = turn % len(lanes)
        for lane in [*lanes[shift:], *lanes[:shift]]:
            if not lane.sampled or turn % SAMPLE == 0 or last == steps:
                lane.run(first, last)
        tick(last)


class Series(NamedTuple):
    """Save times of several rounds: the median of the rounds at each step, and all single times for the tails."""

    steps: list[int]
    medians: list[float]
    every: list[float]

    @classmethod
    def of(cls, rounds: Sequence[dict[int, float]]) -> Series:
        steps = sorted(rounds[0])
        medians = [statistics.median(r[step] for r in rounds) for step in steps]
        return cls(steps, medians, [seconds for r in rounds for seconds in r.values()])

    def tenth(self, which: int) -> float:
        """Median save time of one tenth of the way, 0 to 9."""
        top = self.steps[-1]
        low, high = top * which / 10, top * (which + 1) / 10
        return statistics.median(t for s, t in zip(self.steps, self.medians, strict=True) if low < s <= high)

    @property
    def median(self) -> float:
        return statistics.median(self.medians)

    @property
    def total(self) -> float:
        """Seconds for all steps; in a sampled series the mean of a gap's two ends stands for the steps left out."""
        total, before, previous = 0.0, 0, self.medians[0]
        for step, seconds in zip(self.steps, self.medians, strict=True):
            total += seconds + (step - before - 1) * (previous + seconds) / 2
            before, previous = step, seconds
        return total

    @property
    def p99(self) -> float:
        return quantile(self.every, 0.99)


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def best_of(call: Callable[[], object], times: int) -> float:
    """Median seconds of a call that changes nothing."""
    taken = []
    for _ in range(times):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return statistics.median(taken)


def bytes_under(directory: Path) -> int:
    """All that the files in a directory occupy, by length."""
    return sum(entry.stat().st_size for entry in directory.rglob("*") if entry.is_file())


def bytes_read() -> int:
    """Bytes this process has asked the kernel for so far, whether from the disk or from its cache."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def resident() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Target:
    """A promise: what was measured against what was asked for."""

    workload: str
    what: str
    measured: float
    limit: float
    at_least: bool = False
    unit: str = "x"
    note: str = ""

    @property
    def reached(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def asked(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:.4g} {self.unit}"

    @property
    def found(self) -> str:
        return f"{self.measured:.3g} {self.unit}"


@dataclass
class Outcome:
    """What a workload gives back: a table to read, promises, and the raw numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    targets: list[Target] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    note: str = ""
