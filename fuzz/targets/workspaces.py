"""Snapshots of files, forged: a restore writes inside its directory, or not at all."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from functools import cache
from pathlib import Path

import backtrail
from backtrail.errors import BacktrailError
from fuzz.targets import sqlite_rows

_NAME = "project"


@cache
def _store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        (root / "src" / "deep").mkdir(parents=True)
        (root / "empty").mkdir()
        for n in range(5):
            (root / "src" / f"file{n}.py").write_text(f"print({n})\n" * (n * 400 + 1))
        (root / "src" / "deep" / "tool.sh").write_text("#!/bin/sh\n")
        (root / "src" / "deep" / "tool.sh").chmod(0o755)
        (root / "link").symlink_to("src/file0.py")
        path = Path(folder, "s.db")
        with backtrail.open(path, durability="normal") as store:
            files = store.workspace(root, name=_NAME, cache=Path(folder, "cache"))
            files.snapshot("one")
            (root / "src" / "file1.py").write_text("changed\n")
            files.snapshot("two")
        return sqlite_rows.without_wal(path)


def make(rng: random.Random) -> bytes:
    """A store whose snapshots are changed."""
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.deserialize(_store())
    for _ in range(rng.choice((1, 2, 3))):
        sqlite_rows.change_cell(connection, rng)
    sqlite_rows.seal_again(connection)
    connection.commit()
    return connection.serialize()


def attempt(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outside, root, path = Path(folder, "outside"), Path(folder, "a", "root"), Path(folder, "s.db")
        root.mkdir(parents=True)
        outside.mkdir()
        (outside / "victim").write_text("untouched")
        (root / "way-out").symlink_to(outside)
        path.write_bytes(data)
        with backtrail.open(path, durability="normal") as store:
            files = store.workspace(root, name=_NAME, cache=Path(folder, "cache"))
            for snapshot in files.snapshots():
                for call in (files.restore, files.diff):
                    try:
                        call(snapshot)
                    except BacktrailError:
                        continue
        assert sorted(p.name for p in outside.iterdir()) == ["victim"], "a file was made outside"
        assert (outside / "victim").read_text() == "untouched", "a file outside was changed"
        known = {"outside", "a", "cache", "s.db"}
        assert {p.name for p in Path(folder).iterdir() if not p.name.startswith("s.db-")} <= known, (
            "a file was made above"
        )
        assert [p.name for p in Path(folder, "a").iterdir()] == ["root"], "a file was made beside"
