"""Stores for tests, on each engine and over each API.

Tests are written once, against the blocking names. Over the async API a store is wrapped so that each call runs on an
event loop to its end; results that can be awaited are awaited.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import backtrail
import backtrail.aio

ENGINES = ["memory", "sqlite"]
EVERY_ENGINE = [*ENGINES, "jsonl", "redis", "postgres"]
APIS = ["blocking", "async"]
Opener = Callable[..., Any]


class Stepped:
    """An async object seen as a blocking one."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.__dict__.update(inner=inner, loop=loop)

    def __getattr__(self, name: str) -> Any:
        return self._finish(getattr(self.inner, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def _finish(self, value: Any) -> Any:
        if type(value).__module__.startswith("backtrail") and type(value).__name__.startswith("Async"):
            return Stepped(value, self.loop)
        if inspect.isawaitable(value):
            return self._finish(self.loop.run_until_complete(_await(value)))
        if inspect.ismethod(value) or inspect.isfunction(value):
            return lambda *args, **kwargs: self._finish(
                value(*map(_inner, args), **{name: _inner(each) for name, each in kwargs.items()})
            )
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._finish(self.inner(*args, **kwargs))

    def __len__(self) -> int:
        return int(self.loop.run_until_complete(self.inner.count()))

    def __enter__(self) -> Any:
        return self._finish(self.inner.__aenter__())

    def __exit__(self, *raised: Any) -> Any:
        return self._finish(self.inner.__aexit__(*raised))


async def _await(value: Any) -> Any:
    return await value


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, Stepped) else value


@pytest.fixture(params=[f"{engine}-{api}" for engine in ENGINES for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """A function that opens the same store again and again: `opener(**options)`."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)


def address(engine: str, api: str, tmp_path: Path, request: pytest.FixtureRequest | None) -> tuple[Any, dict[str, Any]]:
    """The URL of the store of one test, and the options that make it quick."""
    if engine == "sqlite":
        return tmp_path / "store.db", {"durability": "normal"}
    if engine == "jsonl":
        return f"jsonl:{tmp_path.with_name(tmp_path.name + '-store')}", {"durability": "normal"}
    assert request is not None
    if engine == "redis":
        prefix = hashlib.blake2b(str(tmp_path).encode(), digest_size=9).hexdigest()
        return request.getfixturevalue("redis_server").url, {"prefix": f"stores:{prefix}"}
    schema = f"stores_{api}"
    server = request.getfixturevalue("postgres_server")
    with psycopg.connect(server.url, autocommit=True) as admin:  # making a schema takes much longer than emptying it
        found = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'store'"
        for (table,) in admin.execute(found, [schema]).fetchall():
            admin.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, table)))
    return server.url, {"schema": schema}


def open_stores(
    engine: str, api: str, tmp_path: Path, request: pytest.FixtureRequest | None = None
) -> Iterator[Opener]:
    url, quick = (None, {}) if engine == "memory" else address(engine, api, tmp_path, request)
    loop = asyncio.new_event_loop()
    opened: list[Any] = []
    shared: list[Any] = []

    def open_one(**options: Any) -> Any:
        target: Any = url
        if engine == "memory":
            if not shared:
                from backtrail.engines.memory import MemoryEngine

                shared.append(MemoryEngine())
            target = shared[0]
        else:
            options = {**quick, **options}
        if api == "blocking":
            store: Any = backtrail.open(target, **options)
        else:
            store = Stepped(loop.run_until_complete(backtrail.aio.open(target, **options)), loop)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def store(opener: Opener) -> Any:
    """An empty store, on each engine and over each API."""
    return opener()


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store on every engine, servers included, and over each API; `store` is for what no engine can change."""
    engine, _, api = request.param.partition("-")
    for open_one in open_stores(engine, api, tmp_path, request):
        yield open_one()
