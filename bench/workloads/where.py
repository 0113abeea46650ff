"""Where the time of an append goes: backtrail's own Python, SQLite's statements, the wait for the disk.

The same append is timed whole, with the engine's share told apart, beside the floor; and once more on an engine that
keeps nothing, where what is left is backtrail's Python with everything in the processor's caches. After each wait for
the disk the same Python takes two or three times as long, because the caches have gone cold: that is no other code, and
it is most of what an append costs over the floor.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import backtrail
from backtrail.engines.base import Commit
from bench.measure import Job, Outcome
from bench.peers.floor import Floor
from bench.setting import Setting
from bench.traffic import Message, conversation


class Split:
    """One thread of a store, each append's time taken apart."""

    def __init__(self, store: backtrail.Store, first: list[Message], *, keeps: bool = True) -> None:
        self.store = store
        self.thread: Any = store.thread("where")
        self.thread.append("messages", first)
        self.whole: list[float] = []
        self.engine: list[float] = []
        self._keeps = keeps
        engine = store._context.engine  # there is no public way to look between the layers
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
        """Microseconds: whole, the engine's, all above it."""
        above = [whole - engine for whole, engine in zip(self.whole, self.engine, strict=True)]
        whole, engine, rest = (statistics.median(times) * 1e6 for times in (self.whole, self.engine, above))
        return whole, engine, rest


def run(setting: Setting) -> Outcome:
    talk = conversation(setting.steps)
    rows, raw = [], dict[str, Any]()
    with setting.bar("where the time goes", 2) as bar, setting.place() as scratch:
        for durability in ("full", "normal"):
            place: Path = scratch.new()
            floor = Floor(place, durability)
            with (
                backtrail.open(place / "backtrail.db", durability=durability) as store,
                backtrail.open("memory:") as nothing,
            ):
                disk, memory = Split(store, talk[0]), Split(nothing, talk[0], keeps=False)
                bare = []
                for number, new in enumerate(talk[1:], 2):
                    prepared = floor.prepare(Job("where", number, {}, new))
                    start = perf_counter()
                    floor.save(prepared)
                    bare.append(perf_counter() - start)
                    disk.append(new)
                for new in talk[1:]:
                    memory.append(new)
            floor.close()
            whole, engine, above = disk.parts()
            least, hot = statistics.median(bare) * 1e6, memory.parts()[2]
            raw[durability] = {"floor": least, "whole": whole, "engine": engine, "above": above, "hot": hot}
            figures = (least, whole, engine, above, hot)
            rows.append([durability.upper(), *(f"{value:.0f}" for value in figures), f"{whole / least:.2f}"])
            bar.tick()
    columns = ["sync", "floor µs", "append µs", "SQLite and disk", "backtrail's Python", "the same, warm", "x floor"]
    note = "medians; SQLite: head and row, two pages where the floor writes one; warm: on an engine that keeps nothing"
    return Outcome("Where the time of an append goes", columns, rows, [], raw, note)
