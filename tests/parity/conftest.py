"""The features of the seeds (S0 to S4), each tested on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """A function that opens the same store again and again: `opener(**options)`."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)
