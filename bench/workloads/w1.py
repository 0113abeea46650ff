"""W1 and W1a: one thread, 1,600 steps of two messages; the whole state handed over, and only the new messages.

Two heats per round. In the flat heat run those whose saves stay small; in the steep heat those that write everything
each time (of their steps one chunk in five, the state built up without saving in between: what a save costs them
depends on the state alone) beside backtrail with the same whole state. Gigabytes of the one do not wait in the other's
fsync.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.measure import Contender, Lane, Outcome, Series, Target, race
from bench.peers.floor import Encoding, Floor, JsonFile, JsonLines
from bench.peers.langgraph import AsyncSqlite, Delta, Memory, Sqlite
from bench.peers.openai_agents import Session
from bench.setting import Bar, Scratch, Setting
from bench.subject import Backtrail, BacktrailAppend, BacktrailAppendZstd, BacktrailIdentity
from bench.traffic import conversation

Maker = Callable[[Scratch], Contender]
#: durability -> heat -> (key, sampled, maker)
Heat = list[tuple[str, bool, Maker]]


def _on(kind: Any, durability: str) -> Maker:
    return lambda scratch: kind(scratch.new(), durability)


def heats(durability: str) -> tuple[Heat, Heat]:
    on = partial(_on, durability=durability)
    flat: Heat = [
        ("floor", False, on(Floor)),
        ("append", False, on(BacktrailAppend)),
        ("save", False, on(Backtrail)),
        ("encode", False, lambda _: Encoding()),
        ("delta", False, on(Delta)),
        ("session", False, on(Session)),
    ]
    steep: Heat = [("save beside", False, on(Backtrail)), ("sqlite", True, on(Sqlite))]
    if durability == "full":
        flat += [
            ("identity", False, on(BacktrailIdentity)),
            ("append zstd", False, on(BacktrailAppendZstd)),
            ("jsonl", False, lambda scratch: JsonLines(scratch.new())),
        ]
        steep += [
            ("async", True, on(AsyncSqlite)),
            ("json", True, lambda scratch: JsonFile(scratch.new())),
            ("memory", True, lambda _: Memory()),
        ]
    return flat, steep


def _advance(bar: Bar, before: int, step: int) -> None:
    bar.to(before + step)


def series(setting: Setting, durability: str) -> tuple[dict[str, Series], dict[str, str]]:
    """All save times at one durability, and what each contender calls itself."""
    talk = conversation(setting.steps)
    rounds: dict[str, list[dict[int, float]]] = {}
    names: dict[str, str] = {}
    with setting.bar(f"W1, W1a at {durability}", 2 * setting.rounds * setting.steps) as bar:
        for number in range(setting.rounds):
            for which, heat in enumerate(heats(durability)):
                done = (2 * number + which) * setting.steps
                with setting.place() as scratch:
                    lanes = {key: Lane(make(scratch), talk, sampled) for key, sampled, make in heat}
                    order = list(lanes.values())
                    race(order[number:] + order[:number], setting.steps, partial(_advance, bar, done))
                    for key, lane in lanes.items():
                        rounds.setdefault(key, []).append(lane.seconds)
                        names[key] = lane.contender.name
                        lane.contender.close()
    return {key: Series.of(times) for key, times in rounds.items()}, names


def run(setting: Setting) -> Outcome:
    columns = ["contender", "sync", "first tenth ms", "last tenth ms", "p99 ms", "total s"]
    rows, targets, raw = [], list[Target](), dict[str, Any]()
    for durability in ("full", "normal"):
        found, names = series(setting, durability)
        for key, times in found.items():
            sync = {"encode": "-", "memory": "-", "json": "fsync", "jsonl": "fsync"}.get(key, durability.upper())
            figures = (times.tenth(0) * 1e3, times.tenth(9) * 1e3, times.p99 * 1e3)
            rows.append([names[key], sync, *(f"{ms:.3f}" for ms in figures), f"{times.total:.2f}"])
        targets += promises(found, durability)
        raw[durability] = {
            key: {"name": names[key], "steps": times.steps, "seconds": times.medians, "p99": times.p99}
            for key, times in found.items()
        }
    note = f"{setting.steps} steps of 2.3 KB; medians of {setting.rounds} rounds; contenders take turns every 20 steps"
    return Outcome("W1 / W1a: one long conversation", columns, rows, targets, raw, note)


def promises(found: dict[str, Series], durability: str) -> list[Target]:
    floor, append, save, delta = found["floor"], found["append"], found["save"], found["delta"]
    level = durability.upper()
    against = 1.5 if durability == "full" else 5.0
    made = [
        Target("W1a", f"append, last tenth against first tenth, {level}", append.tenth(9) / append.tenth(0), 1.15),
        Target("W1a", f"append against the floor, {level}", append.median / floor.median, against),
        Target("W1a", f"append, total against DeltaChannel, {level}", delta.total / append.total, 2, at_least=True),
    ]
    # Exactly one save in a hundred carries DeltaChannel's snapshot, so its p99 is the lightest of them; and on a busy
    # machine the tail of a bare commit grows up to it. Both are told beside the ratio.
    tails = (
        f"{who} {series.p99 * 1e3:.2f}" for who, series in (("append", append), ("Delta", delta), ("floor", floor))
    )
    p99 = delta.p99 / append.p99
    what = f"append, p99 against DeltaChannel, {level}"
    made.append(Target("W1a", what, p99, 10, at_least=True, note="p99 in ms: " + ", ".join(tails)))
    allowed = 1.5 * floor.tenth(9) + 1.3 * found["encode"].tenth(9)
    note = f"allowed {allowed * 1e3:.3f} ms: 1.5 x floor + 1.3 x msgspec encode"
    what = f"save of the whole state, last tenth, {level}"
    made.append(Target("W1", what, save.tenth(9) * 1e3, allowed * 1e3, unit="ms", note=note))
    faster = found["sqlite"].tenth(9) / found["save beside"].tenth(9)
    made.append(Target("W1", f"the same against SqliteSaver, {level}", faster, 12, at_least=True))
    return made
