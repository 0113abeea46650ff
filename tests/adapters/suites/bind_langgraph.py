"""A pytest plugin: in LangGraph's own tests, every checkpointer is a `BacktrailSaver`.

The names of LangGraph's savers are replaced before its tests are imported, so its fixtures and its tests make ours:
each one on a store of its own. What their constructors take beyond ours is
accepted and ignored. `AsyncSqliteSaver` and `AsyncPostgresSaver` are made on an `AsyncStore`, all others on a `Store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.checkpoint.memory
import langgraph.checkpoint.postgres
import langgraph.checkpoint.postgres.aio
import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio
import pytest
from bound_stores import end_test, new_address, new_store

import backtrail.aio
from backtrail.adapters.langgraph import BacktrailSaver

os.environ["NO_DOCKER"] = "true"  # else LangGraph's tests ask for servers at fixed ports


class _BoundSaver(BacktrailSaver):
    """A saver on a store of its own, with the constructors of the stock ones."""

    def __init__(self, *_: Any, serde: Any = None, store: Any = None, **__: Any) -> None:
        super().__init__(new_store() if store is None else store, serde=serde)
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

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> Any:
        return await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

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
        url, options = new_address()
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


class _NoServer:
    """In place of psycopg's connections and pools in LangGraph's tests: ours need no database of theirs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @classmethod
    def connect(cls, *_: Any, **__: Any) -> _NoServer:
        return cls()

    def execute(self, *_: Any, **__: Any) -> _NoServer:
        return self

    def pipeline(self) -> _NoServer:
        return self

    def __enter__(self) -> _NoServer:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> _NoServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __await__(self) -> Any:
        yield from ()
        return self


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for node in {item.parent for item in items if "test_prune_postgres" in item.nodeid}:
        node.own_markers[:] = [mark for mark in node.own_markers if mark.name != "skipif"]  # that asks for their server
    conftests = {sys.modules.get(f"tests.{name}") for name in ("conftest", "conftest_checkpointer")}
    modules = {getattr(item, "module", None) for item in items} | conftests
    for module in modules:
        if getattr(module, "__name__", "").startswith("tests."):
            for name in ("Connection", "AsyncConnection", "ConnectionPool", "AsyncConnectionPool"):
                if hasattr(module, name):
                    setattr(module, name, _NoServer)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    end_test()
