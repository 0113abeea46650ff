"""Sessions are tested on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """A function that opens the same store again and again: `opener(**options)`."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)


@pytest.fixture(params=EVERY_ENGINE)
def blocking_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store through the blocking door, for callbacks: no blocking call can be made inside a running loop."""
    for opener in open_stores(request.param, "blocking", tmp_path, request):
        yield opener()
