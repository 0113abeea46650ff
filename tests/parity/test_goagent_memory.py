"""S0, goagent: each operation of its in-memory checkpointer, and the traps it had."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import backtrail


@pytest.fixture
def store() -> backtrail.Store:
    return backtrail.open("memory:")


def test_save_load_list_delete_exists_by_thread(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("t")
    assert not thread.exists()
    thread.save({"n": 1})
    assert thread.exists()
    assert thread.load() == {"n": 1}
    assert [info.id for info in store.threads()] == ["t"]
    thread.delete()
    assert not thread.exists()
    assert store.threads() == []


def test_history_holds_different_states_though_the_caller_reuses_one_object(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("t")
    state: dict[str, Any] = {"log": []}
    for n in range(5):
        state["log"].append({"n": n})
        thread.save(state)
    assert [len(thread.load(c)["log"]) for c in thread.history()] == [1, 2, 3, 4, 5]


def test_a_listing_tells_ids_times_and_encoded_size(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("t")
    thread.save({"text": "ü" * 100})
    first = store.threads()[0]
    saved = thread.save({"text": "ü" * 200}, custom={"meta": "data"})
    info = store.threads()[0]
    assert (info.id, info.head, info.count) == ("t", saved.id, 2)
    assert info.created_at == first.created_at < info.updated_at <= dt.datetime.now(dt.UTC)
    assert 400 <= info.size <= 420  # bytes, not characters
    assert saved.size == info.size


def test_size_counts_threads(store: backtrail.Store) -> None:
    for n in range(7):
        store.thread(f"t{n}").save({"n": n})
    assert len(store) == store.count() == 7


def test_numbers_keep_their_types(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("t")
    thread.save({"int": 3, "float": 3.0})
    assert {key: type(value) for key, value in thread.load().items()} == {"int": int, "float": float}
