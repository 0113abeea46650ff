"""Durable steps of a run, one library in each process: a step returns 1 KB, and is on disk before it returns.

    python -m bench.contenders.durable_steps step sqlite:/tmp/a/store

The process reads numbers from its input; for each it does so many steps of one run, and prints their seconds as JSON.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import backtrail

RESULT_BYTES = 1024
NAMES = {
    "append": "backtrail `append`",
    "step": "backtrail `run.step`",
    "dbos": "DBOS step",
    "task": "LangGraph `@task`, SqliteSaver",
}


def result(number: int) -> str:
    """What a step returns: 1 KB of text that does not compress to nothing."""
    return (f"{number:06d} " + os.urandom(RESULT_BYTES // 2).hex())[:RESULT_BYTES]


def serve(step: Callable[[int], Any]) -> None:
    """Do what the input asks for, until it ends."""
    done = 0
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            done += 1
            start = perf_counter()
            step(done)
            times.append(perf_counter() - start)
        print(json.dumps(times), flush=True)


def append(url: str) -> None:
    with backtrail.open(url) as store:
        thread = store.thread("run")
        serve(lambda n: thread.append("steps", [result(n)]))


def step(url: str) -> None:
    with backtrail.open(url) as store, store.run("run") as run:
        serve(lambda n: run.step("s", result, n))


def dbos(url: str) -> None:
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})
    one = DBOS.step()(result)

    @DBOS.workflow()
    def flow() -> None:
        serve(one)

    DBOS.launch()
    flow()
    DBOS.destroy()


def task(url: str) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.func import entrypoint
    from langgraph.func import task as as_task

    one = as_task(result)
    db = sqlite3.connect(Path(url), check_same_thread=False)
    db.execute("PRAGMA synchronous = FULL")

    @entrypoint(checkpointer=SqliteSaver(db))
    def flow(_: int) -> None:
        serve(lambda n: one(n).result())

    flow.invoke(1, {"configurable": {"thread_id": "t"}})


if __name__ == "__main__":
    {"append": append, "step": step, "dbos": dbos, "task": task}[sys.argv[1]](sys.argv[2])
