"""Listings of a store in which one thread is damaged: it is named and marked, and the rest is shown."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import backtrail

from .conftest import Run


@pytest.fixture
def damaged(store_dir: Path) -> Path:
    path = store_dir / "backtrail.db"
    with backtrail.open(path) as store:
        for name in ("bad session", "good session"):
            store.session(name).add("user", "hello")
        for name in ("bad run", "good run"):
            with contextlib.suppress(RuntimeError), store.run(name, task="a task") as run:
                run.checkpoint(messages=[{"role": "user", "content": "x"}])
                raise RuntimeError("so that it waits to be resumed")
    db = sqlite3.connect(path)
    db.execute("UPDATE heads SET updated = 1 << 62 WHERE thread LIKE 'bad%'")
    db.commit()
    db.close()
    return path


@pytest.mark.usefixtures("damaged")
@pytest.mark.parametrize("noun", ["thread", "session", "run"])
def test_a_listing_names_the_damaged_one_and_shows_the_rest(run: Run, noun: str) -> None:
    shown = run(f"{noun}s")
    assert shown.code == 0, shown.err
    assert "bad session  damaged" in shown.out or noun == "run"
    assert "out of bounds" in shown.out
    assert "good run" in shown.out or noun == "session"
    found = {one["id"]: one["damage"] for one in run(f"{noun}s", "--json").data[f"{noun}s"]}
    assert [id for id, damage in found.items() if damage] == [id for id in found if id.startswith("bad")]
    assert any(damage is None for damage in found.values())
