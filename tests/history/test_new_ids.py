"""Ids that the store chooses: drawn ahead, and never given twice."""

from __future__ import annotations

import os
import threading

from backtrail.history import checkpoint_ids


def test_many_threads_get_different_ids_of_the_same_moment() -> None:
    found: list[bytes] = []

    def draw() -> None:
        found.extend(checkpoint_ids.new_id(1) for _ in range(3 * checkpoint_ids._TAILS_AHEAD))

    workers = [threading.Thread(target=draw) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(found)) == len(found) == 12 * checkpoint_ids._TAILS_AHEAD


def test_a_forked_child_does_not_repeat_the_ids_of_its_parent() -> None:
    checkpoint_ids.new_id(1)  # some are drawn
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(checkpoint_ids.new_id(1) for _ in range(100)))
        os._exit(0)
    os.waitpid(child, 0)
    drawn = os.read(reading, 1600)
    os.close(reading)
    os.close(writing)
    theirs = {drawn[at : at + 16] for at in range(0, 1600, 16)}
    assert len(theirs) == 100
    assert theirs.isdisjoint(checkpoint_ids.new_id(1) for _ in range(100))
