"""Retention policies: which checkpoints they delete, and which never: heads, labels, forks, the undo window."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

import backtrail
from backtrail import Retention
from backtrail.errors import CheckpointNotFound, InvalidInput
from backtrail.history import records
from backtrail.history.retention import pack_retention, parse, unpack_retention

DAY = dt.timedelta(days=1)
NOW = Retention(undo_window=dt.timedelta(0))


def fill(thread: Any, count: int, **facts: Any) -> list[Any]:
    return [thread.append("messages", [{"n": n, "text": "x" * 300}], **facts) for n in range(count)]


def age(monkeypatch: pytest.MonkeyPatch, by: dt.timedelta) -> None:
    """Let time pass."""
    later = by // dt.timedelta(microseconds=1) * 1000
    monkeypatch.setattr(records, "clock", lambda: time.time_ns() + later)


def test_the_newest_are_kept_and_the_rest_leaves_the_history(store: Any) -> None:
    thread = store.thread("t")
    fill(thread, 20)
    report = store.prune(Retention(keep_last=3))
    assert report.checkpoints == 17
    assert [c.step for c in thread.history()] == [18, 19, 20]
    assert [m["n"] for m in thread.load()["messages"]] == list(range(20))
    assert [m["n"] for m in thread.load(18)["messages"]] == list(range(18))
    with pytest.raises(CheckpointNotFound):
        thread.load(5)
    assert store.threads()[0].count == 3
    assert thread.history()[0].parent_id is None


def test_a_thread_goes_on_after_a_prune(store: Any) -> None:
    thread = store.thread("t")
    fill(thread, 10)
    store.prune(Retention(keep_last=1))
    thread.append("messages", [{"n": 10}])
    thread.save({"messages": [{"n": 11}]})
    assert thread.load() == {"messages": [{"n": 11}]}
    assert [c.step for c in thread.history()] == [10, 11, 12]
    assert store.prune(Retention(keep_last=1)).checkpoints == 2
    assert thread.load() == {"messages": [{"n": 11}]}


def test_nothing_is_removed_by_default(store: Any) -> None:
    thread = store.thread("t")
    fill(thread, 5)
    thread.rewind(2)
    report = store.prune()
    assert (report.checkpoints, report.rows, report.threads) == (0, 0, 0)
    assert len(thread.history(all=True)) == 5


def test_labels_and_tags_protect_checkpoints(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1}, label="start")
    thread.save({"n": 2}, tags=["gold", "x"])
    thread.save({"n": 3}, tags=["x"])
    thread.save({"n": 4})
    thread.save({"n": 5})
    store.prune(Retention(keep_last=1, keep_tags=("gold",)))
    assert [c.step for c in thread.history()] == [1, 2, 5]
    store.prune(Retention(keep_last=1, keep_labelled=False))
    assert [c.step for c in thread.history()] == [5]


def test_a_label_that_was_given_later_protects_too(store: Any) -> None:
    thread = store.thread("t")
    for n in range(5):
        thread.save({"n": n})
    thread.annotate(2, label="worth keeping")
    store.prune(Retention(keep_last=1))
    assert [c.step for c in thread.history()] == [2, 5]
    assert thread.load(2) == {"n": 1}


def test_old_checkpoints_go_but_never_the_head(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = store.thread("t")
    fill(thread, 4)
    age(monkeypatch, 2 * DAY)
    fill(thread, 2)
    assert store.prune(max_age=DAY).checkpoints == 4
    assert [c.step for c in thread.history()] == [5, 6]
    age(monkeypatch, 9 * DAY)
    store.prune(max_age=DAY)
    assert [c.step for c in thread.history()] == [6]
    assert len(thread.load()["messages"]) == 6


def test_an_idle_thread_goes_as_a_whole(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store.thread("old"), 3)
    age(monkeypatch, 2 * DAY)
    fill(store.thread("new"), 3)
    report = store.prune(Retention(ttl=DAY))
    assert report.threads == 1
    assert [info.id for info in store.threads()] == ["new"]
    assert store.stats()["rows"] == 3


def test_a_fork_lives_on_when_its_parent_expires(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = store.thread("parent")
    fill(parent, 6)
    age(monkeypatch, 2 * DAY)
    fork = parent.fork("fork", at=4)
    fork.append("messages", [{"n": "forked"}])
    age(monkeypatch, 2 * DAY + dt.timedelta(hours=1))
    parent_touched = next(info for info in store.threads() if info.id == "parent").updated_at
    assert parent_touched < fork.head.created_at
    store.prune(Retention(ttl=DAY))
    assert [info.id for info in store.threads()] == ["fork"]
    assert [m["n"] for m in fork.load()["messages"]] == [0, 1, 2, 3, "forked"]
    assert [c.step for c in fork.history()] == [1, 2, 3, 4, 5]


def test_a_fork_keeps_what_it_needs_of_its_parents_history(store: Any) -> None:
    parent = store.thread("parent")
    fill(parent, 20)
    fork = parent.fork("fork", at=5)
    store.prune(Retention(keep_last=2))
    assert [c.step for c in fork.history()] == [4, 5]
    assert [m["n"] for m in fork.load()["messages"]] == list(range(5))
    assert {18, 19}.isdisjoint(c.step for c in fork.history())
    assert [c.step for c in parent.history()] == [4, 5, 19, 20]
    assert len(parent.load()["messages"]) == 20


def test_abandoned_steps_stay_for_the_undo_window(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = store.thread("t")
    fill(thread, 6)
    thread.rewind(3)
    policy = Retention(keep_last=100, undo_window=DAY)
    store.prune(policy)
    assert len(thread.history(all=True)) == 6
    thread.undo()
    assert thread.step == 6
    thread.rewind(3)
    thread.append("messages", [{"n": "new"}])
    age(monkeypatch, 2 * DAY)
    assert store.prune(policy).checkpoints == 3
    assert [c.step for c in thread.history(all=True)] == [1, 2, 3, 4]
    assert [m["n"] for m in thread.load()["messages"]] == [0, 1, 2, "new"]


def test_a_dry_run_says_what_would_go_and_changes_nothing(store: Any) -> None:
    thread = store.thread("t")
    for n in range(10):
        thread.save({"n": n, "text": str(n) * 500})
    before = store.stats()
    told = store.prune(Retention(keep_last=2), dry_run=True)
    assert store.stats() == before
    assert (told.dry_run, told.checkpoints) == (True, 8)
    assert told.bytes > 8 * 500
    done = store.prune(Retention(keep_last=2))
    assert (done.checkpoints, done.rows, done.bytes) == (told.checkpoints, told.rows, told.bytes)


@pytest.mark.parametrize(
    "fields",
    [
        {"keep_last": 0},
        {"keep_last": -1},
        {"keep_last": True},
        {"ttl": dt.timedelta(0)},
        {"max_age": dt.timedelta(days=-1)},
        {"max_age": 3600},
        {"undo_window": None},
        {"keep_tags": "gold"},
    ],
)
def test_a_policy_that_would_remove_everything_or_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Retention(**fields)


def test_a_policy_can_be_written_as_text() -> None:
    policy = Retention(keep_last=10, max_age=DAY, ttl=30 * DAY, keep_tags=("a", "b"), keep_labelled=False)
    assert parse("keep_last=10, max_age=24h,ttl=30d,keep_tags=a+b,keep_labelled=false") == policy
    assert unpack_retention(pack_retention(policy), "here") == policy
    for nonsense in ("keep=1", "keep_last=x", "max_age=3", "ttl=1y"):
        with pytest.raises(InvalidInput):
            parse(nonsense)


def test_the_url_can_carry_a_policy() -> None:
    with backtrail.open("memory:?retention=keep_last=2") as store:
        thread = store.thread("t")
        fill(thread, 5)
        store.prune()
        assert len(thread.history()) == 2
    with pytest.raises(InvalidInput):
        backtrail.open("memory:?retention=keep_last=0")
    with pytest.raises(InvalidInput):
        backtrail.open("memory:", retention=7)
