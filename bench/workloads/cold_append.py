"""The bytes that a new process reads to add one step to a long thread.

They are counted from opening the store to the acknowledged save, in a process of its own that has imported everything
and has warmed up on another store.
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

from bench.contenders.backtrail import BacktrailAppend, BacktrailSave
from bench.contenders.langgraph import LangGraphSqliteDelta
from bench.measure import Job, Lane, Outcome, Target, process_bytes_read
from bench.run_context import RunContext
from bench.synthetic_messages import make_conversation

PAGE = 8192
MAX_PAGES = 16
MAX_MS = 40
KINDS: dict[str, Any] = {"append": BacktrailAppend, "save": BacktrailSave, "delta": LangGraphSqliteDelta}


def run(context: RunContext) -> Outcome:
    conversation, found = make_conversation(context.steps), dict[str, list[dict[str, float]]]()
    with context.progress("cold append", 3 * context.rounds) as bar, context.scratch() as scratch:
        for key in KINDS:
            directory = scratch.new_directory()
            contender = KINDS[key](directory, "normal")
            Lane(contender, conversation).run(1, context.steps)
            contender.close()
            for _ in range(context.rounds):
                command = [sys.executable, "-m", "bench.workloads.cold_append", key, str(directory), str(context.steps)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found.setdefault(key, []).append(json.loads(answer))
                bar.advance()
    rows, raw = [], dict[str, Any]()
    names = {
        "append": "backtrail append",
        "save": "backtrail save of the whole state",
        "delta": f"{LangGraphSqliteDelta.name}, load and put",
    }
    for key, answers in found.items():
        read = statistics.median(answer["bytes"] for answer in answers)
        seconds = statistics.median(answer["seconds"] for answer in answers)
        raw[key] = {"bytes": read, "seconds": seconds}
        rows.append([names[key], f"{read / 1024:,.0f}", f"{read / PAGE:,.1f}", f"{seconds * 1e3:.2f}"])
    pages = raw["append"]["bytes"] / PAGE
    targets = [
        Target("cold", "open and append to a long thread, 8 KB pages read", pages, MAX_PAGES, unit="pages"),
        Target("cold", "open and save a whole state", raw["save"]["seconds"] * 1e3, MAX_MS, unit="ms"),
    ]
    columns = ["contender", "KB read", "8 KB pages", "open + save ms"]
    note = f"a new process opens a thread of {context.steps:,} steps and saves one more at FULL"
    return Outcome("Cold append", columns, rows, targets, raw, note)


def child(key: str, directory: Path, steps: int) -> None:
    """The new process: warm up on another store, then measure one open and one save."""
    conversation = make_conversation(steps + 2, seed=7)
    with tempfile.TemporaryDirectory() as other_directory:
        warm = KINDS[key](Path(other_directory), "full")
        warm.times([Job("warm", 1, {"messages": list(conversation[0])}, conversation[0])])
        warm.close()
    messages = [message for new in conversation[: steps + 1] for message in new]
    job = Job("conversation", steps + 1, {"messages": messages, "iteration": steps + 1}, conversation[steps])
    before, start = process_bytes_read(), perf_counter()
    contender = KINDS[key](directory, "full")
    if isinstance(contender, LangGraphSqliteDelta):
        contender.load("conversation")  # LangGraph's runtime needs the state before it can add to it
    contender.times([job])
    seconds, read = perf_counter() - start, process_bytes_read() - before
    contender.close()
    json.dump({"bytes": read, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
