"""Fixtures of the adapters' tests, which run where the frameworks are installed: `make test-adapters`.

Elsewhere the whole folder is ignored. Where LangGraph is installed all frameworks must be: a missing one is an error.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from fix_stores import APIS, EVERY_ENGINE, address, open_stores

if importlib.util.find_spec("langgraph") is None:
    collect_ignore_glob = ["*.py"]

StoreOpener = Callable[[], AbstractAsyncContextManager[Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about deprecated calls that frameworks make; our own warnings stay errors."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for ignored in ("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning", "ignore::UserWarning"):
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreOpener:
    """Opens a store inside a running event loop, on each engine, sync and async. Each call opens another, empty one."""
    engine, _, api = request.param.partition("-")
    url, options = ("memory:", {}) if engine == "memory" else address(engine, api, tmp_path, request)
    number = 0

    @asynccontextmanager
    async def open_one() -> AsyncIterator[Any]:
        nonlocal number, url, options
        number += 1
        if number > 1 and engine != "memory":
            directory = tmp_path.with_name(f"{tmp_path.name}-{number}")
            directory.mkdir(exist_ok=True)
            url, options = address(engine, api, directory, request)
        if api == "blocking":
            with backtrail.open(url, **options) as store:
                yield store
        else:
            async with await backtrail.aio.open(url, **options) as store:
                yield store

    return open_one


@pytest.fixture
def run_async() -> Callable[[Awaitable[Any]], Any]:
    """Runs a coroutine to its end."""

    async def run(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    return lambda awaitable: asyncio.run(run(awaitable))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A sync store, for tests that do not depend on the engine."""
    for opener in open_stores(request.param, "blocking", tmp_path, request):
        yield opener()


@pytest.fixture(params=["sqlite", "jsonl"])
def reopen_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Opens the same store at each call, as a restarted process does."""
    yield from open_stores(request.param, "blocking", tmp_path, request)
