"""Plans: what the processes do, and what goes wrong. Made from a seed, and nothing but data.

Everything in a plan has a moment of its own, so that leaving something out moves nothing else: that is what makes a
failing plan small. A fault happens at a time, or at one of the calls that a process makes after that time, because the
interesting moments are between two calls of one operation.
"""

from __future__ import annotations

import math
import random
from typing import Any, Literal

import msgspec

SIDES = ("primary", "replica")
THREADS = ("apple", "pear")
FORKS = ("apple2", "pear2")

OperationKind = Literal[
    "append", "save", "update", "annotate", "rewind", "undo", "fork", "delete", "delete_at", "prune", "catch_up",
    "reopen", "read",
]  # fmt: skip
FaultKind = Literal["cut", "down", "crash", "stop", "clock", "request", "answer", "late", "twice", "slow"]

#: How often each operation is drawn.
_OPERATIONS: dict[OperationKind, int] = {
    "append": 34, "save": 8, "update": 8, "annotate": 12, "rewind": 5, "undo": 4, "fork": 6, "delete": 6,
    "delete_at": 6, "prune": 3, "catch_up": 3, "reopen": 3, "read": 2,
}  # fmt: skip
_FAULTS: dict[FaultKind, int] = {
    "cut": 40, "down": 12, "crash": 12, "stop": 8, "clock": 4, "request": 4, "answer": 12, "late": 8, "twice": 4,
    "slow": 8,
}  # fmt: skip


class Operation(msgspec.Struct, frozen=True):
    """Something that one process asks of its store."""

    name: str  #: "o1", "o2", …
    process: int
    lane: int  #: operations of one lane follow each other; a process may have two lanes
    at: float  #: seconds after the beginning
    kind: OperationKind
    thread: str
    pick: float = 0.0  #: which of the checkpoints that were acknowledged, from 0 (the oldest) to 1 (the newest)
    to: str = ""  #: the name of a fork
    keep: int = 1  #: of a prune
    repeats: int = 0  #: how often a save is repeated with its id while the store is unavailable


class Fault(msgspec.Struct, frozen=True):
    """Something that goes wrong."""

    name: str  #: "f1", "f2", …
    process: int
    at: float
    kind: FaultKind
    call: int = 0  #: at this call of the process after `at`; 0: at that time
    side: str = "primary"
    lasting: float = 1.0  #: seconds
    how: str = "refused"  #: of a cut: "refused" at once, "silent" until a timeout, or only the "answers" are lost
    after: bool = False  #: a crash: the call at which it happens is still sent; a clock: it jumps forward

    @property
    def jump(self) -> float:
        """The seconds by which a clock jumps."""
        return self.lasting * (100 if self.after else -100)


class Plan(msgspec.Struct, frozen=True):
    """Everything that a run depends on."""

    seed: int
    processes: int
    replication: Literal["sync", "async"]
    spool: bool
    shared_spool: bool  #: one for all processes, as if they were on one machine
    options: dict[str, Any]  #: of the mirror
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    healed: float  #: when all faults are over
    linger: float  #: seconds that pass between the last comparison and the end
    noise: int  #: the seed of delays in the network
    patient: bool = True  #: faults last, and the world lingers, although nobody has anything left to do
    calm: bool = False  #: the network is always equally fast

    @property
    def patience(self) -> float:
        """The seconds for which faults last after the last operation: a switch, a comparison and a failback fit in."""
        return math.inf if self.patient else 1.0 + min(self.options["failback_after"], 4.0)

    def names(self) -> list[str]:
        return [one.name for one in (*self.operations, *self.faults)]

    def only(self, names: set[str]) -> Plan:
        """The same plan with these operations and faults only."""
        return msgspec.structs.replace(
            self,
            operations=tuple(one for one in self.operations if one.name in names),
            faults=tuple(one for one in self.faults if one.name in names),
        )


def make_plan(seed: int, *, replication: str | None = None, spool: bool | None = None) -> Plan:
    """The plan of a seed; with this kind of replication, and with or without spools, if that is said."""
    dice = random.Random(seed)
    chosen = dice.choice(("sync", "sync", "async"))
    spools, shared = dice.random() < 0.3, dice.random() < 0.3
    mode: Any = replication or chosen
    processes = dice.choice((2, 2, 2, 3, 3, 4))
    span = dice.choice((0.2, 2.0, 6.0, 15.0))
    operations = tuple(_operations(dice, processes, span))
    faults = tuple(_faults(dice, processes, span, operations))
    options: dict[str, Any] = {
        "health_every": dice.choice((1.0, 5.0, 30.0)),
        "failback_after": dice.choice((0.5, 3.0, 20.0)),
        "max_failovers": dice.choice((1000, 1000, 1000, 2)),
        "failover_window": 60.0,
    }
    if dice.random() < 0.2:
        options["max_pending"] = 2
    healed = max([span, *(one.at + one.lasting for one in faults if one.kind in ("cut", "down", "stop"))]) + 1.0
    linger, patient = dice.choice((0.0, 0.0, 2.0, 45.0)), dice.random() < 0.05
    if not patient:
        options["health_every"] = max(5.0, options["health_every"])  # checks of sides that are well find nothing
    return Plan(
        seed=seed,
        processes=processes,
        replication=mode,
        spool=spools if spool is None else spool,
        shared_spool=shared,
        options=options,
        operations=operations,
        faults=faults,
        healed=healed,
        linger=linger,
        noise=seed,
        patient=patient,
    )


def _operations(dice: random.Random, processes: int, span: float) -> list[Operation]:
    count = dice.choice((5, 8, 12, 16, 22))
    lanes = dice.choice((1, 1, 1, 2))
    threads = THREADS[: dice.choice((1, 1, 2))]
    # Operations gather at a few moments, so that processes are at the same thread at the same time.
    moments = sorted(dice.uniform(0.0, span) for _ in range(max(2, count // 3)))
    kinds, weights = [*_OPERATIONS], [*_OPERATIONS.values()]
    found = []
    for number in range(count):
        kind = dice.choices(kinds, weights)[0] if number > 1 else "append"
        at = dice.choice(moments) + dice.expovariate(50.0) if number else 0.0
        thread = dice.choice(threads)
        if dice.random() < 0.15:
            thread = FORKS[THREADS.index(thread)]
        found.append(
            Operation(
                name=f"o{number}",
                process=dice.randrange(processes),
                lane=dice.randrange(lanes),
                at=round(at, 3),
                kind=kind,
                thread=thread,
                pick=dice.choice((1.0, 1.0, round(dice.random(), 2))),
                to=FORKS[THREADS.index(thread)] if thread in THREADS else f"{thread}b",
                keep=dice.choice((1, 2, 3)),
                repeats=dice.choice((0, 0, 6)) if kind in ("append", "save", "update") else 0,
            )
        )
    return sorted(found, key=lambda one: one.at)


def _faults(dice: random.Random, processes: int, span: float, operations: tuple[Operation, ...]) -> list[Fault]:
    found: list[Fault] = []
    kinds, weights = [*_FAULTS], [*_FAULTS.values()]
    for number in range(dice.choice((0, 1, 2, 2, 3, 3, 4, 6))):
        near = dice.choice(operations)
        at_call = dice.random() < 0.6
        kind = dice.choices(kinds, weights)[0]
        if kind in ("request", "answer", "late", "twice", "slow"):
            at_call = True
        found.append(
            Fault(
                name=f"f{number}",
                process=near.process if at_call else dice.randrange(processes),
                at=near.at if at_call else round(dice.uniform(0.0, span), 3),
                kind=kind,
                call=dice.choice((1, 2, 3, 4, 6, 8, 12, 20, 30)) if at_call else 0,
                side=dice.choice(SIDES),
                lasting=round(dice.choice((0.05, 0.5, 3.0, span, 2 * span)) * dice.uniform(0.5, 1.5), 3),
                how=dice.choice(("refused", "refused", "silent", "answers")),
                after=dice.random() < 0.5,
            )
        )
    return found
