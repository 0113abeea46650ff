"""W2: many threads: 2,000 x 10 steps of 3 KB, each thread visited in turn, the whole state handed over each time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from bench.measure import Contender, Job, Outcome, Target, bytes_under, quantile
from bench.peers.floor import Floor
from bench.peers.langgraph import Delta, Sqlite, SqlitePut
from bench.setting import Setting
from bench.subject import BacktrailVisitor
from bench.traffic import Message, conversation

STEPS = 10
VOICES = 16  #: different conversations; more would only cost time to make


def jobs(talks: list[list[list[Message]]], threads: range, step: int) -> Iterable[Job]:
    """One step of each of `threads`; the messages are fresh lists, as a server that loaded them would have."""
    for number in threads:
        talk = talks[number % VOICES]
        messages = [message for new in talk[:step] for message in new]
        state = {
            "messages": messages,
            "iteration": step,
            "usage": {"input_tokens": 731 * step, "output_tokens": 412 * step},
        }
        yield Job(f"user-{number:05}", step, state, talk[step - 1])


def run(setting: Setting) -> Outcome:
    threads, rounds = setting.scaled(2000), max(1, setting.rounds - 1)
    talks = [conversation(STEPS, seed=100 + voice, size=3000) for voice in range(VOICES)]
    kinds: list[Any] = [Floor, BacktrailVisitor, Sqlite, SqlitePut, Delta]
    rows, targets, raw = [], list[Target](), dict[str, Any]()
    with setting.bar("W2: many threads", 2 * rounds * STEPS) as bar:
        for durability in ("full", "normal"):
            rates: dict[str, list[float]] = {}
            tails: dict[str, list[float]] = {}
            sizes: dict[str, int] = {}
            for number in range(rounds):
                with setting.place() as scratch:
                    places = {kind.name: scratch.new() for kind in kinds}
                    lanes: list[Contender] = [kind(places[kind.name], durability) for kind in kinds]
                    taken: dict[str, list[float]] = {lane.name: [] for lane in lanes}
                    block = max(1, threads // 20)
                    for step in range(1, STEPS + 1):
                        for turn, first in enumerate(range(0, threads, block)):
                            shift = (turn + number) % len(lanes)
                            for lane in [*lanes[shift:], *lanes[:shift]]:
                                part = range(first, min(first + block, threads))
                                taken[lane.name] += lane.times(jobs(talks, part, step))
                        bar.tick()
                    for lane in lanes:
                        lane.close()
                        rates.setdefault(lane.name, []).append(len(taken[lane.name]) / sum(taken[lane.name]))
                        tails.setdefault(lane.name, []).append(quantile(taken[lane.name], 0.99))
                        sizes[lane.name] = bytes_under(places[lane.name])
            median = {name: statistics.median(values) for name, values in rates.items()}
            for name, rate in median.items():
                p99 = statistics.median(tails[name]) * 1e3
                rows.append([name, durability.upper(), f"{rate:,.0f}", f"{p99:.2f}", f"{sizes[name] / 1e6:,.1f}"])
            ratio = median[BacktrailVisitor.name] / median[Sqlite.name]
            mine, floor = median[BacktrailVisitor.name], median[Floor.name]
            note = f"{mine / median[SqlitePut.name]:.2f} x put alone; the floor itself does {floor:,.0f}/s"
            what = f"saves/s against SqliteSaver, {durability.upper()}"
            targets.append(Target("W2", what, ratio, 2, at_least=True, note=note))
            raw[durability] = {"saves_per_second": median, "p99": tails, "bytes": sizes}
    columns = ["contender", "sync", "saves/s", "p99 ms", "MB on disk"]
    note = f"{threads:,} threads x {STEPS} steps of 3 KB, round robin; {rounds} rounds"
    return Outcome("W2: many threads", columns, rows, targets, raw, note)
