"""Bytes on disk against steps: every step saved by everyone, files measured after a clean close at each mark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import Contender, Lane, Outcome, Target, bytes_under
from bench.peers.floor import Floor, JsonFile, JsonLines
from bench.peers.langgraph import Delta, Memory, Sqlite
from bench.peers.openai_agents import Session
from bench.setting import Setting
from bench.subject import Backtrail, BacktrailAppend, BacktrailAppendZstd, BacktrailZstd
from bench.traffic import conversation

MARKS = 16


def growth(make: Callable[[], Contender], steps: int, directory: Path, *, rewritten: bool) -> dict[int, int]:
    """Bytes at each of `MARKS` marks. The store is closed and opened again at every mark. Of a file that is `rewritten`
    whole only the last save before a mark is left, so it is the only one made."""
    lane = Lane(make(), conversation(steps))
    sizes: dict[int, int] = {}
    for mark in range(1, MARKS + 1):
        first, last = steps * (mark - 1) // MARKS + 1, steps * mark // MARKS
        lane.run(last if rewritten else first, last)
        lane.contender.close()
        sizes[last] = bytes_under(directory)
        if mark < MARKS:
            lane.contender = make()
    return sizes


def run(setting: Setting) -> Outcome:
    talk, steps = conversation(setting.steps), setting.steps
    messages = [message for new in talk for message in new]
    usage = {"input_tokens": 731 * steps, "output_tokens": 412 * steps}
    unique = len(msgspec.msgpack.encode({"messages": messages, "iteration": steps, "usage": usage}))
    kinds: dict[str, Any] = {
        "floor": Floor, "backtrail": Backtrail, "backtrail zstd": BacktrailZstd, "backtrail append": BacktrailAppend,
        "backtrail append zstd": BacktrailAppendZstd, "sqlite": Sqlite, "delta": Delta, "session": Session,
    }  # fmt: skip
    files: dict[str, Any] = {"json": JsonFile, "jsonl": JsonLines}
    sizes: dict[str, dict[int, int]] = {}
    names: dict[str, str] = {}
    with setting.bar("bytes on disk", len(kinds) + len(files)) as bar:
        for key, kind in {**kinds, **files}.items():
            with setting.place() as scratch:
                directory = scratch.new()
                make = _maker(kind, directory, fixed=key in files)
                sizes[key] = growth(make, steps, directory, rewritten=kind is JsonFile)
                names[key] = kind.name
            bar.tick()
    names["memory"], sizes["memory"] = Memory.name, _held(setting)
    last = {key: marks[steps] for key, marks in sizes.items()}
    rows = [
        [names[key], f"{size / 1e6:,.2f}", f"{size / unique:,.2f} x", f"{size / last['backtrail']:,.1f} x"]
        for key, size in sorted(last.items(), key=lambda item: item[1])
    ]
    targets = [
        Target("W1", "bytes on disk against unique bytes", last["backtrail"] / unique, 1.3),
        Target("W1", "the same, compression=zstd", last["backtrail zstd"] / unique, 0.55),
        Target(
            "W1a",
            "append, bytes on disk against DeltaChannel",
            last["delta"] / last["backtrail append"],
            8,
            at_least=True,
        ),
    ]
    columns = ["contender", "MB", "against unique bytes", "against backtrail"]
    note = f"{unique / 1e6:.2f} MB of unique encoded state after {steps} steps; files after a clean close"
    raw = {"unique": unique, "names": names, "bytes": sizes}
    return Outcome("Bytes on disk", columns, rows, targets, raw, note)


def _maker(kind: Any, directory: Path, *, fixed: bool) -> Callable[[], Contender]:
    """Bytes do not depend on durability, so those that have a choice take the faster one here."""
    return lambda: kind(directory) if fixed else kind(directory, "normal")


def _held(setting: Setting) -> dict[int, int]:
    """What InMemorySaver holds. A blob's length grows by the same bytes as the state, so the sum is exact enough when
    one save per mark stands for all saves up to it."""
    sizes, total, before, previous = dict[int, int](), 0.0, 0, 0
    saver = Memory()
    lane = Lane(saver, conversation(setting.steps))
    for mark in range(1, MARKS + 1):
        step = setting.steps * mark // MARKS
        lane.run(step, step)
        size = saver.held()
        total += (step - before) * (previous + size) / 2
        sizes[step], before, previous = int(total), step, size
        saver.close()
    return sizes
