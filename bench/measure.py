"""How a run measures: jobs, contenders that take turns, series of times, quantiles, targets."""

from __future__ import annotations

import os
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bench.synthetic_messages import Message

State = dict[str, Any]


class Job(NamedTuple):
    """One save, with the data that its caller has at that moment."""

    thread: str
    step: int
    state: State  #: the whole state, its new messages included
    new: list[Message]  #: messages of `state` that the save before did not have


class Contender(ABC):
    """A store that does jobs. `times` may run an event loop; only the single saves in it are timed."""

    name: str

    @abstractmethod
    def times(self, jobs: Iterable[Job]) -> list[float]:
        """Do the jobs one after the other, and return the seconds that each took."""

    def close(self) -> None:  # noqa: B027 (some contenders hold nothing)
        """Close the files, as a program does at its end."""


class SyncContender(Contender):
    """A contender with a sync `save`."""

    def prepare(self, job: Job) -> Any:
        """The arguments of the save, which its caller would have ready; not timed."""
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
    """A contender in the middle of one conversation, with a list of messages that grows in place."""

    contender: Contender
    conversation: Sequence[list[Message]]
    sampled: bool = False  #: runs only every `SAMPLE`th chunk, because its total cost is quadratic
    seconds: dict[int, float] = field(default_factory=dict)  #: step -> seconds
    _messages: list[Message] = field(default_factory=list)

    def run(self, first: int, last: int) -> None:
        """Save at steps first..last (counted from 1). Earlier steps left out are in the state, but were not saved."""
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


def race(lanes: Sequence[Lane], steps: int, advance: Callable[[int], None]) -> None:
    """Run all lanes for `steps` steps, in turns of `CHUNK`; another lane begins each turn."""
    for turn, first in enumerate(range(1, steps + 1, CHUNK)):
        last = min(first + CHUNK - 1, steps)
        shift = turn % len(lanes)
        for lane in [*lanes[shift:], *lanes[:shift]]:
            if not lane.sampled or turn % SAMPLE == 0 or last == steps:
                lane.run(first, last)
        advance(last)


class Series(NamedTuple):
    """Save times of several rounds: at each step the median of the rounds, and all single times for the tails."""

    steps: list[int]
    medians: list[float]
    samples: list[float]

    @classmethod
    def of(cls, rounds: Sequence[dict[int, float]]) -> Series:
        steps = sorted(rounds[0])
        medians = [statistics.median(r[step] for r in rounds) for step in steps]
        return cls(steps, medians, [seconds for r in rounds for seconds in r.values()])

    def tenth(self, which: int) -> float:
        """Median save time of one tenth of the steps, 0 to 9."""
        top = self.steps[-1]
        low, high = top * which / 10, top * (which + 1) / 10
        return statistics.median(t for s, t in zip(self.steps, self.medians, strict=True) if low < s <= high)

    @property
    def median(self) -> float:
        return statistics.median(self.medians)

    @property
    def total(self) -> float:
        """Seconds for all steps. In a sampled series, steps left out count as the mean of the steps around the gap."""
        total, before, previous = 0.0, 0, self.medians[0]
        for step, seconds in zip(self.steps, self.medians, strict=True):
            total += seconds + (step - before - 1) * (previous + seconds) / 2
            before, previous = step, seconds
        return total

    @property
    def p99(self) -> float:
        return quantile(self.samples, 0.99)


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def median_seconds(call: Callable[[], object], times: int) -> float:
    """Median seconds of a call that can be repeated."""
    taken = []
    for _ in range(times):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return statistics.median(taken)


def directory_bytes(directory: Path) -> int:
    """The total length of the files in a directory."""
    return sum(entry.stat().st_size for entry in directory.rglob("*") if entry.is_file())


def process_bytes_read() -> int:
    """Bytes that this process has read so far, from the disk or from the kernel's cache."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Target:
    """A promised figure: the limit, and the measured value."""

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
    def ratio(self) -> str:
        """Measured against asked; what must not happen at all has no ratio."""
        return f"{self.measured / self.limit:.2f}" if self.limit else "-"

    @property
    def found(self) -> str:
        return f"{self.measured:.3g} {self.unit}"


@dataclass
class Outcome:
    """The result of a workload: a table, the targets, and the raw numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    targets: list[Target] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    note: str = ""
