"""The schema as numbered scripts: script n migrates a store from format n - 1 to format n.

A store's format is its `user_version`; the table `migrations` records when each script was run. A new store runs them
all, an older one runs those it lacks, in one transaction. Released scripts never change.

A process of an older backtrail may still have the store open, and does not check the format again. So a script that
changes the meaning of a table also changes its name or its columns: then every statement of that process fails.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence

SCRIPTS: Sequence[str] = ("0001_first.sql",)
#: The schemas that they make, by format (`schema_check.digest`): known without running them.
SCHEMAS: dict[int, str] = {1: "685d24f1f772c5338e726c5c694516fc"}

_LOG = """
CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, script TEXT NOT NULL, applied INTEGER NOT NULL)"""


def newest() -> int:
    """The format that this version of backtrail writes."""
    return len(SCRIPTS)


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a store to the newest format, in one transaction. The caller locks out other writers."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        version = int(execute("PRAGMA user_version").fetchone()[0])
        run(connection, SCRIPTS[version:], version + 1)
        execute(f"PRAGMA user_version = {newest():d}")
        execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            execute("ROLLBACK")
        raise


def run(connection: sqlite3.Connection, scripts: Sequence[str], first: int = 1) -> None:
    """Run scripts, the first of which makes format `first`."""
    connection.execute(_LOG)
    for number, script in enumerate(scripts, first):
        for statement in statements(_read(script)):
            connection.execute(statement)
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, script, time.time_ns() // 1000))


def statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says a statement ends (`executescript` would commit the transaction first)."""
    start = 0
    for end, character in enumerate(script, 1):
        if character == ";" and sqlite3.complete_statement(script[start:end]):
            yield script[start:end]
            start = end


def _read(script: str) -> str:
    from pkgutil import get_data  # not at every start of a process; and importlib.resources would import zipfile

    data = get_data(__name__, script)
    assert data is not None
    return data.decode()
