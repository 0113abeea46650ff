"""A pytest plugin: in LangGraph's own tests, every checkpointer is a `BacktrailSaver`.

The names of LangGraph's savers are replaced before its tests are imported, so its fixtures and its tests make ours:
each one on a store of its own, of the engine that `SUITE_ENGINE` names. What their constructors take beyond ours is
accepted and ignored. `AsyncSqliteSaver` and `AsyncPostgresSaver` are made on an `AsyncStore`, all others on a `Store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import langgraph.checkpoint.memory
import langgraph.checkpoint.postgres
import langgraph.checkpoint.postgres.aio
import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio
import psycopg
import pytest
from langgraph.checkpoint.memory import PersistentDict
from psycopg import sql

import backtrail
import backtrail.aio
from backtrail.adapters.langgraph import BacktrailSaver

ENGINE = os.environ["SUITE_ENGINE"]
SERVER = os.environ.get("SUITE_SERVER", "")
_WORKER = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}"


class Stores:
    """The stores of the running test."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="backtrail-suite-"))
        self._names = itertools.count()
        self._opened: list[Any] = []
        self._schemas = 0

    def address(self) -> tuple[str, dict[str, Any]]:
        """The URL and options of another, empty store."""
        name = f"store{next(self._names)}"
        if ENGINE == "memory":
            return "memory:", {}
        if ENGINE == "sqlite":
            return str(self._directory / f"{name}.db"), {"durability": "normal"}
        if ENGINE == "jsonl":
            return f"jsonl:{self._directory / name}", {"durability": "normal"}
        if ENGINE == "redis":
            return SERVER, {"prefix": f"suite:{_WORKER}:{name}"}
        # Making a schema takes much longer than emptying it: each test uses those of the tests before.
        schema = f"suite_{_WORKER}_{self._schemas}"
        self._schemas += 1
        with psycopg.connect(SERVER, autocommit=True) as admin:
            found = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'store'"
            for (table,) in admin.execute(found, [schema]).fetchall():
                admin.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, table)))
        return SERVER, {"schema": schema}

    def open(self) -> backtrail.Store:
        url, options = self.address()
        store = backtrail.open(url, **options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self._opened.clear()
        self._schemas = 0

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


STORES = Stores()


class _BoundSaver(BacktrailSaver):
    """A saver on a store of its own, with the constructors of the stock ones."""

    def __init__(self, *_: Any, serde: Any = None, store: Any = None, **__: Any) -> None:
        super().__init__(STORES.open() if store is None else store, serde=serde)
        self.stack = contextlib.ExitStack()

    @classmethod
    @contextmanager
    def from_conn_string(cls, *_: Any, serde: Any = None, **__: Any) -> Iterator[_BoundSaver]:
        yield cls(serde=serde)

    def setup(self) -> None:
        """A store needs none."""

    def __enter__(self) -> _BoundSaver:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    async def __aenter__(self) -> _BoundSaver:
        return self

    async def __aexit__(self, *raised: object) -> None:
        return None


class MemoryBoundSaver(_BoundSaver):
    """In place of `InMemorySaver`. Its async methods call the sync ones, so that a subclass overrides only those."""

    async def aget_tuple(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self.get_tuple, *args, **kwargs)

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self.put, *args, **kwargs)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self.put_writes, *args, **kwargs)

    async def aget_delta_channel_history(self, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self.get_delta_channel_history, **kwargs)


class SqliteBoundSaver(_BoundSaver):
    """In place of `SqliteSaver`."""


class PostgresBoundSaver(_BoundSaver):
    """In place of `PostgresSaver`."""


class AsyncBoundSaver(_BoundSaver):
    """In place of the async savers: on an `AsyncStore`."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, *_: Any, serde: Any = None, **__: Any) -> AsyncIterator[_BoundSaver]:  # type: ignore[override]
        url, options = STORES.address()
        async with await backtrail.aio.open(url, **options) as store:
            yield cls(serde=serde, store=store)

    async def setup(self) -> None:  # type: ignore[override]
        """A store needs none."""


for module, names, bound in (
    (langgraph.checkpoint.memory, ("InMemorySaver", "MemorySaver"), MemoryBoundSaver),
    (langgraph.checkpoint.sqlite, ("SqliteSaver",), SqliteBoundSaver),
    (langgraph.checkpoint.postgres, ("PostgresSaver",), PostgresBoundSaver),
    (langgraph.checkpoint.sqlite.aio, ("AsyncSqliteSaver",), AsyncBoundSaver),
    (langgraph.checkpoint.postgres.aio, ("AsyncPostgresSaver",), AsyncBoundSaver),
):
    for name in names:
        setattr(module, name, bound)
assert PersistentDict is not None  # LangGraph's tests import it with the saver


def pytest_runtest_teardown(item: pytest.Item) -> None:
    STORES.close()


def pytest_unconfigure() -> None:
    STORES.remove()
