"""A thread with one damaged step, on the command line and over HTTP: everything but the hole is shown."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import backtrail
from fix_inspector import inspector

from .conftest import Run


def spoil(path: Path, column: str) -> None:
    db = sqlite3.connect(path)
    (data,) = db.execute(f"SELECT {column} FROM steps WHERE step = 12").fetchone()
    middle = len(data) // 2
    db.execute(
        f"UPDATE steps SET {column} = ? WHERE step = 12",
        [data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]],
    )
    db.commit()
    db.close()


@pytest.fixture(params=["payload", "root", "meta"])
def column(request: pytest.FixtureRequest, store_dir: Path) -> str:
    path = store_dir / "backtrail.db"
    with backtrail.open(path) as store:
        thread = store.thread("long")
        for n in range(20):
            thread.append("messages", [{"role": "user", "content": f"message {n} is here"}])
    spoil(path, request.param)
    return str(request.param)


def test_show_log_and_export_show_everything_but_the_hole(run: Run, column: str, store_dir: Path) -> None:
    for step in (13, 20):
        shown = run("show", "long", str(step))
        assert shown.code == 0, shown.err
        assert f"message {step - 1} is here" in shown.out
        assert "message 3 is here" in shown.out
        assert ("checksum does not hold" in shown.out) is (column == "payload")
    at_damage = run("show", "long", "12")
    assert at_damage.code == (5 if column == "root" else 0), at_damage.err
    assert ("message 11 is here" in at_damage.out) is (column == "meta")
    state = run("show", "long", "--json").data["state"]
    assert [n for n, message in enumerate(state["messages"]) if "$hole" in message] == (
        [11] if column == "payload" else []
    )
    log = run("log", "long")
    assert log.code == 0, log.err
    assert "message 19 is here" in log.out
    assert ("damaged" in log.out) is True
    for form in ("jsonl", "markdown", "json"):
        out = store_dir / f"out.{form}"
        exported = run("export", "long", "--format", form, "--output", str(out))
        assert exported.code == 0, exported.err
        text = out.read_text()
        assert "message 19 is here" in text
        assert ("checksum does not hold" in text) is (column == "payload")


def test_the_api_of_the_inspector_shows_everything_but_the_hole(column: str, store_dir: Path) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store, inspector(store) as served:
        rows = served.get("history", thread="long")["rows"]
        assert [row["step"] for row in rows] == list(range(20, 0, -1))
        assert [row["step"] for row in rows if row["damage"]] == ([12] if column == "meta" else [])
        assert sum("message" in row["preview"] for row in rows) >= 18
        messages = served.get("messages", thread="long", limit=50)["messages"]
        assert len(messages) == 20
        assert [message["index"] for message in messages if message["role"] == "damaged"] == (
            [11] if column == "payload" else []
        )
        assert served.get("state", thread="long", path=json.dumps(["messages"]))["count"] == 20
        assert served.get("thread", thread="long")["thread"]["damage"] is None
        for step in (12, 13):
            assert served.get("state", thread="long", at=str(step))["kind"] in ("dict", "value")
            assert served.get("messages", thread="long", at=str(step))["total"] in (0, step)
