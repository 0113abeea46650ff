"""The command line: the time of `backtrail --help` and `backtrail log`, beside a Python that does nothing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from time import perf_counter
from typing import Any

import backtrail
from bench.measure import Outcome, Target
from bench.run_context import RunContext
from bench.synthetic_messages import make_conversation

LIMIT = 250  # milliseconds
ROUNDS = 5  # of all commands, for each round of the run


def run(context: RunContext) -> Outcome:
    python = [sys.executable, "-m", "backtrail.cli"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "backtrail --help": [*python, "--help"],
        "backtrail log": [*python, "log", "conversation", "--limit", "20"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    with context.progress("command line", ROUNDS * context.rounds) as bar, context.scratch() as scratch:
        directory = scratch.new_directory()
        with backtrail.open(directory / "backtrail.db") as store:
            thread = store.thread("conversation")
            for new in make_conversation(200):
                thread.append("messages", new)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BACKTRAIL_")}
        for _ in range(ROUNDS * context.rounds):
            for name, command in commands.items():
                start = perf_counter()
                subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
                taken[name].append((perf_counter() - start) * 1e3)
            bar.advance()
    medians = {name: statistics.median(times) for name, times in taken.items()}
    floor = medians["python -c pass"]
    rows = [[name, f"{value:.0f}", f"{value / floor:.1f}"] for name, value in medians.items()]
    promised = ("backtrail --help", "backtrail log")
    targets = [Target("command", f"{name}, ms", medians[name], LIMIT, unit="ms") for name in promised]
    raw: dict[str, Any] = {"milliseconds": medians}
    note = "from the start of the process to its end; the thread has 200 steps, 20 are shown"
    return Outcome("Command line", ["command", "ms", "x python -c pass"], rows, targets, raw, note)
