"""S0, goagent: its DistributedCheckpointer (replication, failover, failback, status), and what it got wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine
from fix_flaky import Flaky


class Two:
    """A primary and a secondary that can be taken away."""

    def __init__(self) -> None:
        self.primary, self.secondary = Flaky(MemoryEngine()), Flaky(MemoryEngine())
        self.stores: list[backtrail.Store] = []

    def open(self, **options: Any) -> backtrail.Store:
        options = {"health_every": 0.05, "failback_after": 0.05, **options}
        self.stores.append(backtrail.open(self.primary, replica=self.secondary, **options))
        return self.stores[-1]

    @staticmethod
    def until(store: backtrail.Store, true: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + 20
        while not true(status := store.catch_up()):
            assert time.monotonic() < end, status
        return status


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.primary.up = made.secondary.up = True
    for store in made.stores:
        store.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_both_stores_get_what_is_saved_and_deleted(two: Two, mode: str) -> None:
    store = two.open(replication=mode)
    store.thread("kept").save({"n": 1})
    store.thread("gone").save({"n": 1})
    store.thread("gone").delete()
    two.until(store, lambda status: not status.behind and not status.lag_records)
    for side in (two.primary, two.secondary):
        assert [info.id for info in backtrail.open(side.engine).threads()] == ["kept"]


def test_a_missing_thread_is_an_answer_and_no_failure(two: Two) -> None:
    store = two.open(max_failovers=1)
    for _ in range(10):
        with pytest.raises(backtrail.ThreadNotFound):
            store.thread("nobody").load()
    status = store.status()
    assert (status.active, status.failovers, status.primary.healthy) == ("primary", 0, True)


def test_failback_loses_nothing_written_meanwhile_and_brings_no_delete_back(two: Two) -> None:
    store = two.open()
    store.thread("old").save({"n": 1})
    store.thread("doomed").save({"n": 1})
    two.primary.up = False
    store.thread("old").update({"n": 2})
    store.thread("new").save({"n": 3})
    store.thread("doomed").delete()
    two.primary.up = True
    two.until(store, lambda status: status.active == "primary" and not status.behind)
    home = backtrail.open(two.primary.engine)
    assert {info.id: home.thread(info.id).load() for info in home.threads()} == {"new": {"n": 3}, "old": {"n": 2}}


def test_a_full_queue_drops_nothing(two: Two) -> None:
    store = two.open(replication="async", max_pending=10)
    for n in range(1_200):
        store.thread(f"t{n % 7}").append("messages", [n])
    two.until(store, lambda status: not status.behind and not status.lag_records)
    there = backtrail.open(two.secondary.engine)
    found = sorted(n for info in there.threads() for n in there.thread(info.id).load()["messages"])
    assert found == list(range(1_200))


def test_attempts_are_counted_per_window_and_forgotten_after_it(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    store = two.open(max_failovers=1, failover_window=600.0, failback_after=3600.0, health_every=3600.0)
    store.thread("t").save({"n": 1})
    two.primary.up = False
    assert store.thread("t").load() == {"n": 1}
    two.primary.up, two.secondary.up = True, False
    with pytest.raises(backtrail.Unavailable, match="1 times"):
        store.thread("t").load()
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 700, time=time.time)
    monkeypatch.setattr("backtrail.replicate.failover.time", later)
    assert store.thread("t").load() == {"n": 1}


def test_an_unknown_mode_is_refused(two: Two) -> None:
    with pytest.raises(backtrail.InvalidInput, match="unknown"):
        two.open(replication="sometimes")


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.thread("t").load(),
        lambda store: store.thread("t").save({"n": 2}),
        lambda store: store.threads(),
        lambda store: store.thread("t").exists(),
        lambda store: store.thread("t").delete(),
        lambda store: store.thread("t").find(label="first"),
        lambda store: store.count(),
        lambda store: store.ping(),
    ],
    ids=["load", "save", "list", "exists", "delete", "find", "count", "ping"],
)
def test_every_operation_fails_over(two: Two, call: Callable[[backtrail.Store], Any]) -> None:
    store = two.open(failback_after=60.0, health_every=30.0)
    store.thread("t").save({"n": 1}, label="first")
    two.primary.up = False
    call(store)
    assert store.status().active == "replica"


def test_one_threads_writes_reach_the_secondary_in_order(two: Two) -> None:
    store = two.open(replication="async")
    seen: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        there = backtrail.open(two.secondary.engine)
        while not stop.is_set():
            if there.thread("t").exists():
                seen.append(len(there.thread("t").load()["messages"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for n in range(300):
        store.thread("t").append("messages", [n])
    two.until(store, lambda status: not status.behind and not status.lag_records)
    stop.set()
    watcher.join()
    assert seen == sorted(seen)
    assert backtrail.open(two.secondary.engine).thread("t").load()["messages"] == list(range(300))


def test_failover_can_be_off_and_close_may_be_called_twice(two: Two) -> None:
    store = two.open(failover=False)
    store.thread("t").save({"n": 1})
    two.primary.up = False
    with pytest.raises(backtrail.Unavailable, match="failover is off"):
        store.thread("t").load()
    store.close()
    store.close()
