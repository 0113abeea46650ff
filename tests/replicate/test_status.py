"""Changes of a mirror are reported in order, once each, and a failing callback does not disturb the mirror."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import Announcer, Status
from fix_flaky import Flaky
from fix_pairs import Pair


def test_status_tells_changes_to_a_callback(pair: Pair) -> None:
    told: list[Any] = []
    store = pair.open(on_change=told.append, failback_after=60.0)
    store.thread("t").save({"n": 1})
    pair.primary.up = False
    store.thread("t").load()
    # The background sees it, too; who of the two is first tells both changes, perhaps after the other has returned.
    pair.eventually(lambda: (told[-1].active, told[-1].primary.healthy) == ("replica", False))
    assert [(status.active, status.primary.healthy) for status in told][-2:] == [("primary", False), ("replica", False)]


def test_a_status_is_never_told_after_a_newer_one_and_nobody_waits_for_a_callback() -> None:
    mirror = Mirror(MemoryEngine(), MemoryEngine(), Settings())
    told: list[int] = []
    slow, reached = threading.Event(), threading.Event()

    def callback(status: Status) -> None:
        if not told:
            reached.set()
            slow.wait()
        told.append(status.diverged)

    announcer = Announcer(mirror.status, callback)
    first = threading.Thread(target=announcer.tell)
    first.start()
    reached.wait()
    for number in (1, 2):
        mirror.replicator.diverged = number
        announcer.tell()  # another thread's, which does not wait
    assert told == []
    slow.set()
    first.join()
    assert told == [0, 1, 2]


def test_a_callback_may_cause_a_change_itself() -> None:
    told: list[int] = []
    mirror = Mirror(MemoryEngine(), MemoryEngine(), Settings())

    def callback(status: Status) -> None:
        told.append(status.diverged)
        if len(told) < 3:
            mirror.replicator.diverged += 1
            announcer.tell()

    announcer = Announcer(mirror.status, callback)
    announcer.tell()
    assert told == [0, 1, 2]


def test_a_callback_that_raises_harms_nobody_and_is_told_of_the_next_change(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    def callback(status: Any) -> None:
        told.append(status)
        raise ValueError("somebody listens badly")

    caplog.set_level(logging.ERROR, "backtrail.replicate")
    store = pair.open(on_change=callback, failback_after=60.0)
    store.thread("t").save({"n": 1})
    pair.primary.up = False
    assert store.thread("t").load() == {"n": 1}
    pair.eventually(lambda: told[-1].active == "replica")
    pair.eventually(lambda: "on_change raised" in caplog.text)


def test_a_callback_that_is_interrupted_does_not_silence_the_mirror() -> None:
    told: list[int] = []

    def callback(_: Status) -> None:
        told.append(1)
        if len(told) == 1:
            raise KeyboardInterrupt

    store = backtrail.open(Flaky(MemoryEngine()), replica=MemoryEngine())
    announcer = Announcer(store.status, callback)
    with pytest.raises(KeyboardInterrupt):
        announcer.tell()
    announcer.tell()
    assert told == [1, 1]
    store.close()
