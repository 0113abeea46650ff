"""Sessions are tested on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same store again and again, through the sync and the async facade: `opener(**options)`."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)


@pytest.fixture(params=EVERY_ENGINE)
def blocking_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store through the sync facade, for callbacks: no blocking call can be made inside a running loop."""
    for opener in open_stores(request.param, "blocking", tmp_path, request):
        yield opener()


@pytest.fixture
def payload_reads() -> Callable[[Any], AbstractContextManager[list[tuple[int, int]]]]:
    """A context manager that records each read of payloads by a store: (rows asked for, bytes found)."""

    @contextmanager
    def record(store: Any) -> Iterator[list[tuple[int, int]]]:
        engine = store._core.context.engine
        payloads = engine.payloads
        reads: list[tuple[int, int]] = []

        async def recording(lineage: str, branch: bytes, first: int, last: int) -> Any:
            found = await payloads(lineage, branch, first, last)
            reads.append((last - first + 1, sum(len(data) for _, data in found)))
            return found

        engine.payloads = recording
        try:
            yield reads
        finally:
            del engine.payloads

    return record
