"""The time of an append, broken down: backtrail's own Python, SQLite's statements, the wait for the disk.

An append is timed as a whole and inside the engine, beside the floor. A second store has an engine that keeps nothing:
what remains is backtrail's Python with warm processor caches. After each wait for the disk the caches are cold, and the
same code takes two or three times as long; that is most of the difference between an append and the floor.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import backtrail
from backtrail.engines.base import Commit
from bench.contenders.floor import BareSqliteCommit
from bench.measure import Job, Outcome
from bench.run_context import RunContext
from bench.synthetic_messages import Message, make_conversation


class TimedAppends:
    """Appends to one thread of a store, each timed as a whole and inside the engine."""

    def __init__(self, store: backtrail.Store, first: list[Message], *, keeps: bool = True) -> None:
        self.store = store
        self.thread: Any = store.thread("where")
        self.thread.append("messages", first)
        self.whole: list[float] = []
        self.engine: list[float] = []
        self._keeps = keeps
        engine = store._core.context.engine  # there is no public way to look between the layers
        self._commit, engine.commit = engine.commit, self._timed  # type: ignore[method-assign]

    async def _timed(self, commit: Commit) -> None:
        start = perf_counter()
        if self._keeps:
            await self._commit(commit)
        self.engine.append(perf_counter() - start)

    def append(self, new: list[Message]) -> None:
        start = perf_counter()
        self.thread.append("messages", new)
        self.whole.append(perf_counter() - start)

    def parts(self) -> tuple[float, float, float]:
        """Median microseconds of an append: as a whole, inside the engine, above the engine."""
        above = [whole - engine for whole, engine in zip(self.whole, self.engine, strict=True)]
        whole, engine, rest = (statistics.median(times) * 1e6 for times in (self.whole, self.engine, above))
        return whole, engine, rest


def run(context: RunContext) -> Outcome:
    conversation = make_conversation(context.steps)
    rows, raw = [], dict[str, Any]()
    with context.progress("where the time goes", 2) as bar, context.scratch() as scratch:
        for durability in ("full", "normal"):
            directory: Path = scratch.new_directory()
            floor = BareSqliteCommit(directory, durability)
            with (
                backtrail.open(directory / "backtrail.db", durability=durability) as store,
                backtrail.open("memory:") as nothing,
            ):
                disk, memory = TimedAppends(store, conversation[0]), TimedAppends(nothing, conversation[0], keeps=False)
                bare = []
                for number, new in enumerate(conversation[1:], 2):
                    prepared = floor.prepare(Job("where", number, {}, new))
                    start = perf_counter()
                    floor.save(prepared)
                    bare.append(perf_counter() - start)
                    disk.append(new)
                for new in conversation[1:]:
                    memory.append(new)
            floor.close()
            whole, engine, above = disk.parts()
            least, hot = statistics.median(bare) * 1e6, memory.parts()[2]
            raw[durability] = {"floor": least, "whole": whole, "engine": engine, "above": above, "hot": hot}
            figures = (least, whole, engine, above, hot)
            rows.append([durability.upper(), *(f"{value:.0f}" for value in figures), f"{whole / least:.2f}"])
            bar.advance()
    columns = ["sync", "floor µs", "append µs", "SQLite and disk", "backtrail's Python", "the same, warm", "x floor"]
    note = "medians; SQLite: head and row, two pages where the floor writes one; warm: on an engine that keeps nothing"
    return Outcome("Where the time of an append goes", columns, rows, [], raw, note)
