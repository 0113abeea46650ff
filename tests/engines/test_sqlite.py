"""The SQLite engine keeps the engine contract."""

from __future__ import annotations

from pathlib import Path

from backtrail.engines.base import Engine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.testing.contract import DurableEngineContract


class TestSQLite(DurableEngineContract):
    def make_engine(self, directory: Path) -> Engine:
        return SQLiteEngine(directory / "store.db", durability="normal")
