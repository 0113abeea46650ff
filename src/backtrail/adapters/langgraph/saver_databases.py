"""Reads the databases of LangGraph's own savers, SQLite and PostgreSQL: strictly, and without changing them.

The tables are read with plain queries in a read-only connection; the savers themselves would create tables, and their
serializer would build whatever a row names. Each row is checked, because anybody may have written it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from backtrail.adapters.langgraph.strict_values import StrictValues
from backtrail.engines.server_url import check_server_url, public_url
from backtrail.errors import InvalidInput, MissingExtra, Unavailable, UnsupportedFormat

_MAX_VALUE = 1 << 29  # bytes of one value, which is read into memory
_ADDRESSES = "SELECT checkpoint_id, thread_id, checkpoint_ns FROM checkpoints"
_SQLITE_CHECKPOINT = (
    "SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints"
    " WHERE checkpoint_id = ? AND thread_id = ? AND checkpoint_ns = ?"
)
_SQLITE_WRITES = (
    "SELECT task_path, task_id, idx, channel, type, value FROM writes"
    " WHERE checkpoint_id = ? AND thread_id = ? AND checkpoint_ns = ?"
)
_POSTGRES_CHECKPOINT = (
    "SELECT parent_checkpoint_id, checkpoint::text, metadata::text FROM checkpoints"
    " WHERE checkpoint_id = %s AND thread_id = %s AND checkpoint_ns = %s"
)
_POSTGRES_BLOBS = (
    "SELECT b.channel, b.type, b.blob FROM checkpoints c, jsonb_each_text(c.checkpoint -> 'channel_versions') v"
    " JOIN checkpoint_blobs b ON b.channel = v.key AND b.version = v.value"
    " WHERE c.checkpoint_id = %s AND c.thread_id = %s AND c.checkpoint_ns = %s"
    " AND b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns"
)
_POSTGRES_WRITES = (
    "SELECT task_path, task_id, idx, channel, type, blob FROM checkpoint_writes"
    " WHERE checkpoint_id = %s AND thread_id = %s AND checkpoint_ns = %s"
)
_SHALLOW_ADDRESSES = "SELECT checkpoint ->> 'id', thread_id, checkpoint_ns FROM checkpoints"
_SHALLOW_CHECKPOINT = (
    "SELECT NULL, checkpoint::text, metadata::text FROM checkpoints"
    " WHERE checkpoint ->> 'id' = %s AND thread_id = %s AND checkpoint_ns = %s"
)
_SHALLOW_BLOBS = (
    "SELECT b.channel, b.type, b.blob FROM checkpoints c, jsonb_object_keys(c.checkpoint -> 'channel_versions') v"
    " JOIN checkpoint_blobs b ON b.channel = v"
    " WHERE c.checkpoint ->> 'id' = %s AND c.thread_id = %s AND c.checkpoint_ns = %s"
    " AND b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns"
)
_TASKS = "__pregel_tasks"  # the channel of LangGraph's `Send`


class Address(NamedTuple):
    """Names one checkpoint. In the order of addresses, parents precede their children."""

    id: str
    thread_id: str
    ns: str


class StoredWrite(NamedTuple):
    """One pending write. LangGraph applies writes in the order of their first three fields."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Any


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint as a saver's database has it."""

    parent: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[StoredWrite]


class SaverDatabase(Protocol):
    """What a migration needs of a database."""

    def addresses(self) -> list[Address]:
        """Every checkpoint. The parts may be no text: they are as they are stored."""

    def read(self, address: Address) -> StoredCheckpoint | None:
        """A checkpoint; None if it is gone. `UnsupportedFormat` if it cannot be read safely."""


class SqliteDatabase:
    """The file of a `SqliteSaver` or `AsyncSqliteSaver`."""

    def __init__(self, connection: sqlite3.Connection, values: StrictValues) -> None:
        self._connection = connection
        self._values = values
        self._check_tables()
        columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
        self._select_writes = _SQLITE_WRITES if "task_path" in columns else _SQLITE_WRITES.replace("task_path", "''")

    @classmethod
    @contextmanager
    def open(cls, path: str, values: StrictValues) -> Iterator[SqliteDatabase]:
        """Open a file for reading; neither it nor a file beside it is changed."""
        if not Path(path).is_file():
            raise InvalidInput(f"{path!r} is not a file")
        file = Path(path).resolve()
        logs = [Path(f"{file}{suffix}") for suffix in ("-wal", "-journal")]
        # Without a log nobody is writing, and SQLite need not take locks, for which it would create files.
        quiet = not any(map(os.path.exists, logs))
        before = file.stat()
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable={int(quiet)}", uri=True)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("PRAGMA cell_size_check = ON")
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                yield cls(connection, values)
        except sqlite3.Error as error:
            raise UnsupportedFormat(f"{path!r} cannot be read as a SQLite database: {error}") from error
        after = file.stat()
        if quiet and (
            any(map(os.path.exists, logs)) or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
        ):
            raise Unavailable(f"{path!r} was written to while it was read: repeat the import")

    def _check_tables(self) -> None:
        """Views, virtual tables and generated columns compute what a query returns: only tables are read."""
        for table in ("checkpoints", "writes"):
            found = self._connection.execute(
                "SELECT type, rootpage FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchall()
            if len(found) != 1 or found[0][0] != "table" or not found[0][1]:
                raise UnsupportedFormat(f"the file is not the database of a LangGraph saver: it has no table {table!r}")
            columns = self._connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
            if any(column[6] for column in columns):
                raise UnsupportedFormat(f"the table {table!r} has computed columns, which no LangGraph saver creates")
            needed = {"thread_id", "checkpoint_ns", "checkpoint_id", "type"}
            if not needed <= {column[1] for column in columns}:
                raise UnsupportedFormat(
                    f"the table {table!r} has other columns than LangGraph's savers write since langgraph 0.2"
                )

    def addresses(self) -> list[Address]:
        return list(map(Address._make, self._connection.execute(_ADDRESSES)))

    def read(self, address: Address) -> StoredCheckpoint | None:
        row = self._connection.execute(_SQLITE_CHECKPOINT, address).fetchone()
        if row is None:
            return None
        parent, kind, data, metadata = row
        stored = self._connection.execute(self._select_writes, address).fetchall()
        return _checked(
            parent,
            self._values.decode(kind, data),
            self._read_metadata(metadata),
            [(*one[:4], self._values.decode(*one[4:])) for one in stored],
        )

    def _read_metadata(self, stored: Any) -> Any:
        return {} if stored is None else _from_json(self._values, stored)


class PostgresDatabase:
    """The database of a `PostgresSaver` or `AsyncPostgresSaver`."""

    _addresses, _checkpoint, _blobs = _ADDRESSES, _POSTGRES_CHECKPOINT, _POSTGRES_BLOBS

    def __init__(self, connection: Any, values: StrictValues, *, has_path: bool) -> None:
        self._connection = connection
        self._values = values
        self._select_writes = _POSTGRES_WRITES if has_path else _POSTGRES_WRITES.replace("task_path", "''")

    @classmethod
    @contextmanager
    def open(cls, url: str, values: StrictValues) -> Iterator[PostgresDatabase]:
        """Connect for reading: the server refuses every change."""
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtra("importing from langgraph-postgres", "postgres") from error
        check_server_url(url)
        try:
            with psycopg.connect(url, prepare_threshold=None) as connection:
                connection.read_only = True
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                yield cls._of_layout(connection, values)
                connection.rollback()
        except psycopg.ProgrammingError as error:
            raise UnsupportedFormat(f"{public_url(url)} has other tables than a LangGraph saver's") from error
        except psycopg.Error as error:
            raise Unavailable(f"{public_url(url)} cannot be read: {type(error).__name__}") from error

    @staticmethod
    def _of_layout(connection: Any, values: StrictValues) -> PostgresDatabase:
        found = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = ANY(current_schemas(false))"
            " AND table_name IN ('checkpoints', 'checkpoint_blobs', 'checkpoint_writes')"
        ).fetchall()
        every_saver = {("checkpoints", "metadata"), ("checkpoint_blobs", "channel"), ("checkpoint_writes", "idx")}
        if not every_saver <= set(found):
            raise UnsupportedFormat("the database has no tables of LangGraph's PostgresSaver")
        with_history = {("checkpoints", "checkpoint_id"), ("checkpoint_blobs", "version")} <= set(found)
        layout = PostgresDatabase if with_history else ShallowPostgresDatabase
        return layout(connection, values, has_path=("checkpoint_writes", "task_path") in found)

    def addresses(self) -> list[Address]:
        return list(map(Address._make, self._connection.execute(self._addresses)))

    def read(self, address: Address) -> StoredCheckpoint | None:
        row = self._connection.execute(self._checkpoint, address).fetchone()
        if row is None:
            return None
        parent, checkpoint, metadata = row[0], _from_json(self._values, row[1]), _from_json(self._values, row[2])
        _require(_is_named(checkpoint), "the checkpoint")
        blobs = self._connection.execute(self._blobs, address).fetchall()
        inline = checkpoint.get("channel_values") or {}
        _require(_is_named(inline), "its channels")
        values = {channel: self._values.decode(kind, data) for channel, kind, data in blobs if kind != "empty"}
        checkpoint = {**checkpoint, "channel_values": {**inline, **values}}
        stored = _checked(parent, checkpoint, metadata, self._writes(self._select_writes, address))
        if checkpoint.get("v", 4) < 4:
            _add_sends(stored.checkpoint, self._writes_before(address, stored.parent))
        return stored

    def _writes(self, query: str, address: Address) -> list[tuple[Any, ...]]:
        rows = self._connection.execute(query, address).fetchall()
        return [(*row[:4], self._values.decode(*row[4:])) for row in rows]

    def _writes_before(self, address: Address, parent: str | None) -> list[tuple[Any, ...]]:
        """The writes from which a checkpoint was made."""
        return self._writes(self._select_writes, address._replace(id=parent)) if parent is not None else []


class ShallowPostgresDatabase(PostgresDatabase):
    """The database of a `ShallowPostgresSaver`: it has the newest checkpoint of each thread, whose id is only in its
    JSON, and one value of each channel. The writes of the checkpoint before are kept."""

    _addresses, _checkpoint, _blobs = _SHALLOW_ADDRESSES, _SHALLOW_CHECKPOINT, _SHALLOW_BLOBS

    def _writes_before(self, address: Address, parent: str | None) -> list[tuple[Any, ...]]:
        return self._writes(self._select_writes.replace("checkpoint_id =", "checkpoint_id <>"), address)


def _add_sends(checkpoint: dict[str, Any], of_parent: list[tuple[Any, ...]]) -> None:
    """Before version 4 of LangGraph's checkpoints, its `Send`s were the writes of the checkpoint's parent."""
    sends = [write[4] for write in sorted(of_parent, key=lambda write: write[:3]) if write[3] == _TASKS]
    if sends:
        versions = checkpoint["channel_versions"]
        checkpoint["channel_values"][_TASKS] = sends
        versions[_TASKS] = max(versions.values(), default="1")


def _from_json(values: StrictValues, text: Any) -> Any:
    if not isinstance(text, bytes | str):
        raise UnsupportedFormat("the metadata of a checkpoint is not JSON")
    try:
        return values.decode_json(text)
    except (ValueError, RecursionError) as error:
        raise UnsupportedFormat(f"the metadata of a checkpoint is not JSON: {error}") from error


def _checked(parent: Any, checkpoint: Any, metadata: Any, writes: list[tuple[Any, ...]]) -> StoredCheckpoint:
    """The parts of a checkpoint, if each has the type that LangGraph gives it."""
    _require(parent is None or type(parent) is str, "the parent's id")
    _require(_is_named(checkpoint), "the checkpoint")
    _require(type(checkpoint.get("v", 1)) is int, "its version")
    _require(type(checkpoint.get("ts", "")) is str, "its time")
    _require(_is_named(checkpoint.get("channel_values")), "its channels")
    _require(_are_versions(checkpoint.get("channel_versions")), "the versions of its channels")
    seen = checkpoint.get("versions_seen")
    _require(_is_named(seen) and all(map(_are_versions, seen.values())), "the versions that its nodes have seen")
    _require(_is_named(metadata), "its metadata")
    for path, task, index, channel, _ in writes:
        _require(all(type(text) is str for text in (path, task, channel)) and type(index) is int, "a pending write")
    return StoredCheckpoint(
        parent or None, checkpoint, metadata, sorted((StoredWrite(*write) for write in writes), key=_order)
    )


def _order(write: StoredWrite) -> tuple[str, str, int]:
    return write[:3]


def _require(sound: bool, what: str) -> None:
    if not sound:
        raise UnsupportedFormat(f"{what} is not what a LangGraph saver writes")


def _is_named(value: Any) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)


def _are_versions(value: Any) -> bool:
    """True for versions by channel; all are of one type, so that they can be compared."""
    kinds = {type(version) for version in value.values()} if _is_named(value) else {None}
    return kinds <= {str} or kinds <= {int, float}
