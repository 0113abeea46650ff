"""W2, many threads: 2,000 threads x 10 steps of 3 KB, round robin, the whole state passed each time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from bench.contenders.backtrail import BacktrailSaveFreshHandle
from bench.contenders.floor import BareSqliteCommit
from bench.contenders.langgraph import LangGraphSqlite, LangGraphSqliteDelta, LangGraphSqlitePutOnly
from bench.measure import Contender, Job, Outcome, Target, directory_bytes, quantile
from bench.run_context import RunContext
from bench.synthetic_messages import Message, make_conversation

STEPS = 10
CONVERSATIONS = 16  #: different ones, shared by the threads; more would only take time to make


def jobs(conversations: list[list[list[Message]]], threads: range, step: int) -> Iterable[Job]:
    """One step of each of `threads`. The lists are fresh ones, as on a server that has just loaded them."""
    for number in threads:
        conversation = conversations[number % CONVERSATIONS]
        messages = [message for new in conversation[:step] for message in new]
        state = {
            "messages": messages,
            "iteration": step,
            "usage": {"input_tokens": 731 * step, "output_tokens": 412 * step},
        }
        yield Job(f"user-{number:05}", step, state, conversation[step - 1])


def run(context: RunContext) -> Outcome:
    threads, rounds = context.scaled(2000), max(1, context.rounds - 1)
    conversations = [make_conversation(STEPS, seed=100 + number, size=3000) for number in range(CONVERSATIONS)]
    kinds: list[Any] = [
        BareSqliteCommit,
        BacktrailSaveFreshHandle,
        LangGraphSqlite,
        LangGraphSqlitePutOnly,
        LangGraphSqliteDelta,
    ]
    rows, targets, raw = [], list[Target](), dict[str, Any]()
    with context.progress("W2: many threads", 2 * rounds * STEPS) as bar:
        for durability in ("full", "normal"):
            rates: dict[str, list[float]] = {}
            tails: dict[str, list[float]] = {}
            sizes: dict[str, int] = {}
            for number in range(rounds):
                with context.scratch() as scratch:
                    directories = {kind.name: scratch.new_directory() for kind in kinds}
                    lanes: list[Contender] = [kind(directories[kind.name], durability) for kind in kinds]
                    taken: dict[str, list[float]] = {lane.name: [] for lane in lanes}
                    block = max(1, threads // 20)
                    for step in range(1, STEPS + 1):
                        for turn, first in enumerate(range(0, threads, block)):
                            shift = (turn + number) % len(lanes)
                            for lane in [*lanes[shift:], *lanes[:shift]]:
                                part = range(first, min(first + block, threads))
                                taken[lane.name] += lane.times(jobs(conversations, part, step))
                        bar.advance()
                    for lane in lanes:
                        lane.close()
                        rates.setdefault(lane.name, []).append(len(taken[lane.name]) / sum(taken[lane.name]))
                        tails.setdefault(lane.name, []).append(quantile(taken[lane.name], 0.99))
                        sizes[lane.name] = directory_bytes(directories[lane.name])
            median = {name: statistics.median(values) for name, values in rates.items()}
            for name, rate in median.items():
                p99 = statistics.median(tails[name]) * 1e3
                rows.append([name, durability.upper(), f"{rate:,.0f}", f"{p99:.2f}", f"{sizes[name] / 1e6:,.1f}"])
            mine, floor = median[BacktrailSaveFreshHandle.name], median[BareSqliteCommit.name]
            note = f"the floor itself does {floor:,.0f}/s"
            for rival, who, limit in (LangGraphSqlite, "", 2), (LangGraphSqlitePutOnly, ", put alone", 1.3):
                what = f"saves/s against SqliteSaver{who}, {durability.upper()}"
                targets.append(Target("W2", what, mine / median[rival.name], limit, at_least=True, note=note))
            raw[durability] = {"saves_per_second": median, "p99": tails, "bytes": sizes}
    columns = ["contender", "sync", "saves/s", "p99 ms", "MB on disk"]
    note = f"{threads:,} threads x {STEPS} steps of 3 KB, round robin; {rounds} rounds"
    return Outcome("W2: many threads", columns, rows, targets, raw, note)
