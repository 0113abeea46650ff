"""Jobs for agents, done by workers: a worker that is killed loses nothing, and no finished step is done again.

    python examples/worker.py

Any number of workers, on any number of machines, may share a store on a server. This one is a file, and the workers are
processes. The first is killed in the middle of the second job. It prints:

    submitted 3 jobs
    the first worker was killed
    the second worker did the rest
    summary-1: 4 words, summary-2: 3 words, summary-3: 2 words
    fetched: a, b, c
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import backtrail

TEXTS = {"a": "the thread of Ariadne", "b": "into the labyrinth", "c": "and out"}


def fetch(name: str) -> str:
    with Path("fetched.txt").open("a") as fetched:
        fetched.write(name + "\n")
    return TEXTS[name]


def summarise(run: backtrail.Run, name: str) -> int:
    """A task: the function that a worker calls with a run and its input."""
    text = run.step("fetch", fetch, name)
    if name == os.environ.get("KILLED_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return run.step("count", len, text.split())


def work() -> None:
    with backtrail.open("backtrail.db") as store:
        print(store.work({"summarise": summarise}, drain=True))  # without `drain`, until SIGTERM


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, backtrail.open(Path(folder, "backtrail.db")) as store:
        for number, name in enumerate(TEXTS, 1):
            store.submit("summarise", name, id=f"summary-{number}")
        print("submitted", len(store.runs(status="ready")), "jobs")

        worker = [sys.executable, __file__, "work"]
        first = subprocess.run(worker, cwd=folder, env={**os.environ, "KILLED_AT": "b"}, check=False)
        assert first.returncode == -signal.SIGKILL
        print("the first worker was killed")
        left = len(store.runs())
        second = subprocess.run(worker, cwd=folder, capture_output=True, text=True, check=True)
        assert int(second.stdout) == left
        print("the second worker did the rest")

        done = sorted(store.runs(status="finished"), key=lambda run: run.id)
        print(", ".join(f"{run.id}: {store.run(run.id).outcome().result} words" for run in done))
        print("fetched:", ", ".join(sorted(Path(folder, "fetched.txt").read_text().split())))


if __name__ == "__main__":
    work() if sys.argv[1:] else main()
