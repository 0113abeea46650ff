"""The file of a SQLite store: how it is created, which files are refused, and which are left alone."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

import backtrail
from backtrail.engines.base import Commit, Drop
from backtrail.engines.sqlite import SQLiteEngine, migrations
from backtrail.engines.sqlite.database_file import APPLICATION_ID
from backtrail.errors import InvalidInput, NotFound, Unavailable, UnsupportedFormat
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step


def saved(path: Path) -> SQLiteEngine:
    engine = SQLiteEngine(path)
    step(engine.commit(sample_records.first(sample_records.branch())))
    return engine


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def set_pragma(path: Path, name: str, value: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {name} = {value}")
        connection.commit()


def test_a_new_store_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    step(saved(path).close())
    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == migrations.newest() == 1
    assert pragma(path, "page_size") == 8192
    assert pragma(path, "journal_mode") == "wal"
    with closing(sqlite3.connect(path)) as connection:
        applied = connection.execute("SELECT version, script FROM migrations").fetchall()
        assert applied == [(1, "0001_first.sql")]


def test_full_durability_is_the_default_and_normal_is_a_choice(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match='"full" or "normal", not \'fast\''):
        SQLiteEngine(tmp_path / "s.db", durability="fast")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    for durability, level in (("full", 2), ("normal", 1)):
        engine = SQLiteEngine(tmp_path / "s.db", durability=durability)  # type: ignore[arg-type]
        assert engine._writer.read("PRAGMA synchronous", ()) == [(level,)]
        step(engine.close())
    engine = SQLiteEngine(tmp_path / "s.db")
    assert engine._writer.read("PRAGMA synchronous", ()) == [(2,)]
    step(engine.close())


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        engine = saved(tmp_path / "s.db")
        step(engine.stats())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        step(engine.close())
    finally:
        os.umask(old)
    assert set(modes) == {"s.db", "s.db-wal", "s.db-shm", "s.db-lock", "s.db-lock-next"}
    assert set(modes.values()) == {0o600}


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.commit()


def other_wal_database(path: Path) -> None:
    other_database(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def newer_store(path: Path) -> None:
    step(SQLiteEngine(path).close())
    set_pragma(path, "user_version", 99)


FOREIGN = {
    "a text": lambda path: path.write_text("Dear diary,\n" * 50),
    "a short text": lambda path: path.write_text("hi"),
    "an empty file": lambda path: path.touch(),
    "noise": lambda path: path.write_bytes(os.urandom(20_000)),
    "another program's database": other_database,
    "another program's database in WAL mode": other_wal_database,
    "half a header": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 20),
    "a newer store": newer_store,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_not_a_store_is_refused_and_left_untouched(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.db"
    FOREIGN[kind](path)
    for lock in tmp_path.glob("*-lock*"):
        lock.unlink()
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(UnsupportedFormat, match=r"s\.db"):
        SQLiteEngine(path)
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == when
    assert [file.name for file in tmp_path.iterdir()] == ["s.db"]


def test_a_store_that_a_newer_backtrail_takes_over_while_it_is_open_says_so(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db")
    branch = sample_records.branch("t")
    step(engine.commit(sample_records.first(branch)))
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("ALTER TABLE steps RENAME TO elsewhere")
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UnsupportedFormat, match="has format 99"):
        step(engine.commit(Commit("t", rows=[sample_records.row(branch, 2)])))
    with pytest.raises(UnsupportedFormat, match="has format 99"):
        step(engine.steps("t", branch.id, 1, 2))
    with pytest.raises(UnsupportedFormat, match="has format 99"):
        step(engine.stats())
    step(engine.close())


def test_a_newer_store_says_that_backtrail_must_be_upgraded(tmp_path: Path) -> None:
    newer_store(tmp_path / "s.db")
    with pytest.raises(UnsupportedFormat, match="has format 99, this backtrail reads formats up to 1"):
        SQLiteEngine(tmp_path / "s.db")


def test_a_directory_or_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UnsupportedFormat, match="not a regular file"):
            SQLiteEngine(path)


def test_no_store_is_made_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no store at .*s\.db"):
        SQLiteEngine(tmp_path / "s.db", create=False)
    assert not list(tmp_path.iterdir())
    step(SQLiteEngine(tmp_path / "s.db").close())
    step(SQLiteEngine(tmp_path / "s.db", create=False).close())


@pytest.mark.parametrize("url", ["{}/a/s.db", "sqlite:{}/a/b/s.db", "jsonl:{}/a/b"])
@pytest.mark.parametrize("create", [True, False])
def test_a_store_in_a_directory_that_does_not_exist_is_refused_and_nothing_is_made(
    tmp_path: Path, url: str, create: bool
) -> None:
    with pytest.raises(backtrail.NotFound, match="there is no directory .*a" if create else "there is no store at"):
        backtrail.open(url.format(tmp_path), create=create)
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_jsonl_store_itself_is_made(tmp_path: Path) -> None:
    with backtrail.open(f"jsonl:{tmp_path}/sessions") as store:
        store.session("s").add("user", "hello")
    assert (tmp_path / "sessions" / "backtrail.json").is_file()


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="not a path"):
        SQLiteEngine(path)


def test_a_directory_that_is_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="file/s"):
        SQLiteEngine(tmp_path / "file" / "s.db")


@pytest.mark.parametrize("name", ["a b?mode=ro#x%41.db", "ünï-🙂.db", "'; DROP TABLE heads; --.db", ":memory:"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    step(saved(tmp_path / name).close())
    assert (tmp_path / name).is_file()
    engine = SQLiteEngine(tmp_path / name)
    assert step(engine.head("t")) is not None
    step(engine.close())


def test_a_link_leads_to_the_same_store_and_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    step(saved(tmp_path / "real" / "s.db").close())
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "s.db")
    engine = SQLiteEngine(tmp_path / "link.db")
    assert step(engine.head("t")) is not None
    step(engine.close())
    assert {file.name for file in tmp_path.iterdir()} == {"real", "link.db"}


def test_what_a_crash_left_of_a_new_store_is_no_obstacle(tmp_path: Path) -> None:
    for suffix in ("", "-wal", "-journal"):
        left = tmp_path / f".backtrail-0123456789abcdef.new{suffix}"
        left.write_bytes(b"half made")
        os.utime(left, (0, 0))
    step(saved(tmp_path / "s.db").close())
    assert {file.name for file in tmp_path.iterdir()} == {"s.db", "s.db-lock", "s.db-lock-next"}


def test_an_older_store_is_brought_to_the_newest_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step(saved(tmp_path / "s.db").close())
    scripts = {
        "0002_made_up.sql": (
            "-- a comment; with a semicolon\n"
            "CREATE TABLE extra (a TEXT DEFAULT ';');\n"
            "INSERT INTO extra VALUES ('x;y');\n"
        )
    }
    monkeypatch.setattr(migrations, "SCRIPTS", (*migrations.SCRIPTS, *scripts))
    monkeypatch.setattr(migrations, "_read", lambda name, read=migrations._read: scripts.get(name) or read(name))
    engine = SQLiteEngine(tmp_path / "s.db")
    assert step(engine.head("t")) is not None
    step(engine.close())
    assert pragma(tmp_path / "s.db", "user_version") == 2
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT a FROM extra").fetchall() == [("x;y",)]
        assert connection.execute("SELECT version FROM migrations").fetchall() == [(1,), (2,)]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step(saved(tmp_path / "s.db").close())
    scripts = {"0002_made_up.sql": "CREATE TABLE extra (a);\nCREATE TABLE heads (again);\n"}
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "SCRIPTS", (*migrations.SCRIPTS, *scripts))
        patch.setattr(migrations, "_read", lambda name, read=migrations._read: scripts.get(name) or read(name))
        with pytest.raises(Unavailable, match="heads already exists"):
            SQLiteEngine(tmp_path / "s.db")
    assert pragma(tmp_path / "s.db", "user_version") == 1
    engine = SQLiteEngine(tmp_path / "s.db")
    assert step(engine.head("t")) is not None
    step(engine.close())


def test_a_store_that_was_deleted_or_replaced_does_not_answer(tmp_path: Path) -> None:
    engine = saved(tmp_path / "s.db")
    step(engine.ping())
    step(saved(tmp_path / "other.db").close())
    (tmp_path / "other.db").rename(tmp_path / "s.db")
    with pytest.raises(Unavailable, match="replaced by another file"):
        step(engine.ping())
    (tmp_path / "s.db").unlink()
    with pytest.raises(Unavailable):
        step(engine.ping())
    step(engine.close())


def test_compaction_gives_space_back(tmp_path: Path) -> None:
    engine = saved(tmp_path / "s.db")
    blobs = {sample_records.name16(n): os.urandom(20_000) for n in range(50)}
    step(engine.commit(Commit("t", blobs=blobs)))
    full = step(engine.stats())["bytes"]
    head = step(engine.head("t"))
    assert head is not None
    step(engine.drop(Drop("t", expect=[("t", head.key)], blobs=list(blobs))))
    step(engine.compact())
    assert step(engine.stats())["bytes"] < full - 900_000
    assert step(engine.head("t")) == head
    step(engine.close())
