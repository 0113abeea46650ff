"""The log of what a run did to the world: one line for each effect, fsynced before the program goes on.

Several processes write to it, one after the other or at once, so the order of its lines is the order of the events.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from run_kills.plan import WIDTH, Act, Plan, value_of

Event = Literal["effect", "returned", "answered", "answering", "asked"]
UNCERTAIN = "uncertain"  #: what a program takes for the result of a step of which nobody can say if it was done


class Line(msgspec.Struct, frozen=True):
    """One event."""

    event: Event
    id: str
    value: Any
    pid: int
    at: float


class Ledger:
    """The log of one run."""

    def __init__(self, path: Path, told: Callable[[bytes], None] = lambda _: None) -> None:
        self.path = path
        self._told = told
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: Event, id: str, value: Any = None) -> None:
        """Write a line; it is on disk when this returns."""
        line = msgspec.json.encode(Line(event, id, value, os.getpid(), time.time()))
        os.write(self._file, b"\n" + line + b"\n")  # the first of them ends a line that a kill cut short
        os.fsync(self._file)
        self._told(b".")

    def lines(self) -> list[Line]:
        """All lines. One that was cut short does not count: its writer did not get as far as to rely on it."""
        found = []
        for line in self.path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=Line))
        return found

    def has(self, event: Event, id: str) -> bool:
        """True if there is such a line."""
        return any((line.event, line.id) == (event, id) for line in self.lines())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def findings(plan: Plan, lines: list[Line], result: Any) -> list[str]:
    """What is wrong with a run that has ended."""
    returned: dict[str, list[Any]] = defaultdict(list)
    answered: dict[str, Any] = {}
    attempted: dict[str, list[Any]] = defaultdict(list)
    effects: Counter[str] = Counter()
    asked: dict[str, float] = {}
    ended: dict[str, float] = {}
    wrong: list[str] = []
    for line in lines:
        if line.event == "effect":
            effects[line.id] += 1
            if line.id in returned:
                wrong.append(f"step {line.id} was done again after it had returned")
        elif line.event == "returned":
            returned[line.id].append(line.value)
            ended.setdefault(line.id, line.at)
        elif line.event == "answering":
            attempted[line.id].append(line.value)
        elif line.event == "answered":
            if line.id in answered:
                wrong.append(f"question {line.id} was answered twice")
            answered[line.id] = line.value
        else:
            asked.setdefault(line.id, line.at)
    for act in plan.acts:
        for id in ids_of(act):
            values = returned[id]
            if not values:
                wrong.append(f"{act.kind} {id} never returned")
                continue
            if any(value != values[0] for value in values):
                wrong.append(f"{act.kind} {id} returned different values: {values!r:.200}")
            wrong += [f"{act.kind} {id}: {problem}" for problem in _wrong_value(plan, act, id, values[0], attempted)]
            if act.kind == "ask" and id in answered and answered[id] != values[0]:
                wrong.append(f"question {id} was answered {answered[id]!r}, and {values[0]!r} was handed out")
            if act.kind in ("checked", "unchecked") and effects[id] > 1:
                wrong.append(f"at_most_once: {id} was done {effects[id]} times")
            if act.kind == "sleep" and ended[id] - asked[id] < act.seconds - 0.001:
                wrong.append(f"sleep {id} took {ended[id] - asked[id]:.4f} s of {act.seconds:.4f} s")
    expected = [returned[id][0] for act in plan.acts for id in ids_of(act) if returned[id]]
    if result != expected:
        wrong.append(f"the result of the run is {result!r:.200}, not {expected!r:.200}")
    return wrong


def ids_of(act: Act) -> list[str]:
    """The names of an act in the ledger."""
    return [f"{act.id}/{n}" for n in range(WIDTH)] if act.kind == "together" else [act.id]


def _wrong_value(plan: Plan, act: Act, id: str, value: Any, attempted: dict[str, list[Any]]) -> list[str]:
    if act.kind == "sleep":
        allowed: list[Any] = [None]
    elif act.kind == "ask":
        allowed = attempted[id]
    elif act.kind == "failing":
        allowed = [f"it broke: {id}"]
    else:
        allowed = [value_of(plan.seed, id)]
        if act.kind == "unchecked":
            allowed.append(UNCERTAIN)
    return [] if value in allowed else [f"{value!r:.100} is none of {allowed!r:.200}"]
