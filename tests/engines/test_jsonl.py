"""The JSONL engine keeps the engine contract."""

from __future__ import annotations

from pathlib import Path

from backtrail.engines.base import Engine
from backtrail.engines.jsonl import JSONLEngine
from backtrail.testing.contract import DurableEngineContract


class TestJSONL(DurableEngineContract):
    def make_engine(self, directory: Path) -> Engine:
        return JSONLEngine(directory / "store", durability="normal")
