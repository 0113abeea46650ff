"""The cache of rows: a load after a load reads only what was added since, and what is stored is still what counts."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.encode.frame import BEFORE, BEHIND
from backtrail.engines.base import Engine
from backtrail.history import row_cache
from backtrail.history.row_cache import RowCache

LONG = "long enough to be kept outside of the root; " * 8


def say(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{number}: {LONG}"}


def rows_read(store: backtrail.Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A list that grows with the first and the last step of each range of rows that the engine is asked for."""
    engine: Engine = store._core.context.engine
    asked: list[tuple[int, int]] = []
    original = engine.payloads

    async def payloads(lineage: str, branch: bytes, first: int, last: int) -> Any:
        asked.append((first, last))
        return await original(lineage, branch, first, last)

    monkeypatch.setattr(engine, "payloads", payloads)
    return asked


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"key": b"k" * 32}])
def test_a_load_after_a_load_reads_only_the_rows_that_were_added_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    with (
        backtrail.open(tmp_path / "s.db", durability="normal", **options) as store,
        backtrail.open(tmp_path / "s.db", durability="normal", **options) as other,
    ):
        for number in range(20):
            store.thread("t").append("log", [say(number)])
        asked = rows_read(store, monkeypatch)
        assert store.thread("t").load() == {"log": [say(number) for number in range(20)]}
        assert asked == [(1, 20)]
        for number in range(20, 25):
            other.thread("t").append("log", [say(number)])
        assert store.thread("t").load() == {"log": [say(number) for number in range(25)]}
        assert asked == [(1, 20), (21, 25)]
        assert store.thread("t").load(at=7) == {"log": [say(number) for number in range(7)]}
        assert asked == [(1, 20), (21, 25)]


def test_a_loaded_state_shares_nothing_with_the_one_loaded_before(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        thread = store.thread("t")
        docs = {str(number): {"text": LONG * 9} for number in range(99)}
        thread.save({"log": [say(number) for number in range(20)], "docs": docs})
        saved, loaded = thread.load(), thread.load()
        loaded["log"][3]["content"] = "changed"
        loaded["docs"]["7"]["text"] = "changed"
        assert thread.load() == saved


def test_a_check_reads_what_is_stored_and_not_what_a_load_has_cached(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with backtrail.open(path, durability="normal") as store:
        thread = store.thread("t")
        for number in range(5):
            thread.append("log", [say(number)])
        state = thread.load()
        with sqlite3.connect(path) as damaging:
            damaging.execute("UPDATE steps SET payload = zeroblob(length(payload))")
        damaging.close()
        assert not store.verify().ok
        assert thread.load() == state  # the rows were sound when they were read
    with backtrail.open(path) as store, pytest.raises(backtrail.Corrupt):
        store.thread("t").load()


def test_a_thread_that_was_deleted_and_begun_again_has_its_new_state(tmp_path: Path) -> None:
    with (
        backtrail.open(tmp_path / "s.db", durability="normal") as store,
        backtrail.open(tmp_path / "s.db", durability="normal") as other,
    ):
        store.thread("t").save({"log": [say(number) for number in range(9)]})
        store.thread("t").load()
        other.thread("t").delete()
        with pytest.raises(backtrail.ThreadNotFound):
            store.thread("t").load()
        other.thread("t").save({"log": [say(number) for number in range(50, 60)]})
        assert store.thread("t").load() == {"log": [say(number) for number in range(50, 60)]}


def test_a_cached_row_that_no_longer_makes_sense_is_read_again(tmp_path: Path) -> None:
    """As one that a sweep had emptied when it was cached, and that a replica has brought back since."""
    state = {"log": [say(number) for number in range(9)]}
    with (
        backtrail.open(tmp_path / "s.db", durability="normal") as store,
        backtrail.open(tmp_path / "s.db", durability="normal") as other,
    ):
        for message in state["log"]:
            other.thread("t").append("log", [message])
        store.thread("t").load()
        rows = store._core.context.caches.rows
        branch, (run, _) = next(iter(rows._runs._entries.items()))
        run.frames[3] = BEFORE + BEHIND
        assert store.thread("t").load() == state
        assert rows.find(branch, 4, 4)[0] != BEFORE + BEHIND
        run = rows._runs.peek(branch)
        run.frames[3] = BEFORE + BEHIND
        other.thread("t").append("log", [say(9)])
        store.thread("t").save({"log": [*state["log"], say(9), say(10)]})  # compares, and therefore reads
        assert len(store.thread("t").load()["log"]) == 11


def test_a_run_is_continued_and_anything_else_replaces_it() -> None:
    cache = RowCache()
    cache.add(b"b", 5, [b"5", b"6"])
    cache.add(b"b", 7, [b"7"])
    assert list(cache.find(b"b", 5, 9)) == [b"5", b"6", b"7"]
    assert list(cache.find(b"b", 6, 6)) == [b"6"]
    assert list(cache.find(b"b", 4, 9)) == list(cache.find(b"b", 8, 9)) == list(cache.find(b"other", 5, 9)) == []
    cache.add(b"b", 1, [b"1", b"2"])
    assert list(cache.find(b"b", 1, 9)) == [b"1", b"2"]
    assert (len(cache), cache.size) == (1, 2)


def test_the_cache_is_bounded_in_all_and_for_each_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "MAX_BYTES", 1000)
    monkeypatch.setattr(row_cache, "MAX_BRANCH_BYTES", 400)
    cache = RowCache()
    cache.add(b"large", 1, [bytes(401)])
    assert len(cache) == 0
    for branch in range(10):
        cache.add(bytes([branch]), 1, [bytes(300)])
        cache.add(bytes([branch]), 2, [bytes(300)])  # too much for one branch: what is there stays
        assert cache.size <= 1000
    assert [len(cache.find(bytes([branch]), 1, 9)) for branch in range(10)] == [0] * 7 + [1] * 3
