"""Finished runs are kept for as long as retention says; a replay of one is a test in one line."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import backtrail


def test_a_finished_run_is_deleted_after_thirty_days_and_others_stay(store: Any, later: Any) -> None:
    with store.run("finished") as run:
        run.step("s", lambda: 1)
    with pytest.raises(ZeroDivisionError), store.run("failed") as run:
        run.step("s", lambda: 1 / 0)
    store.submit("t", id="ready")
    later(29 * 86_400)
    assert store.prune().threads == 0
    later(2 * 86_400)
    assert store.prune().threads == 1
    assert sorted(info.id for info in store.runs(status="all")) == ["failed", "ready"]


def test_the_time_that_finished_runs_are_kept_can_be_chosen(store: Any, later: Any) -> None:
    store.run("a").finish("x")
    later(3600)
    assert store.prune(backtrail.Retention(finished_runs=None), dry_run=True).threads == 0
    assert store.prune("finished_runs=keep", dry_run=True).threads == 0
    assert store.prune(backtrail.Retention(finished_runs=dt.timedelta(minutes=5)), dry_run=True).threads == 1
    store.thread("a").retain(backtrail.Retention(finished_runs=dt.timedelta(minutes=5)))
    assert store.prune("finished_runs=30d", dry_run=True).threads == 0
    assert store.prune().threads == 1
    with pytest.raises(backtrail.InvalidInput):
        backtrail.Retention(finished_runs=dt.timedelta(days=-1))


PROGRAMS = """
pytest_plugins = ()

def program(run, input):
    return run.step("count", len, input)

async def later(run, input):
    return await run.step("count", len, input)

def changed(run, input):
    return run.step("other", len, input)

def test_same(replays):
    replays("s.db", "r", program)

def test_async(replays):
    replays("s.db", "r", later)

def test_changed(replays):
    replays("s.db", "r", changed)
"""


@pytest.mark.slow
def test_a_replay_is_one_line_in_pytest(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as store:
        store.submit("t", "text", id="r")
        store.work({"t": lambda run, input: run.step("count", len, input)}, drain=True)
    (tmp_path / "test_it.py").write_text(PROGRAMS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run([*command, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed" in ran.stdout, ran.stdout
    assert "expected step 'count', got step 'other'" in ran.stdout
