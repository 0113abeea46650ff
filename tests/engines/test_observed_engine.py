"""An observed engine does all that the engine inside of it does."""

from __future__ import annotations

from pathlib import Path

from backtrail.engines.memory import MemoryEngine
from backtrail.history.observation import ObservedEngine
from backtrail.telemetry import Telemetry
from backtrail.testing.contract import EngineContract


class TestObserved(EngineContract):
    def make_engine(self, directory: Path) -> ObservedEngine:
        return ObservedEngine(MemoryEngine(), Telemetry())
