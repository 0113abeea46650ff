"""Imports are tested on every engine, sync and async."""

from __future__ import annotations

import json
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


def write_lines(path: Path, rows: list[Any]) -> Path:
    """Write a JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
