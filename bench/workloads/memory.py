"""Memory: 10,000 threads touched once in one process. What is held per thread, and does it stop growing?"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.measure import Job, Outcome, Target, resident
from bench.peers.langgraph import Sqlite
from bench.setting import Setting
from bench.subject import BacktrailVisitor
from bench.traffic import conversation

KINDS: dict[str, Any] = {"backtrail": BacktrailVisitor, "sqlite": Sqlite}
MARKS = 10
BOUND = 2.0  #: MB that the second half of the threads may add: noise of the allocator, not a cache without end


def run(setting: Setting) -> Outcome:
    threads = 10_000
    rows, raw = [], dict[str, Any]()
    with setting.bar("memory", len(KINDS)) as bar, setting.place() as scratch:
        for key, kind in KINDS.items():
            command = [sys.executable, "-m", "bench.workloads.memory", key, str(scratch.new()), str(threads)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            marks: dict[str, int] = json.loads(answer)
            sizes = list(marks.values())
            half, last = sizes[MARKS // 2] - sizes[0], sizes[-1] - sizes[0]
            raw[key] = {"marks": marks, "second_half": last - half}
            per = f"{last / threads:,.0f}"
            rows.append([kind.name, f"{half / 1e6:.2f}", f"{last / 1e6:.2f}", f"{(last - half) / 1e6:.2f}", per])
            bar.tick()
    grown = raw["backtrail"]["second_half"] / 1e6
    targets = [Target("memory", "growth from thread 5,000 to thread 10,000", grown, BOUND, unit="MB")]
    columns = ["contender", "MB after 5,000", "MB after 10,000", "added by the second half", "bytes a thread"]
    note = "resident memory above an open, warm store; a save of 3 KB per thread, handles dropped by the caller"
    return Outcome("Memory: 10,000 threads touched once", columns, rows, targets, raw, note)


def child(key: str, place: Path, threads: int) -> None:
    """In a process of its own: touch the threads, note the resident memory at each mark."""
    talk = conversation(16, seed=5, size=3000)
    contender = KINDS[key](place, "normal")

    def touch(number: int) -> None:
        new = talk[number % len(talk)]
        contender.times([Job(f"thread-{number}", 1, {"messages": list(new), "iteration": 1}, new)])
        getattr(contender, "threads", {}).clear()

    for number in range(-300, 0):
        touch(number)
    gc.collect()
    marks = {"0": resident()}
    for number in range(threads):
        touch(number)
        if (number + 1) % (threads // MARKS) == 0:
            gc.collect()
            marks[str(number + 1)] = resident()
    contender.close()
    json.dump(marks, sys.stdout)


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
