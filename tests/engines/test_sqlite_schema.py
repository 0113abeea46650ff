"""A SQLite file whose schema is not exactly ours is refused, whatever is in it, and left as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backtrail.engines.sqlite import SQLiteEngine, migrations, schema_check
from backtrail.engines.sqlite.database_file import DatabaseFile
from backtrail.errors import Corrupt, UnsupportedFormat
from backtrail.replicate.spool import FILE, Spool
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    engine = SQLiteEngine(path)
    step(engine.commit(sample_records.first(sample_records.branch())))
    step(engine.close())
    return path


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_each_format_has_the_digest_of_the_schema_that_its_scripts_make() -> None:
    assert [*migrations.SCHEMAS] == [*range(1, migrations.newest() + 1)]
    for version, digest in migrations.SCHEMAS.items():
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            migrations.run(connection, migrations.SCRIPTS[:version])
            rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
            assert schema_check.digest(rows) == digest


def test_a_store_with_the_usual_schema_is_opened_without_making_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_check, "_sound", {})
    monkeypatch.setattr(schema_check, "_expected", None)
    step(SQLiteEngine(path).close())


STRANGE = {
    "a trigger that empties the store": (
        "CREATE TRIGGER empties AFTER INSERT ON steps BEGIN DELETE FROM steps; END",
        "also has trigger 'empties'",
    ),
    "a view of its own": (f"CREATE VIEW look AS {ENDLESS} i FROM n", "also has view 'look'"),
    "a view in the place of a table": (
        f"ALTER TABLE heads RENAME TO kept; CREATE VIEW heads AS {ENDLESS} {', '.join(['i'] * 12)} FROM n",
        "view 'heads'.*lacks.*table 'heads'",
    ),
    "another table": ("CREATE TABLE notes (text)", "also has table 'notes'"),
    "a virtual table": ("CREATE VIRTUAL TABLE notes USING fts5(text)", "also has table 'notes"),
    "another index": ("CREATE INDEX mine ON heads (updated)", "also has index 'mine'"),
    "an index on an expression": ("CREATE INDEX mine ON heads (hex(note))", "also has index 'mine'"),
    "no index": ("DROP INDEX heads_of_forks", "lacks index 'heads_of_forks'"),
    "another column": ("ALTER TABLE marks ADD COLUMN x AS (zeroblob(1000000000))", "has another table 'marks'"),
    "a constraint": (
        "DROP TABLE marks; CREATE TABLE marks (branch INTEGER NOT NULL CHECK (randomblob(1000000000) IS NULL), "
        "step INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (branch, step)) WITHOUT ROWID",
        "has another table 'marks'",
    ),
    "a table of many": (
        "".join(f"CREATE TABLE t{number} (x);" for number in range(40)),
        "also has table 't0', table 't1', .*, …",
    ),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_schema_that_is_not_ours_is_refused_and_named(what: str, path: Path) -> None:
    script, message = STRANGE[what]
    change(path, script)
    before = path.read_bytes()
    with pytest.raises(UnsupportedFormat, match=message):
        SQLiteEngine(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("what", STRANGE)
def test_an_older_store_with_such_a_schema_is_not_migrated(
    what: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, message = STRANGE[what]
    change(path, script)
    before = path.read_bytes()
    real = migrations._read
    monkeypatch.setattr(migrations, "SCRIPTS", (*migrations.SCRIPTS, "0002_made_up.sql"))
    monkeypatch.setattr(migrations, "_read", lambda name: "CREATE TABLE extra (a);" if "0002" in name else real(name))
    with pytest.raises(UnsupportedFormat, match=message):
        SQLiteEngine(path)
    assert path.read_bytes() == before


def test_a_schema_that_changes_while_a_store_is_open_is_found_by_its_next_connection(path: Path) -> None:
    file = DatabaseFile(path, create=False, durability="normal")
    file.connect().close()
    change(path, STRANGE["a trigger that empties the store"][0])
    with pytest.raises(UnsupportedFormat, match="empties"):
        file.connect(writes=True)
    file.unregister()


def test_a_spool_is_checked_like_any_store(tmp_path: Path) -> None:
    step(Spool.open(tmp_path, blocking=True).engine.close())
    change(tmp_path / FILE, STRANGE["a trigger that empties the store"][0])
    with pytest.raises(UnsupportedFormat, match="empties"):
        Spool.open(tmp_path, blocking=True)


def test_what_analyze_leaves_is_allowed(path: Path) -> None:
    change(path, "ANALYZE")
    engine = SQLiteEngine(path)
    assert step(engine.head("t")) is not None
    step(engine.compact())
    step(engine.close())


def test_a_list_of_tables_without_end_is_not_read_to_its_end(path: Path) -> None:
    # Duplicates of an automatic index are what SQLite accepts without looking: here as many as in a circle of pages.
    change(
        path,
        "PRAGMA writable_schema = ON; "
        "INSERT INTO sqlite_schema SELECT s.* FROM sqlite_schema s, "
        f"({ENDLESS} i FROM n LIMIT {schema_check.MAX_WORK // 10}) WHERE s.name = 'sqlite_autoindex_branches_1'",
    )
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="no end"):
        SQLiteEngine(path)
    assert path.read_bytes() == before


def test_a_connection_trusts_the_file_as_little_as_sqlite_can(path: Path) -> None:
    file = DatabaseFile(path, create=False, durability="normal")
    with closing(file.connect(writes=True)) as connection:
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert connection.execute("PRAGMA cell_size_check").fetchone() == (1,)
        if hasattr(connection, "getconfig"):
            assert connection.getconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)
    file.unregister()
