"""Bytes on disk by number of steps: all contenders save all steps, and are closed and measured at each mark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.contenders.backtrail import BacktrailAppend, BacktrailAppendZstd, BacktrailSave, BacktrailSaveZstd
from bench.contenders.floor import BareSqliteCommit, JsonFileRewrite, JsonLinesAppend
from bench.contenders.langgraph import LangGraphMemory, LangGraphSqlite, LangGraphSqliteDelta
from bench.contenders.openai_agents import OpenAIAgentsSession
from bench.measure import Contender, Lane, Outcome, Target, directory_bytes
from bench.run_context import RunContext
from bench.synthetic_messages import make_conversation

MARKS = 16


def growth(make: Callable[[], Contender], steps: int, directory: Path, *, rewritten: bool) -> dict[int, int]:
    """Bytes at each of `MARKS` marks, where the store is closed and opened again.

    If each save replaces the whole file (`rewritten`), only the last save before a mark is made.
    """
    lane = Lane(make(), make_conversation(steps))
    sizes: dict[int, int] = {}
    for mark in range(1, MARKS + 1):
        first, last = steps * (mark - 1) // MARKS + 1, steps * mark // MARKS
        lane.run(last if rewritten else first, last)
        lane.contender.close()
        sizes[last] = directory_bytes(directory)
        if mark < MARKS:
            lane.contender = make()
    return sizes


def run(context: RunContext) -> Outcome:
    conversation, steps = make_conversation(context.steps), context.steps
    messages = [message for new in conversation for message in new]
    usage = {"input_tokens": 731 * steps, "output_tokens": 412 * steps}
    unique = len(msgspec.msgpack.encode({"messages": messages, "iteration": steps, "usage": usage}))
    kinds: dict[str, Any] = {
        "floor": BareSqliteCommit,
        "backtrail": BacktrailSave,
        "backtrail zstd": BacktrailSaveZstd,
        "backtrail append": BacktrailAppend,
        "backtrail append zstd": BacktrailAppendZstd,
        "sqlite": LangGraphSqlite,
        "delta": LangGraphSqliteDelta,
        "session": OpenAIAgentsSession,
    }
    files: dict[str, Any] = {"json": JsonFileRewrite, "jsonl": JsonLinesAppend}
    sizes: dict[str, dict[int, int]] = {}
    names: dict[str, str] = {}
    with context.progress("bytes on disk", len(kinds) + len(files)) as bar:
        for key, kind in {**kinds, **files}.items():
            with context.scratch() as scratch:
                directory = scratch.new_directory()
                make = _maker(kind, directory, fixed=key in files)
                sizes[key] = growth(make, steps, directory, rewritten=kind is JsonFileRewrite)
                names[key] = kind.name
            bar.advance()
    names["memory"], sizes["memory"] = LangGraphMemory.name, _bytes_in_memory(context)
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
    """Bytes do not depend on durability, so contenders that have a choice take the faster one."""
    return lambda: kind(directory) if fixed else kind(directory, "normal")


def _bytes_in_memory(context: RunContext) -> dict[int, int]:
    """Bytes that InMemorySaver holds. Its blobs grow linearly with the steps, so one save per mark stands for all saves
    since the mark before."""
    sizes, total, before, previous = dict[int, int](), 0.0, 0, 0
    saver = LangGraphMemory()
    lane = Lane(saver, make_conversation(context.steps))
    for mark in range(1, MARKS + 1):
        step = context.steps * mark // MARKS
        lane.run(step, step)
        size = saver.held_bytes()
        total += (step - before) * (previous + size) / 2
        sizes[step], before, previous = int(total), step, size
        saver.close()
    return sizes
