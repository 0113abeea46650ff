"""Reads the sessions in opencode's database: strictly, without changing it, and while opencode may be writing to it.

A message and its parts are rows of two tables, each with JSON in it. They are put together as `opencode export` does:
`{"info": {…}, "parts": […]}`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from backtrail.importers.model import BadFile

_MAX_VALUE = 1 << 28  # bytes of one value, which is read into memory
_SESSIONS = "SELECT id, directory, parent_id FROM session ORDER BY time_created, id"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id"
_TABLES = {
    "session": {"id", "directory", "parent_id", "time_created"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}


class OpencodeSession(msgspec.Struct, frozen=True):
    """A row of the table of sessions."""

    id: str
    directory: str | None
    sub_agent: bool


@contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """The database, read-only; `BadFile` if it is none of opencode's, or is damaged."""
    file = Path(path)
    if file.is_symlink() or not file.is_file():
        raise BadFile("it is a link or not a regular file, which is not followed: name the file itself")
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=5)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            connection.execute("PRAGMA trusted_schema = OFF")
            _check_tables(connection)
            yield connection
    except (sqlite3.Error, OverflowError) as error:
        raise BadFile(f"it cannot be read as opencode's database: {error}") from error


def _check_tables(connection: sqlite3.Connection) -> None:
    """Refuse a database without the tables and columns that are read: another version, or not opencode's. What is
    queried must be a table, because a view could run anything."""
    for table, columns in _TABLES.items():
        found = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if found != ("table",):
            raise BadFile(f"it has no table {table!r}: opencode's database was expected")
        known = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if lacking := columns - known:
            raise BadFile(f"its table {table!r} has no column {min(lacking)!r}: this version of opencode is not known")


def list_sessions(connection: sqlite3.Connection) -> list[OpencodeSession]:
    """The sessions, oldest first."""
    return [
        OpencodeSession(id, directory if type(directory) is str else None, parent is not None)
        for id, directory, parent in connection.execute(_SESSIONS)
        if type(id) is str
    ]


def read_messages(connection: sqlite3.Connection, session: str) -> list[dict[str, Any]]:
    """The messages of a session, oldest first; a row that holds no JSON object is a message or part without content."""
    parts: dict[Any, list[dict[str, Any]]] = {}
    for id, message, data in connection.execute(_PARTS, (session,)):
        parts.setdefault(message, []).append({**_object(data), "id": id, "sessionID": session, "messageID": message})
    return [
        {"info": {**_object(data), "id": id, "sessionID": session}, "parts": parts.get(id, [])}
        for id, data in connection.execute(_MESSAGES, (session,))
    ]


def _object(data: Any) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if type(value) is dict else {}
