"""What a connection refuses before it is used, because the file may come from somebody else.

A schema is code. A trigger changes rows whenever ours are written, a view in the place of a table may compute for ever,
a generated column or an index on an expression calls functions. So the schema must be exactly the one that our
migrations make: any other object is named and refused. Reading the schema has a limit, since damaged or hostile pages
may lead in circles.
"""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from blake3 import blake3

from backtrail.engines.sqlite import migrations
from backtrail.errors import Corrupt, UnsupportedFormat

#: Instructions of SQLite's machine for opening a store: a thousand times what its schema takes.
MAX_WORK = 2_000_000
_TURN = 20_000  # instructions between two looks at that limit
_SHOWN = 5  # objects that a message names

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
#: What SQLite itself adds if somebody runs ANALYZE.
_STATISTICS = {
    ("table", "sqlite_stat1", "sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("table", "sqlite_stat4", "sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
}
#: SQLite's defensive mode: no statement can write to the schema's own table. The driver has it from Python 3.12 on.
_DEFENSIVE: int | None = getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE", None)

Entry = tuple[str, str, str, str]  # type, name, table, SQL
Rows = list[tuple[Any, Any, Any, Any]]
_sound: dict[tuple[str, ...], Rows] = {}  # the last good schema, by the scripts that make it


def harden(connection: sqlite3.Connection) -> None:
    """Let a connection trust the file as little as SQLite can."""
    connection.execute("PRAGMA trusted_schema = OFF")  # functions in a schema must be harmless ones
    connection.execute("PRAGMA cell_size_check = ON")  # damaged pages are found when they are read
    if _DEFENSIVE is not None:
        connection.setconfig(_DEFENSIVE, True)  # type: ignore[attr-defined]


@contextmanager
def limited(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Inside the block, SQLite may do only as much as it takes to open a store of ours."""
    turns = iter(range(MAX_WORK // _TURN))
    connection.set_progress_handler(lambda: next(turns, None) is None, _TURN)
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:  # damaged text has no code
            raise Corrupt(str(path), "its list of tables has no end") from error
        raise
    finally:
        connection.set_progress_handler(None, 0)


def check_schema(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Refuse a store whose schema is not exactly that of this format."""
    scripts = tuple(migrations.SCRIPTS[:version])
    rows = connection.execute(_SCHEMA).fetchall()
    if rows == _sound.get(scripts) or digest(rows) == migrations.SCHEMAS.get(version):  # nearly always
        _sound[scripts] = rows
        return
    found, expected = _entries(rows), _expected(scripts)
    if found == expected:
        _sound[scripts] = rows
        return
    extra = [entry for entry in (found - expected).elements() if entry not in _STATISTICS]
    names = {entry[:2] for entry in expected}
    strange = [_shown(entry) for entry in extra if entry[:2] not in names]
    changed = [_shown(entry) for entry in extra if entry[:2] in names]
    missing = [_shown(entry) for entry in expected - found if entry[:2] not in {other[:2] for other in extra}]
    wrong = [
        f"{what} {', '.join(sorted(some)[:_SHOWN])}{', …' if len(some) > _SHOWN else ''}"
        for what, some in (("it also has", strange), ("it has another", changed), ("it lacks", missing))
        if some
    ]
    if wrong:
        raise UnsupportedFormat(
            f"{path} is not as backtrail makes a store: {'; '.join(wrong)}. If you made this yourself, undo it with "
            "the sqlite3 program; otherwise do not trust this file. It was left untouched"
        )


def digest(rows: Rows) -> str:
    """A digest of a schema, by which the usual one is known without making it."""
    return blake3(repr(rows).encode(errors="surrogatepass")).hexdigest(16)


@functools.cache
def _expected(scripts: tuple[str, ...]) -> Counter[Entry]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        if scripts:
            migrations.run(connection, scripts)
        return _entries(connection.execute(_SCHEMA).fetchall())


def _entries(rows: Rows) -> Counter[Entry]:
    return Counter(
        (str(kind), str(name), str(table), " ".join(str(sql or "").split())) for kind, name, table, sql in rows
    )


def _shown(entry: Entry) -> str:
    return f"{entry[0][:20]} {entry[1][:60]!r}"
