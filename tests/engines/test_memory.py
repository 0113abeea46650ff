"""The memory engine keeps the contract."""

from __future__ import annotations

from pathlib import Path

from backtrail.engines.memory import MemoryEngine
from backtrail.testing.contract import EngineContract


class TestMemory(EngineContract):
    def make_engine(self, directory: Path) -> MemoryEngine:
        return MemoryEngine()


def test_it_says_that_nothing_outlives_it() -> None:
    properties = MemoryEngine().properties
    assert (properties.name, properties.blocking, properties.durable, properties.shared) == (
        "memory",
        True,
        False,
        False,
    )
