"""The schema of a store and its queries: SQL from files, with only the schema's name filled in.

The schema is created and migrated under an advisory lock, so any number of processes may start at once.

A schema is code, and others may have the right to change it: a trigger or a view that is not ours, or another function
under a name of ours, could lose what was acknowledged. So the objects of the schema are compared with ours when a store
is opened, by the query that also looks for the store.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from psycopg import sql

from backtrail.engines.postgres.client import Run
from backtrail.errors import InvalidInput, UnsupportedFormat

#: Script n migrates the tables from format n - 1 to format n; a new store runs them all.
MIGRATIONS: Sequence[str] = ("0001_first.sql",)
#: The key of the advisory lock under which schemas are made: "btrl" in ASCII.
LOCK = 0x6274726C

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FUNCTION = re.compile(r"FUNCTION \S+\.(\w+)\(.*?\$body\$(.*?)\$body\$", re.DOTALL)
_TRIGGER = re.compile(r"CREATE (?:CONSTRAINT )?TRIGGER (\w+)")
_SHOWN = 5  # objects that a message names
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
        scripts = self._fill("\n".join(map(_read, (*MIGRATIONS, "functions.sql")))).decode()
        self._functions = {(name, hashlib.sha256(body.encode()).digest()) for name, body in _FUNCTION.findall(scripts)}
        self._triggers = set(_TRIGGER.findall(scripts))

    def _fill(self, text: str) -> bytes:
        names = {"schema": sql.Identifier(self.name), "schema_name": sql.Literal(f'"{self.name}"')}
        return sql.SQL(text.strip()).format(**names).as_bytes(None)

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
        objects = await run(self["objects"], [self.name])
        if not any(kind == "store" for kind, _, _ in objects):
            return 0
        found = await run(self._fill("SELECT format FROM {schema}.store"), None)
        number = int(found[0][0])
        if number > newest():
            raise UnsupportedFormat(f"the schema {self.name!r} was written by a newer backtrail: install that one")
        current = number == newest()
        if self._strange(objects, current=current):
            # The objects may be those from before a migration that ended before the format was read: look again.
            objects = await run(self["objects"], [self.name])
        strange = self._strange(objects, current=current)
        if strange:
            more = ", …" if len(strange) > _SHOWN else ""
            raise UnsupportedFormat(
                f"the schema {self.name!r} is not as backtrail makes it: look at {', '.join(strange[:_SHOWN])}{more}. "
                "If you made this yourself, undo it; otherwise do not trust this database. Nothing was changed"
            )
        return number

    def _strange(self, objects: Iterable[Sequence[Any]], *, current: bool) -> Sequence[str]:
        """What is not ours. A migration replaces all functions, so those of an older format may differ."""
        strange = []
        functions = set()
        for kind, name, source in objects:
            if kind == "function":
                functions.add((name, source))
            elif kind != "store" and not (kind == "trigger" and name in self._triggers):
                strange.append(f"{kind} {name!r}")
        if current:
            strange += sorted(f"function {name!r}" for name, _ in functions ^ self._functions)
        return list(dict.fromkeys(strange))


def _read(file: str) -> str:
    return resources.files(__package__).joinpath("sql", file).read_text(encoding="utf-8")
