"""Retention within saves is exact, cheap, and never touches what a fork needs."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail import Retention


def test_a_store_with_keep_last_never_shows_more(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=3))
    thread = store.thread("t")
    for n in range(20):
        thread.append("messages", [{"n": n, "text": "x" * 200}])
        assert len(thread.history()) == min(n + 1, 3)
        assert store.threads()[0].count == min(n + 1, 3)
    assert [m["n"] for m in thread.load()["messages"]] == list(range(20))
    assert store.verify().ok


def test_labelled_checkpoints_stay(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=2, keep_tags=("gold",)))
    thread = store.thread("t")
    thread.save({"n": 0}, label="start")
    thread.save({"n": 1}, tags=["gold"])
    for n in range(2, 8):
        thread.save({"n": n})
    assert [c.step for c in thread.history()] == [1, 2, 7, 8]
    fresh = opener(retention=Retention(keep_last=2, keep_tags=("gold",)))
    fresh.thread("t").save({"n": 8})
    assert [c.step for c in fresh.thread("t").history()] == [1, 2, 8, 9]


def test_rows_are_freed_along_the_way(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=2))
    thread = store.thread("t")
    for n in range(400):
        thread.save({"n": n, "text": f"{n} " * 50})
    assert store.stats()["rows"] < 150
    assert len(thread.history()) == 2
    report = store.verify()
    assert report.ok, str(report)


def test_saves_remove_nothing_that_a_fork_can_see(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=2))
    thread = store.thread("t")
    for n in range(4):
        thread.save({"n": n})
    fork = thread.fork("fork", at=3)
    for n in range(4, 9):
        thread.save({"n": n})
    assert fork.load() == {"n": 2}
    assert fork.head.step == 3
    fork.save({"n": "fork"})
    assert [c.step for c in fork.history()][-2:] == [3, 4]
    store.prune()
    assert [c.step for c in fork.history()] == [3, 4]
    assert store.verify().ok


def test_a_new_policy_on_a_long_thread_is_applied_bit_by_bit(opener: Any) -> None:
    store = opener()
    for n in range(200):
        store.thread("t").save({"n": n})
    strict = opener(retention=Retention(keep_last=5))
    thread = strict.thread("t")
    lengths = []
    for n in range(6):
        thread.save({"n": n})
        lengths.append(len(thread.history()))
    assert lengths[0] > 100
    assert lengths[-1] == 5


def test_a_thread_can_have_a_policy_of_its_own(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=2))
    thread = store.thread("t")
    thread.save({"n": 0})
    assert thread.retention is None
    thread.retain(Retention(keep_last=4))
    assert thread.retention == Retention(keep_last=4)
    for n in range(1, 10):
        thread.save({"n": n})
        store.thread("other").save({"n": n})
    assert len(thread.history()) == 4
    assert len(store.thread("other").history()) == 2
    assert thread.fork("fork").retention == Retention(keep_last=4)
    thread.retain("keep_last=1")
    store.prune()
    assert len(thread.history()) >= 1
    thread.retain(None)
    assert thread.retention is None


def test_saves_of_two_handles_apply_one_window(opener: Any) -> None:
    one, two = opener(retention=Retention(keep_last=3)), opener(retention=Retention(keep_last=3))
    for n in range(15):
        (one if n % 2 else two).thread("t").append("messages", [{"n": n, "text": "x" * 300}])
    assert len(one.thread("t").history()) == 3
    assert [m["n"] for m in two.thread("t").load()["messages"]] == list(range(15))
    assert one.verify().ok


def test_a_rewound_thread_keeps_its_undo(opener: Any) -> None:
    store = opener(retention=Retention(keep_last=3))
    thread = store.thread("t")
    for n in range(5):
        thread.save({"n": n})
    thread.rewind(4)
    thread.undo()
    assert thread.load() == {"n": 4}
    thread.rewind(4)
    for n in range(5):
        thread.save({"again": n})
    assert len(thread.history()) == 3
    assert len(thread.history(all=True)) == 4  # the abandoned one stays for the undo window
    assert store.verify().ok


def test_a_policy_that_is_none_is_refused() -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({})
        with pytest.raises(backtrail.errors.InvalidInput):
            store.thread("t").retain(7)
