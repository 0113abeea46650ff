"""The clock and the dice of the simulated world, in the place of the system's for as long as a plan is played.

`time.time()` in a process is the simulated time plus the error of that process's clock; on a server, of which no
process is the caller, it is exact.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backtrail.history import checkpoint_ids, records

from .loop import PROCESS, SimulatedLoop

START = 1_800_000_000  #: the seconds since 1970 at which every simulated world begins


@contextmanager
def simulated(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """Let everything that asks for the time or for random bytes ask the simulation."""
    dice = random.Random(seed)

    def nanoseconds() -> int:
        process = PROCESS.get()
        error = 0.0 if process is None else process.clock_error
        return int((START + loop.now + error) * 1_000_000) * 1000

    def seconds() -> float:
        return nanoseconds() / 1e9

    ids = checkpoint_ids._tails  # drawn ahead, from the system's dice
    drawn, ids[:] = list(ids), []
    collecting = gc.isenabled()
    gc.disable()  # a collection at a random moment would end tasks of dead processes there
    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", seconds),
        (time, "time_ns", nanoseconds),
        (time, "monotonic", loop.time),
        (records, "clock", nanoseconds),
        (os, "urandom", dice.randbytes),
        (sys, "unraisablehook", _ignore),  # of coroutines that never came to their end
        (logging, "raiseExceptions", False),
    ]
    before = [getattr(room, name) for room, name, _ in replaced]
    random_state = random.getstate()
    for room, name, value in replaced:
        setattr(room, name, value)
    random.seed(seed)
    try:
        yield
    finally:
        for (room, name, _), value in zip(replaced, before, strict=True):
            setattr(room, name, value)
        random.setstate(random_state)
        ids[:] = drawn
        if collecting:
            gc.enable()


def _ignore(_: object) -> None:
    """Nothing to report."""
