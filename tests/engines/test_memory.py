"""The memory engine keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtrail.engines import dict_engine
from backtrail.engines.base import Head
from backtrail.engines.memory import MemoryEngine
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step
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


def test_a_page_after_a_save_looks_at_the_thread_that_was_saved_and_not_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, looked_at = MemoryEngine(), list[str]()
    for number in range(500):
        step(engine.commit(sample_records.first(sample_records.branch(f"t{number:03}"), updated=1000 + number)))
    newest = [head.thread for head in step(engine.threads(newest_first=True, limit=3))]
    assert newest == ["t499", "t498", "t497"]
    age = dict_engine._age

    def looking(head: Head) -> tuple[int, str]:
        looked_at.append(head.thread)
        return age(head)

    monkeypatch.setattr(dict_engine, "_age", looking)
    at = sample_records.branch("t007")
    before = step(engine.head("t007"))
    assert before is not None
    step(engine.commit(sample_records.following(before, at)))
    assert [head.thread for head in step(engine.threads(newest_first=True, limit=2))] == ["t007", "t499"]
    assert [head.thread for head in step(engine.threads(after="t006", limit=1, kind="thread"))] == ["t007"]
    assert set(looked_at) == {"t007"}
    assert step(engine.count("t00")) == 10
