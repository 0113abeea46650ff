"""POSIX locks belong to a process and a file, not to a handle: closing any handle of the file releases all of them.

SQLite takes this into account for its own handles. It cannot for a plain one that backtrail opens and closes beside
them: another process could then remove the write-ahead log of a store that still writes to it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import backtrail

pytestmark = pytest.mark.slow

READER = """
import sys, backtrail
with backtrail.open(sys.argv[1]) as store:
    print(store.thread("t").load()["n"])
"""


def seen_by_another_process(path: Path) -> int:
    """Read from another process; when it ends, it closes what it believes to be the last connection, or not."""
    return int(subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, check=True).stdout)


def test_a_second_store_on_the_file_gives_up_no_lock_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first = backtrail.open(path)
    thread = first.thread("t")
    thread.save({"n": 0})
    for n in range(1, 6):
        second = backtrail.open(path)
        assert seen_by_another_process(path) == n - 1
        thread.save({"n": n})
        assert seen_by_another_process(path) == n
        second.thread("other").save({"n": n})
        if n % 2:
            second.close()
        assert seen_by_another_process(path) == n
    assert first.verify().ok
    first.close()
    assert seen_by_another_process(path) == 5


def test_stores_that_many_threads_open_and_close_give_up_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    keeper = backtrail.open(path)
    keeper.thread("t").save({"n": 0})
    stop = threading.Event()

    def open_and_close() -> None:
        while not stop.is_set():
            backtrail.open(path).close()

    threads = [threading.Thread(target=open_and_close) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(1, 5):
            keeper.thread("t").save({"n": n}, expect=keeper.thread("t").head)
            assert seen_by_another_process(path) == n
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    keeper.close()
    assert seen_by_another_process(path) == 4
