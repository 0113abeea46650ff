"""The state machine, on the engines that need no server."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

import backtrail
from backtrail.testing.state_machine import StoreMachine

_SETTINGS = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


class MemoryMachine(StoreMachine):
    def open_store(self) -> backtrail.Store:
        return backtrail.open("memory:")


class SQLiteMachine(StoreMachine):
    def open_store(self) -> backtrail.Store:
        self.folder = tempfile.TemporaryDirectory()
        return backtrail.open(Path(self.folder.name) / "machine.db", durability="normal")

    def reopen_store(self, store: backtrail.Store) -> backtrail.Store:
        store.close()
        return backtrail.open(Path(self.folder.name) / "machine.db", durability="normal")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class CompressedMachine(SQLiteMachine):
    def open_store(self) -> backtrail.Store:
        self.folder = tempfile.TemporaryDirectory()
        return backtrail.open(Path(self.folder.name) / "machine.db", durability="normal", compression="zstd")


TestMemory = MemoryMachine.TestCase
TestMemory.settings = _SETTINGS
TestSQLite = SQLiteMachine.TestCase
TestSQLite.settings = _SETTINGS
TestCompressed = CompressedMachine.TestCase
TestCompressed.settings = settings(_SETTINGS, max_examples=15)
