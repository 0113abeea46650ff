"""Some dozens of kills on each engine that survives a process, over both APIs; `make run-kills` does thousands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backtrail.run.run_core import RunCore
from backtrail.run.run_state import Entry
from fix_stores import address
from run_kills.rounds import Api, Rounds

pytestmark = [pytest.mark.slow, pytest.mark.linux]  # a dead process is known by /proc


def rounds_on(engine: str, api: Api, tmp_path: Path, request: pytest.FixtureRequest) -> Rounds:
    url, options = address(engine, f"kills_{api}", tmp_path, request)
    return Rounds(str(url), options, api, tmp_path, f"{engine} {api}")


@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("engine", ["sqlite", "jsonl", "redis", "postgres"])
def test_no_step_that_returned_is_done_again_however_its_process_is_killed(
    engine: str, api: Api, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds = rounds_on(engine, api, tmp_path, request)
    rounds.play(8)
    assert rounds.findings == []
    assert rounds.counts["kills"] >= 8
    assert rounds.counts["effects"] > 0


def test_the_harness_finds_a_record_that_was_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    async def forget(core: RunCore, entry: Entry) -> None:
        core.recording.add(entry.record)  # in memory only
        core._queue.remove(entry)

    monkeypatch.setattr(RunCore, "flush", forget)
    rounds = rounds_on("sqlite", "sync", tmp_path, request)
    rounds.play(20)
    found: list[Any] = [one for one in rounds.findings if "was done again after it had returned" in one]
    assert found
