"""An interrupt at any line of a save leaves all of it or nothing."""

from __future__ import annotations

import gc
import linecache
import sys
from typing import Any

import pytest

import backtrail

LONG = "a sentence that is long enough to be kept apart from the root; " * 8


class Interrupt:
    """Raises KeyboardInterrupt at one of the lines of backtrail that a call runs through: the n-th."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.fired = False

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/backtrail/" not in name:
            return None
        # Python itself never stops between a lock and the block that it guards.
        if event == "line" and not linecache.getline(name, frame.f_lineno).strip().startswith("with "):
            self.left -= 1
            if not self.left:
                self.fired = True
                raise KeyboardInterrupt
        return self


BASE: dict[str, Any] = {"log": ["x" * 50] * 10, "plan": LONG}


WAYS: dict[str, Any] = {
    "append": lambda thread: thread.append("log", ["new"]),
    "save": lambda thread: thread.save({**BASE, "log": [*BASE["log"], "new"]}),
    "first": lambda thread: thread.save(BASE),
    "rewind": lambda thread: thread.rewind(1),
    "delete": lambda thread: thread.delete(2),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_anywhere_leaves_nothing_half(way: str) -> None:
    number, fired = 0, True
    while fired:
        number += 1
        thread = backtrail.open("memory:").thread("t")
        if way != "first":
            thread.save(BASE)
        if way in ("rewind", "delete"):
            thread.append("log", ["second"])
        interrupt = Interrupt(number)
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            WAYS[way](thread)
        except KeyboardInterrupt:
            fired = interrupt.fired
        else:
            fired = False
        finally:
            sys.settrace(before)
        steps = len(thread.history(all=True))
        again = thread._core.context.engine
        fresh = backtrail.open(again).thread("t")
        if fresh.exists():
            assert len(fresh.load()["log"]) == 10 + fresh.step - 1
        assert fresh.append("log", ["after"]).step == fresh.step
        assert fresh.load()["log"][-1] == "after"
        assert len(fresh.history(all=True)) == steps + 1
        assert thread.append("log", ["and on"]).step == fresh.step
        assert backtrail.open(again).verify().ok
    gc.collect()  # coroutines that were never finished go now, while nobody minds
