"""The adapters' tests run where the frameworks are installed: `make test-adapters`. Elsewhere the room is left alone;
there, a framework that is missing is a failure of the import, never a skip.
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
from fix_stores import COLOURS, EVERY_ENGINE, address, open_stores

if importlib.util.find_spec("langgraph") is None:
    collect_ignore_glob = ["*.py"]

Opened = Callable[[], AbstractAsyncContextManager[Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The frameworks' own use of what is deprecated in others is not ours to mend; our warnings stay errors."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for ignored in ("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning", "ignore::UserWarning"):
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(params=[f"{engine}-{colour}" for engine in EVERY_ENGINE for colour in COLOURS])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens a store inside a running event loop, on each engine and in each colour. A fresh one each time."""
    engine, _, colour = request.param.partition("-")
    place, options = ("memory:", {}) if engine == "memory" else address(engine, colour, tmp_path, request)
    number = 0

    @asynccontextmanager
    async def open_one() -> AsyncIterator[Any]:
        nonlocal number, place, options
        number += 1
        if number > 1 and engine != "memory":  # another store each time, in the way that each engine has for it
            place, options = address(engine, colour, tmp_path.with_name(f"{tmp_path.name}-{number}"), request)
            if engine in ("sqlite", "jsonl"):
                tmp_path.with_name(f"{tmp_path.name}-{number}").mkdir(exist_ok=True)
        if colour == "blocking":
            with backtrail.open(place, **options) as store:
                yield store
        else:
            async with await backtrail.aio.open(place, **options) as store:
                yield store

    return open_one


@pytest.fixture
def run() -> Callable[[Awaitable[Any]], Any]:
    """Runs one async test to its end."""

    async def whole(test: Awaitable[Any]) -> Any:
        return await test

    return lambda test: asyncio.run(whole(test))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A blocking store for what does not depend on the engine."""
    for opener in open_stores(request.param, "blocking", tmp_path, request):
        yield opener()


@pytest.fixture(params=["sqlite", "jsonl"])
def opener_twice(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Opens the same store again and again, as a process that starts anew would."""
    yield from open_stores(request.param, "blocking", tmp_path, request)
