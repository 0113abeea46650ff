"""The schema of a store and its queries: SQL from files, with only the schema's name filled in.

The schema is created and migrated under an advisory lock, so any number of processes may start at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from psycopg import sql

from backtrail.engines.postgres.client import Run
from backtrail.errors import InvalidInput, UnsupportedFormat

#: Script n migrates the tables from format n - 1 to format n; a new store runs them all.
MIGRATIONS: Sequence[str] = ("0001_first.sql",)
#: The key of the advisory lock under which schemas are made: "btrl" in ASCII.
LOCK = 0x6274726C

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_QUERY = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- |\Z)", re.MULTILINE | re.DOTALL)


def newest() -> int:
    """The format that this version of backtrail writes."""
    return len(MIGRATIONS)


class Schema:
    """A schema by name."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"schema {name!r} must be lower-case letters, digits and _, and begin with no digit")
        self.name = name
        self._queries = {query: self._fill(text) for query, text in _QUERY.findall(_read("queries.sql"))}

    def _fill(self, text: str) -> bytes:
        return sql.SQL(text.strip()).format(schema=sql.Identifier(self.name)).as_bytes(None)

    def __getitem__(self, query: str) -> bytes:
        return self._queries[query]

    async def prepare(self, run: Run) -> None:
        """Create the tables, or migrate them; runs inside a transaction."""
        await run("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        encoding = (await run("SHOW server_encoding", None))[0][0]
        if encoding != "UTF8":
            raise UnsupportedFormat(f"the database has the encoding {encoding}: backtrail needs one with UTF8")
        before = await self.format(run)
        if before == 0:
            await run(self._fill("CREATE SCHEMA IF NOT EXISTS {schema}"), None)
        if before == newest():
            return
        for script in MIGRATIONS[before:]:
            await run(self._fill(_read(script)), None)
        await run(self._fill(_read("functions.sql")), None)
        await run(self._fill("UPDATE {schema}.store SET format = %s"), [newest()])

    async def format(self, run: Run) -> int:
        """The format of the existing store; 0 if there is none."""
        # Not to_regclass(): that may use a snapshot from before we got the lock.
        if not await run("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'store'", [self.name]):
            return 0
        found = await run(self._fill("SELECT format FROM {schema}.store"), None)
        number = int(found[0][0])
        if number > newest():
            raise UnsupportedFormat(f"the schema {self.name!r} was written by a newer backtrail: install that one")
        return number


def _read(file: str) -> str:
    return resources.files(__package__).joinpath("sql", file).read_text(encoding="utf-8")
