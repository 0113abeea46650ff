"""Stores for tests whose callbacks use the store themselves: a blocking call cannot be made inside a running loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fix_stores import ENGINES, open_stores


@pytest.fixture(params=ENGINES)
def blocking_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store on each engine, through the blocking door."""
    for opener in open_stores(request.param, "blocking", tmp_path):
        yield opener()
