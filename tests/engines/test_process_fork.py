"""Forks by several threads at once: registered objects are paused for one fork after the other."""

from __future__ import annotations

import threading
import time

from backtrail.engines import process_fork
from fix_children import run as in_child


class Watching:
    """Notes what it is asked for, slowly."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        process_fork.watch(self)

    def before_fork(self) -> None:
        self.asked.append("stand still")
        time.sleep(0.002)

    def after_fork_in_parent(self) -> None:
        self.asked.append("go on")

    def after_fork_in_child(self) -> None:
        self.asked.append("start anew")


def test_threads_that_fork_at_once_do_so_one_after_the_other() -> None:
    watching = Watching()

    def started_anew(send: object) -> None:
        assert watching.asked[-1] == "start anew"

    def fork() -> None:
        for _ in range(5):
            in_child(started_anew)

    threads = [threading.Thread(target=fork) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watching.asked == ["stand still", "go on"] * 20


def test_stores_that_other_threads_open_are_no_obstacle_to_a_fork() -> None:
    stop = threading.Event()

    def open_stores() -> None:
        while not stop.is_set():
            Watching()

    threads = [threading.Thread(target=open_stores) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(lambda send: None)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
