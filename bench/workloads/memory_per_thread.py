"""Memory of a process that saves once to each of 10,000 threads: bytes per thread, and their growth."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.contenders.backtrail import BacktrailSaveFreshHandle
from bench.contenders.langgraph import LangGraphSqlite
from bench.measure import Job, Outcome, Target, resident_bytes
from bench.run_context import RunContext
from bench.synthetic_messages import make_conversation

KINDS: dict[str, Any] = {"backtrail": BacktrailSaveFreshHandle, "sqlite": LangGraphSqlite}
MARKS = 10
MAX_GROWTH = 2.0  #: MB that the second half of the threads may add: noise of the allocator, not an unbounded cache


def run(context: RunContext) -> Outcome:
    threads = 10_000
    rows, raw = [], dict[str, Any]()
    with context.progress("memory", len(KINDS)) as bar, context.scratch() as scratch:
        for key, kind in KINDS.items():
            directory = str(scratch.new_directory())
            command = [sys.executable, "-m", "bench.workloads.memory_per_thread", key, directory, str(threads)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            marks: dict[str, int] = json.loads(answer)
            sizes = list(marks.values())
            half, last = sizes[MARKS // 2] - sizes[0], sizes[-1] - sizes[0]
            raw[key] = {"marks": marks, "second_half": last - half}
            per = f"{last / threads:,.0f}"
            rows.append([kind.name, f"{half / 1e6:.2f}", f"{last / 1e6:.2f}", f"{(last - half) / 1e6:.2f}", per])
            bar.advance()
    grown = raw["backtrail"]["second_half"] / 1e6
    targets = [Target("memory", "growth from thread 5,000 to thread 10,000", grown, MAX_GROWTH, unit="MB")]
    columns = ["contender", "MB after 5,000", "MB after 10,000", "added by the second half", "bytes a thread"]
    note = "resident memory above an open, warm store; a save of 3 KB per thread, handles dropped by the caller"
    return Outcome("Memory: 10,000 threads touched once", columns, rows, targets, raw, note)


def child(key: str, directory: Path, threads: int) -> None:
    """The measured process: save to each thread, and read the resident memory at each mark."""
    conversation = make_conversation(16, seed=5, size=3000)
    contender = KINDS[key](directory, "normal")

    def touch(number: int) -> None:
        new = conversation[number % len(conversation)]
        contender.times([Job(f"thread-{number}", 1, {"messages": list(new), "iteration": 1}, new)])
        getattr(contender, "threads", {}).clear()

    for number in range(-300, 0):
        touch(number)
    gc.collect()
    marks = {"0": resident_bytes()}
    for number in range(threads):
        touch(number)
        if (number + 1) % (threads // MARKS) == 0:
            gc.collect()
            marks[str(number + 1)] = resident_bytes()
    contender.close()
    json.dump(marks, sys.stdout)


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
