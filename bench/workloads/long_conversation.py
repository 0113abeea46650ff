"""W1 and W1a: one thread, 1,600 steps of two messages. W1 passes the whole state, W1a only the new messages.

Each round has two heats. The flat heat has the contenders whose saves stay small. The steep heat has those that write
everything each time, and beside them backtrail with the same whole state. Of the steep ones only one chunk of steps in
five is saved, since their cost depends on the state alone. The heats are apart so that the gigabytes of one contender
do not wait in another's fsync.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.contenders.backtrail import BacktrailAppend, BacktrailAppendZstd, BacktrailSave, BacktrailSaveIdentity
from bench.contenders.floor import BareSqliteCommit, JsonFileRewrite, JsonLinesAppend, MsgspecEncode
from bench.contenders.langgraph import LangGraphAsyncSqlite, LangGraphMemory, LangGraphSqlite, LangGraphSqliteDelta
from bench.contenders.openai_agents import OpenAIAgentsSession
from bench.measure import Contender, Lane, Outcome, Series, Target, race
from bench.run_context import RunContext, Scratch
from bench.synthetic_messages import make_conversation

Maker = Callable[[Scratch], Contender]
Heat = list[tuple[str, bool, Maker]]  #: (key, sampled, maker) each


def _maker(kind: Any, durability: str) -> Maker:
    return lambda scratch: kind(scratch.new_directory(), durability)


def heats(durability: str) -> tuple[Heat, Heat]:
    """The flat and the steep heat."""
    on = partial(_maker, durability=durability)
    flat: Heat = [
        ("floor", False, on(BareSqliteCommit)),
        ("append", False, on(BacktrailAppend)),
        ("save", False, on(BacktrailSave)),
        ("encode", False, lambda _: MsgspecEncode()),
        ("delta", False, on(LangGraphSqliteDelta)),
        ("session", False, on(OpenAIAgentsSession)),
    ]
    steep: Heat = [("save beside", False, on(BacktrailSave)), ("sqlite", True, on(LangGraphSqlite))]
    if durability == "full":
        flat += [
            ("identity", False, on(BacktrailSaveIdentity)),
            ("append zstd", False, on(BacktrailAppendZstd)),
            ("jsonl", False, lambda scratch: JsonLinesAppend(scratch.new_directory())),
        ]
        steep += [
            ("async", True, on(LangGraphAsyncSqlite)),
            ("json", True, lambda scratch: JsonFileRewrite(scratch.new_directory())),
            ("memory", True, lambda _: LangGraphMemory()),
        ]
    return flat, steep


def series(context: RunContext, durability: str) -> tuple[dict[str, Series], dict[str, str]]:
    """All save times at one durability, and the contenders' names."""
    conversation = make_conversation(context.steps)
    rounds: dict[str, list[dict[int, float]]] = {}
    names: dict[str, str] = {}
    with context.progress(f"W1, W1a at {durability}", 2 * context.rounds * context.steps) as bar:
        for number in range(context.rounds):
            for which, heat in enumerate(heats(durability)):
                done = (2 * number + which) * context.steps
                with context.scratch() as scratch:
                    lanes = {key: Lane(make(scratch), conversation, sampled) for key, sampled, make in heat}
                    order = list(lanes.values())
                    race(order[number:] + order[:number], context.steps, bar.continued_from(done))
                    for key, lane in lanes.items():
                        rounds.setdefault(key, []).append(lane.seconds)
                        names[key] = lane.contender.name
                        lane.contender.close()
    return {key: Series.of(times) for key, times in rounds.items()}, names


def run(context: RunContext) -> Outcome:
    columns = ["contender", "sync", "first tenth ms", "last tenth ms", "p99 ms", "total s"]
    rows, targets, raw = [], list[Target](), dict[str, Any]()
    for durability in ("full", "normal"):
        found, names = series(context, durability)
        for key, times in found.items():
            sync = {"encode": "-", "memory": "-", "json": "fsync", "jsonl": "fsync"}.get(key, durability.upper())
            figures = (times.tenth(0) * 1e3, times.tenth(9) * 1e3, times.p99 * 1e3)
            rows.append([names[key], sync, *(f"{ms:.3f}" for ms in figures), f"{times.total:.2f}"])
        targets += make_targets(found, durability)
        raw[durability] = {
            key: {"name": names[key], "steps": times.steps, "seconds": times.medians, "p99": times.p99}
            for key, times in found.items()
        }
    note = f"{context.steps} steps of 2.3 KB; medians of {context.rounds} rounds; contenders take turns every 20 steps"
    return Outcome("W1 / W1a: one long conversation", columns, rows, targets, raw, note)


def make_targets(found: dict[str, Series], durability: str) -> list[Target]:
    floor, append, save, delta = found["floor"], found["append"], found["save"], found["delta"]
    level = durability.upper()
    against = 1.45 if durability == "full" else 4.0
    targets = [
        Target("W1a", f"append, last tenth against first tenth, {level}", append.tenth(9) / append.tenth(0), 1.15),
        Target("W1a", f"append against the floor, {level}", append.median / floor.median, against),
        Target("W1a", f"append, total against DeltaChannel, {level}", delta.total / append.total, 2, at_least=True),
    ]
    # Exactly one save in a hundred contains DeltaChannel's snapshot, so its p99 is the smallest snapshot; and on a busy
    # machine the tail of a bare commit comes near it. The note shows both beside the ratio.
    tails = (
        f"{who} {series.p99 * 1e3:.2f}" for who, series in (("append", append), ("Delta", delta), ("floor", floor))
    )
    p99 = delta.p99 / append.p99
    what = f"append, p99 against DeltaChannel, {level}"
    targets.append(Target("W1a", what, p99, 10, at_least=True, note="p99 in ms: " + ", ".join(tails)))
    allowed = 1.5 * floor.tenth(9) + 1.3 * found["encode"].tenth(9)
    note = f"allowed {allowed * 1e3:.3f} ms: 1.5 x floor + 1.3 x msgspec encode"
    what = f"save of the whole state, last tenth, {level}"
    targets.append(Target("W1", what, save.tenth(9) * 1e3, allowed * 1e3, unit="ms", note=note))
    faster = found["sqlite"].tenth(9) / found["save beside"].tenth(9)
    targets.append(Target("W1", f"the same against SqliteSaver, {level}", faster, 12, at_least=True))
    return targets
