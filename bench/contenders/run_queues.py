"""Workers that take short runs from one PostgreSQL, one process each: `store.work`, and a queue of DBOS.

    python -m bench.contenders.run_queues work URL /tmp/log
    python -m bench.contenders.run_queues submit-dbos URL 2000

A run is one step, which appends its number to a log, with one write.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import backtrail

THREADS = 16  #: of each worker of ours; a queue of DBOS has its defaults, which set no limit


def note(path: str, number: int) -> int:
    """The effect of a run."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number}\n".encode())
    os.close(file)
    return number


def submit(url: str, count: int) -> None:
    with backtrail.open(url) as store:
        for number in range(count):
            store.submit("note", number, id=f"run-{number}")


def work(url: str, path: str) -> None:
    with backtrail.open(url, pool_size=THREADS) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        store.work({"note": lambda run, number: run.step("note", note, path, number)}, workers=THREADS)


def work_dbos(url: str) -> None:
    from dbos import DBOS

    config: Any = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "run_admin_server": False,
        "application_version": "1",
        "executor_id": str(os.getpid()),
    }
    DBOS(config=config)
    one = DBOS.step(name="note")(note)

    @DBOS.workflow(name="flow")
    def flow(path: str, number: int) -> int:
        return int(one(path, number))

    print("ready", flush=True)
    sys.stdin.readline()
    DBOS.launch()
    DBOS.register_queue("notes")
    print("launched", flush=True)
    threading.Event().wait()


def submit_dbos(url: str, path: str, count: int) -> None:
    from dbos import DBOSClient

    client = DBOSClient(system_database_url=url)
    for number in range(count):
        options: Any = {"queue_name": "notes", "workflow_name": "flow", "app_version": "1"}
        client.enqueue(options, path, number)
    client.destroy()


if __name__ == "__main__":
    what, url, path = sys.argv[1:4]
    if what == "submit":
        submit(url, int(sys.argv[4]))
    elif what == "work":
        work(url, path)
    elif what == "submit-dbos":
        submit_dbos(url, path, int(sys.argv[4]))
    else:
        work_dbos(url)
