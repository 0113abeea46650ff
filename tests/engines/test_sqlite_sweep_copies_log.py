"""A sweep copies the write-ahead log into the database file itself, so that no writer has to at the end of a commit."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from backtrail.engines.base import Drop
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.engines.sqlite.engine import DROPS
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step


def rows_in_the_file(path: Path, copy: Path) -> int:
    """The rows in the file alone, without its log. It is copied by `cp`: closing it here would drop our locks."""
    subprocess.run(["cp", path, copy], check=True)
    with closing(sqlite3.connect(copy)) as connection:
        return int(connection.execute("SELECT count(*) FROM steps").fetchone()[0])


def test_after_so_many_drops_the_file_has_all_that_was_written_before(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "a.db", durability="normal")
    branch = sample_records.branch("one")
    step(engine.commit(sample_records.first(branch, 40)))
    for number in range(DROPS):
        assert rows_in_the_file(engine.path, tmp_path / "copy.db") == 0
        head = sample_records.head(branch, 40)
        step(engine.drop(Drop("one", [("one", head.key)], rows=[(branch.id, 1 + number)])))
    assert rows_in_the_file(engine.path, tmp_path / "copy.db") == 40 - DROPS
    step(engine.close())
