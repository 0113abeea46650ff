"""A cold process: it opens a store and adds one step to a long thread. How much must it read for that?

Counted in bytes asked from the kernel between open and the acknowledged save, in a process of its own that has
imported everything and has warmed up on another store.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.measure import Job, Lane, Outcome, Target, bytes_read
from bench.peers.langgraph import Delta
from bench.setting import Setting
from bench.subject import Backtrail, BacktrailAppend
from bench.traffic import conversation

PAGE = 8192
FEW = 16
KINDS: dict[str, Any] = {"append": BacktrailAppend, "save": Backtrail, "delta": Delta}


def run(setting: Setting) -> Outcome:
    talk, found = conversation(setting.steps), dict[str, list[dict[str, float]]]()
    with setting.bar("cold append", 3 * setting.rounds) as bar, setting.place() as scratch:
        for key in KINDS:
            place = scratch.new()
            contender = KINDS[key](place, "normal")
            Lane(contender, talk).run(1, setting.steps)
            contender.close()
            for _ in range(setting.rounds):
                command = [sys.executable, "-m", "bench.workloads.cold", key, str(place), str(setting.steps)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found.setdefault(key, []).append(json.loads(answer))
                bar.tick()
    rows, raw = [], dict[str, Any]()
    names = {
        "append": "backtrail append",
        "save": "backtrail save of the whole state",
        "delta": f"{Delta.name}, load and put",
    }
    for key, answers in found.items():
        read = statistics.median(answer["bytes"] for answer in answers)
        seconds = statistics.median(answer["seconds"] for answer in answers)
        raw[key] = {"bytes": read, "seconds": seconds}
        rows.append([names[key], f"{read / 1024:,.0f}", f"{read / PAGE:,.1f}", f"{seconds * 1e3:.2f}"])
    pages = raw["append"]["bytes"] / PAGE
    targets = [Target("cold", "open and append to a long thread, 8 KB pages read", pages, FEW, unit="pages")]
    columns = ["contender", "KB read", "8 KB pages", "open + save ms"]
    note = f"a new process opens a thread of {setting.steps:,} steps and saves one more at FULL"
    return Outcome("Cold append", columns, rows, targets, raw, note)


def child(key: str, place: Path, steps: int) -> None:
    """In the new process: warm up elsewhere, then measure one open and one save."""
    talk = conversation(steps + 2, seed=7)
    with tempfile.TemporaryDirectory() as elsewhere:
        warm = KINDS[key](Path(elsewhere), "full")
        warm.times([Job("warm", 1, {"messages": list(talk[0])}, talk[0])])
        warm.close()
    messages = [message for new in talk[: steps + 1] for message in new]
    job = Job("conversation", steps + 1, {"messages": messages, "iteration": steps + 1}, talk[steps])
    before, start = bytes_read(), perf_counter()
    contender = KINDS[key](place, "full")
    if isinstance(contender, Delta):
        contender.load("conversation")  # its runtime needs the state before it can add to it
    contender.times([job])
    seconds, read = perf_counter() - start, bytes_read() - before
    contender.close()
    json.dump({"bytes": read, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
