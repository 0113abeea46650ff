"""A LangGraph database that means harm: importing it runs nothing, and changes nothing in it."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

import backtrail
from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.langgraph.migrate import migrate_database
from backtrail.errors import Unavailable, UnsupportedFormat
from fix_graphs import at


def packed(value: Any) -> bytes:
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)


def extension(code: int, *content: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, packed(list(content)))


class Pickled:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def msgpack_payloads(command: str) -> dict[str, Any]:
    """Values whose msgpack makes a permissive reader call something, one for each way to say so."""
    call = {"module": "os", "name": "system"}
    names = tuple(call.values())
    return {
        "one argument": extension(0, *names, command),
        "arguments": extension(1, *names, [command]),
        "keywords": extension(2, *names, {"command": command}),
        "method": extension(3, "os", "path", command, "system"),
        "method of a harmless class": extension(3, "datetime", "datetime", command, "__init_subclass__"),
        "pydantic 1": extension(4, *names, {"command": command}),
        "pydantic 2": extension(5, *names, {"command": command}, "model_validate_json"),
        "eval": extension(0, "builtins", "eval", f"__import__('os').system({command!r})"),
        "subprocess": extension(1, "subprocess", "Popen", [["sh", "-c", command]]),
        "numpy of objects": extension(6, "O", [1], "C", b"\0" * 8),
        "an import": extension(0, "hostile_module_of_the_test", "Thing", 1),
        "inside a snapshot": ormsgpack.Ext(7, packed(extension(0, *names, command))),
        "inside a message": extension(
            5,
            "langchain_core.messages.human",
            "HumanMessage",
            {"content": "hi", "additional_kwargs": {"x": extension(0, *names, command)}},
            "model_validate_json",
        ),
        "inside a list in a dict": {"a": [1, {"b": extension(0, *names, command)}]},
        "a class by a dotted name": extension(0, "os", "path.os.system", command),
        "unknown code": ormsgpack.Ext(99, packed([*names, command])),
        "not a call at all": ormsgpack.Ext(0, packed(7)),
    }


def json_payloads(command: str) -> dict[str, Any]:
    """The same for the JSON of older versions."""
    return {
        "lc 2 args": {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [command], "kwargs": {}},
        "lc 2 kwargs": {"lc": 2, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": command}},
        "lc 2 method": {
            "lc": 2,
            "type": "constructor",
            "id": ["os", "path"],
            "method": ["os", "system"],
            "args": [command],
        },
        "lc 1": {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": command}},
        "lc 1 of langchain": {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "prompts", "prompt", "PromptTemplate"],
            "kwargs": {"template": "{{ x.__class__ }}", "template_format": "jinja2", "input_variables": []},
        },
        "lc 1 secret": {"lc": 1, "type": "secret", "id": ["BACKTRAIL_PLANTED_SECRET"]},
        "ids that are no names": {"lc": 2, "type": "constructor", "id": [1, {}], "args": []},
    }


def values(command: str) -> dict[str, tuple[str, bytes]]:
    """Typed bytes of every payload, by name, in every kind that a stock serializer ever wrote."""
    typed = {f"msgpack: {name}": ("msgpack", packed(value)) for name, value in msgpack_payloads(command).items()}
    typed |= {f"json: {name}": ("json", json.dumps(value).encode()) for name, value in json_payloads(command).items()}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        typed[f"pickle {protocol}"] = ("pickle", pickle.dumps(Pickled(command), protocol))
    return typed


NAMES = list(values(""))


def with_channel(kind: str, data: bytes, id: str) -> tuple[str, bytes]:
    """A whole checkpoint, as the SQLite saver stores it, with a hostile channel."""
    checkpoint = {**empty_checkpoint(), "id": id, "channel_versions": {"x": "1"}}
    if kind == "json":
        return kind, json.dumps({**checkpoint, "channel_values": {"x": json.loads(data)}}).encode()
    if kind == "pickle":
        return kind, data
    prefix = ormsgpack.packb({k: v for k, v in checkpoint.items() if k != "channel_values"})
    assert prefix[0] & 0xF0 == 0x80
    # One more entry in the map: its key, and a map of one whose value is the hostile one.
    return kind, bytes([prefix[0] + 1]) + prefix[1:] + packed("channel_values") + b"\x81" + packed("x") + data


def tree(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(directory)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Commands of the payloads create a file; the returned function checks that none did, and nothing was imported."""
    mark = tmp_path / "it-ran"
    monkeypatch.setenv("BACKTRAIL_PLANTED_SECRET", "planted-secret")
    imported: list[str] = []
    real = builtins.__import__

    def watched(name: str, *args: Any, **kwargs: Any) -> Any:
        imported.append(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", watched)

    def check() -> None:
        assert not mark.exists()
        assert "hostile_module_of_the_test" not in {*imported, *sys.modules}

    return check


def every_row(server: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """The rows of every table of the savers, with the transactions that wrote them."""
    tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
    return {
        name: server.execute(f"SELECT xmin::text, t::text FROM {name} t ORDER BY 2").fetchall() for (name,) in tables
    }


def sqlite_file(directory: Path, rows: list[tuple[str, str, bytes]], metadata: bytes = b"{}") -> Path:
    """A database of a SQLite saver with one checkpoint for each (id, kind, bytes); it is quiet: without a log."""
    directory.mkdir()
    file = directory / "langgraph.db"
    with SqliteSaver.from_conn_string(str(file)) as saver:
        saver.setup()
        for id, kind, data in rows:
            saver.conn.execute(
                "INSERT INTO checkpoints VALUES (?, '', ?, NULL, ?, ?, ?)", ("t", id, kind, data, metadata)
            )
        saver.conn.commit()
    return file


def test_nothing_of_a_sqlite_file_is_run_and_the_file_stays_the_same(
    store: Any, tmp_path: Path, trap: Callable[[], None]
) -> None:
    command = f"touch {tmp_path / 'it-ran'}"
    rows = []
    for number, (kind, data) in enumerate(values(command).values()):
        id = f"1f000000-0000-6000-8000-{number:012x}"
        rows.append((id, *with_channel(kind, data, id)))
    file = sqlite_file(tmp_path / "source", rows)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.executemany(
            "INSERT INTO writes VALUES ('t', '', ?, 'task', '', ?, 'x', ?, ?)",
            [
                (rows[0][0], index, *typed)
                for index, typed in enumerate(values(command).values())
                if typed[0] != "pickle"
            ],
        )
    before = tree(tmp_path / "source")
    migration = migrate_database("langgraph-sqlite", str(file), store)
    trap()
    assert tree(tmp_path / "source") == before
    assert migration.checkpoints == len([name for name in NAMES if not name.startswith("pickle")])
    assert {one.reason for one in migration.skipped} == {"a value is pickled, and reading it could run code"}
    assert {"os.system", "subprocess.Popen", "hostile_module_of_the_test.Thing"} <= set(migration.made_plain)
    # Nor does a graph run it later: what was not rebuilt is plain data in the store, whoever reads it.
    permissive = BacktrailSaver(
        store, serde=JsonPlusSerializer(allowed_msgpack_modules=True, allowed_json_modules=True)
    )
    loaded = list(permissive.list(at("t")))
    trap()
    assert len(loaded) == migration.checkpoints
    assert "planted-secret" not in repr(loaded)
    assert loaded[-1].checkpoint["channel_values"] == {"x": command}
    assert len(loaded[-1].pending_writes or ()) == migration.checkpoints


def test_metadata_is_read_strictly_too(store: Any, tmp_path: Path, trap: Callable[[], None]) -> None:
    command = f"touch {tmp_path / 'it-ran'}"
    id = "1f000000-0000-6000-8000-000000000001"
    metadata = json.dumps({"source": "input", "step": -1, "writes": None, **json_payloads(command)}).encode()
    file = sqlite_file(tmp_path / "source", [(id, *with_channel("json", b"1", id))], metadata)
    assert migrate_database("langgraph-sqlite", str(file), store).checkpoints == 1
    trap()
    (loaded,) = BacktrailSaver(store).list(at("t"))
    assert loaded.metadata["lc 2 args"] == command
    assert "planted-secret" not in repr(loaded)


def test_nothing_of_a_postgres_database_is_run_and_it_is_not_changed(
    store: Any, tmp_path: Path, postgres_server: Any, trap: Callable[[], None]
) -> None:
    command = f"touch {tmp_path / 'it-ran'}"
    url = postgres_server.url
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    with psycopg.connect(url, autocommit=True) as server:
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            server.execute(f"TRUNCATE {table}")
        for number, (kind, data) in enumerate(values(command).values()):
            id = f"1f000000-0000-6000-8000-{number:012x}"
            checkpoint = {**empty_checkpoint(), "id": id, "channel_versions": {"x": str(number)}}
            server.execute(
                "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES ('t', %s, %s)",
                (id, json.dumps(checkpoint)),
            )
            server.execute("INSERT INTO checkpoint_blobs VALUES ('t', '', 'x', %s, %s, %s)", (str(number), kind, data))
            server.execute(
                "INSERT INTO checkpoint_writes VALUES ('t', '', %s, 'task', 0, 'x', %s, %s, '')", (id, kind, data)
            )
        before = every_row(server)
        migration = migrate_database("langgraph-postgres", url, store)
        assert every_row(server) == before
        trap()
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            server.execute(f"TRUNCATE {table}")
    assert migration.checkpoints == len([name for name in NAMES if not name.startswith("pickle")])
    assert len(list(BacktrailSaver(store).list(at("t")))) == migration.checkpoints
    trap()


def test_the_import_of_a_database_that_is_open_sees_its_log_and_does_not_change_it(store: Any, tmp_path: Path) -> None:
    file = sqlite_file(tmp_path / "source", [])
    with SqliteSaver.from_conn_string(str(file)) as theirs:
        checkpoint = {**empty_checkpoint(), "channel_values": {"x": HumanMessage("hi")}, "channel_versions": {"x": "1"}}
        theirs.put(at("t", checkpoint_ns=""), checkpoint, {"step": 1}, {"x": "1"})
        wal = file.with_name("langgraph.db-wal")
        assert wal.stat().st_size
        before = (file.read_bytes(), wal.read_bytes())
        assert migrate_database("langgraph-sqlite", str(file), store).checkpoints == 1
        assert (file.read_bytes(), wal.read_bytes()) == before


def test_a_file_that_changes_while_it_is_read_is_not_trusted(store: Any, tmp_path: Path) -> None:
    id = "1f000000-0000-6000-8000-000000000001"
    file = sqlite_file(tmp_path / "source", [(id, *with_channel("json", b"1", id))])

    def write(*_: int) -> None:
        other = sqlite3.connect(file)
        other.execute("CREATE TABLE more (x)")
        other.close()

    with pytest.raises(Unavailable, match="repeat the import"):
        migrate_database("langgraph-sqlite", str(file), store, write)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE other (x)",
        "CREATE VIEW checkpoints AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n;"
        "CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, type)",
        "CREATE VIRTUAL TABLE checkpoints USING fts5(thread_id, checkpoint_ns, checkpoint_id, type);"
        "CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, type)",
        "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, x AS (zeroblob(1000000000)));"
        "CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, type)",
        "CREATE TABLE checkpoints (thread_id, thread_ts, parent_ts, checkpoint); CREATE TABLE writes (thread_id)",
    ],
    ids=["no tables", "a view", "a virtual table", "a computed column", "an older layout"],
)
def test_only_plain_tables_of_a_saver_are_read(store: Any, tmp_path: Path, script: str) -> None:
    file = tmp_path / "odd.db"
    connection = sqlite3.connect(file)
    connection.executescript(script)
    connection.close()
    before = file.read_bytes()
    with pytest.raises(UnsupportedFormat):
        migrate_database("langgraph-sqlite", str(file), store)
    assert file.read_bytes() == before
    assert store.threads() == []


def deep(levels: int) -> bytes:
    data = b"\xc0"
    for _ in range(levels):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    return data


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("msgpack", b"\xdd\xff\xff\xff\xff\x01"),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", deep(5000)),
        ("msgpack", packed([1, 2])),
        ("msgpack", packed({"channel_values": 7})),
        ("msgpack", packed({**empty_checkpoint(), "channel_versions": {"x": "1", "y": 2}})),
        ("msgpack", packed({**empty_checkpoint(), "versions_seen": {"x": 1}})),
        ("json", b"[" * 100_000),
        ("json", b'{"v": ' + b"9" * 5000 + b"}"),
        ("json", b"\xff"),
        ("json+aes", b"x"),
        (None, b"x"),
        ("msgpack", None),
        ("msgpack", "text"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_named_and_the_others_are_imported(
    store: Any, tmp_path: Path, kind: Any, data: Any
) -> None:
    good, bad = "1f000000-0000-6000-8000-000000000002", "1f000000-0000-6000-8000-000000000001"
    file = sqlite_file(tmp_path / "source", [(bad, kind, data), (good, *with_channel("json", b"1", good))])
    migration = migrate_database("langgraph-sqlite", str(file), store)
    assert [one.checkpoint_id for one in migration.skipped] == [bad]
    assert migration.checkpoints == 1
    assert BacktrailSaver(store).get_tuple(at("t")).checkpoint["channel_values"] == {"x": 1}


def test_the_command_line_names_what_it_left_out(tmp_path: Path) -> None:
    command = f"touch {tmp_path / 'it-ran'}"
    ids = [f"1f000000-0000-6000-8000-{number:012x}" for number in range(2)]
    hostile = packed(extension(0, "os", "system", command))
    rows = [(ids[0], *with_channel("msgpack", hostile, ids[0])), (ids[1], "pickle", pickle.dumps(Pickled(command)))]
    file = sqlite_file(tmp_path / "source", rows)
    run = [
        sys.executable,
        "-m",
        "backtrail.cli",
        "import",
        "-s",
        str(tmp_path / "store.db"),
        "langgraph-sqlite",
        str(file),
    ]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 checkpoint imported, 0 unchanged, 1 skipped" in done.stdout
    assert "copied as plain data: os.system" in done.stdout
    assert not (tmp_path / "it-ran").exists()
    with backtrail.open(tmp_path / "store.db") as store:
        assert store.thread("t").load()["x"] == command
