"""The SQLite engine keeps the engine contract."""

from __future__ import annotations

from pathlib import Path

from clew.engines.base import Engine
from clew.engines.sqlite import SQLiteEngine
from clew.testing.contract import DurableEngineContract


class TestSQLite(DurableEngineContract):
    def make_engine(self, place: Path) -> Engine:
        return SQLiteEngine(place / "store.db", durability="normal")
