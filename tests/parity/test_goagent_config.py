"""S0, goagent: the configuration of its checkpointer (history, age, compression, cleanup), on every engine."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from backtrail import Retention
from backtrail.errors import InvalidInput
from backtrail.history import records

DAY = dt.timedelta(days=1)


def later(monkeypatch: pytest.MonkeyPatch, by: dt.timedelta) -> None:
    """Let time pass."""
    nanos = by // dt.timedelta(microseconds=1) * 1000
    monkeypatch.setattr(records, "clock", lambda: time.time_ns() + nanos)


def test_max_history_is_read_and_kept(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=10))
    thread = store.thread("t")
    for n in range(25):
        thread.save({"n": n})
    assert [thread.load(c)["n"] for c in thread.history()] == list(range(15, 25))


def test_cleanup_by_age_works_on_every_engine_and_tells_how_many(opener: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opener()
    for name in ("a", "b"):
        for n in range(3):
            store.thread(name).save({"n": n})
    later(monkeypatch, 2 * DAY)
    store.thread("b").save({"n": 3})
    assert store.prune(max_age=DAY).checkpoints == 5
    assert store.prune(max_age=DAY).checkpoints == 0
    assert [len(store.thread(name).history()) for name in ("a", "b")] == [1, 1]
    assert store.prune(Retention(ttl=DAY)).threads == 1
    assert [info.id for info in store.threads()] == ["b"]


def test_compression_is_implemented(opener: Any) -> None:
    text = [{"role": "user", "content": "the quick brown fox jumps over the lazy dog " * 40} for _ in range(30)]
    store = opener(compression="zstd", compression_level=6)
    saved = store.thread("t").save({"messages": text})
    assert saved.written < saved.size / 5
    assert store.thread("t").load() == {"messages": text}
    assert opener(compression=None).thread("t").load() == {"messages": text}
    for bad in ({"compression": "gzip"}, {"compression": "zstd", "compression_level": 0}):
        with pytest.raises(InvalidInput):
            opener(**bad)


def test_automatic_cleanup_runs_until_it_is_stopped_and_can_be_stopped_twice(opener: Any) -> None:
    store = opener(retention=Retention(max_age=dt.timedelta(microseconds=1)))
    for n in range(4):
        store.thread("t").save({"n": n})
    janitor = store.janitor(every=3600)
    janitor.start()
    while not janitor.status.rounds:
        store.ping()
        time.sleep(0.005)
    janitor.stop()
    janitor.stop()
    assert janitor.status.rounds == 1
    assert len(store.thread("t").history()) == 1


def test_an_interval_of_zero_is_refused(store: Any) -> None:
    with pytest.raises(InvalidInput):
        store.janitor(every=0)


def test_the_number_of_threads_is_known(store: Any) -> None:
    for n in range(3):
        store.thread(f"t{n}").save({})
    assert (len(store), store.count()) == (3, 3)
