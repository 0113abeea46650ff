"""Runs are tested on every engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backtrail.history import records
from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of stores forward by some seconds."""
    ahead = [0]

    def set_forward(seconds: float) -> None:
        ahead[0] += round(seconds * 1_000_000_000)

    monkeypatch.setattr(records, "clock", lambda: time.time_ns() + ahead[0])
    return set_forward


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same store again and again, through the sync and the async facade: `opener(**options)`."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)
