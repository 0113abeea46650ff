"""Listings of very many threads are paged and read no state."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import backtrail
from backtrail.engines.base import Commit, Head, Swap
from backtrail.engines.coroutines import finish
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.history.records import Note, seal_note

MANY = 100_000


@pytest.mark.slow
def test_100_000_threads_are_paged_without_reading_state(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "many.db", durability="normal")
    store = backtrail.open(engine)
    store.thread("model").save({"n": 1})
    model = finish(engine.head("model"))
    assert model is not None
    swaps = [Swap(f"user/{n:06}", None, _like(store, model, f"user/{n:06}", n)) for n in range(MANY)]
    finish(engine.commit(Commit("model", swaps)))

    async def refuse(*_: object) -> None:
        raise AssertionError("a listing must not read states")

    engine.payloads = engine.row = engine.rows = engine.tip = refuse  # type: ignore[assignment]  # they must not be called
    assert store.count() == MANY + 1
    seen, after = 0, None
    while page := store.threads(prefix="user/", limit=10_000, after=after):
        assert [info.id for info in page] == [f"user/{n:06}" for n in range(seen, seen + len(page))]
        seen, after = seen + len(page), page[-1].id
    assert seen == MANY
    newest = store.threads(newest_first=True, limit=3, prefix="user/")
    assert [info.id for info in newest] == [f"user/{n:06}" for n in (MANY - 1, MANY - 2, MANY - 3)]
    store.close()


def _like(store: backtrail.Store, model: Head, name: str, later: int) -> Head:
    """A head like another, under another name."""
    bare = msgspec.structs.replace(model, thread=name, updated=model.updated + later, note=b"")
    return msgspec.structs.replace(bare, note=seal_note(store._core.context.frames, bare, Note(bytes(16))))
