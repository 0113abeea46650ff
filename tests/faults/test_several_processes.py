"""Several processes use one mirror, and each sees something else of it: nothing acknowledged to any of them is lost.

`BACKTRAIL_FAULT_ROUNDS` multiplies the number of rounds, `BACKTRAIL_FAULT_SEED` selects others. A thousand by hand:

    PYTHONPATH=tests python -m several_processes --rounds 1000
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from backtrail.engines.base import Commit
from backtrail.engines.sqlite import SQLiteEngine
from several_processes.plan import Client, Plan, Setup, View, held
from several_processes.rounds import Result, rounds_of

TIMES = int(os.environ.get("BACKTRAIL_FAULT_ROUNDS", "1"))
SEED = os.environ.get("BACKTRAIL_FAULT_SEED", "7")
PAIRS = [("sqlite", "sqlite"), ("redis", "postgres"), ("postgres", "sqlite"), ("jsonl", "sqlite")]
MODES = ["sync", "async"]
SPOOLS: tuple[Literal["none", "mixed", "all"], ...] = ("none", "mixed", "all")

pytestmark = pytest.mark.slow


def play(setup: Callable[..., Setup], folder: Path, rounds: int) -> list[Result]:
    """So many rounds, without a spool, with one for some clients and with one for all in turn."""
    with rounds_of(setup(spool="none"), folder) as played:
        results = []
        for number in range(rounds):
            played.setup = setup(spool=SPOOLS[number % 3])
            results.append(played.play(f"{SEED}.{number}"))
    return results


def report(results: list[Result]) -> None:
    """Everything that was found, where its story is, and how to play that round again."""
    found = [f"seed {result.seed}, {result.folder}\n{result}" for result in results if result.findings]
    assert not found, "\n\n".join(found)
    assert sum(result.counts.get("save", 0) for result in results) > len(results)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("primary", "replica"), PAIRS)
def test_whatever_each_of_several_processes_sees_nothing_acknowledged_is_lost(
    primary: str, replica: str, mode: Any, tmp_path: Path
) -> None:
    def setup(**options: Any) -> Setup:
        return Setup(primary=primary, replica=replica, replication=mode, **options)

    report(play(setup, tmp_path, 3 * TIMES))


@pytest.mark.nightly
@pytest.mark.parametrize("api", ["blocking", "async"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("primary", "replica"), PAIRS)
def test_long_rounds_of_several_processes_lose_nothing_either(
    primary: str, replica: str, mode: Any, api: Any, tmp_path: Path
) -> None:
    def setup(**options: Any) -> Setup:
        return Setup(primary=primary, replica=replica, replication=mode, api=api, seconds=20, **options)

    report(play(setup, tmp_path, 6 * TIMES))


ONE_SIDE_EACH: tuple[tuple[View, View], ...] = (("up", "away"), ("away", "up"), ("away", "away"))


def hold(primary: str, replica: str, mode: Any, seconds: float, folder: Path) -> None:
    setup = Setup(primary=primary, replica=replica, replication=mode, spool="all", seconds=seconds)
    with rounds_of(setup, folder) as played:
        report([played.play_plan(held(setup, SEED, ONE_SIDE_EACH))])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("primary", "replica"), PAIRS[:2])
def test_one_sees_only_the_primary_one_only_the_replica_one_neither_and_then_all_is_one(
    primary: str, replica: str, mode: Any, tmp_path: Path
) -> None:
    hold(primary, replica, mode, 1.0, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("primary", "replica"), PAIRS)
def test_minutes_of_a_partition_in_which_each_sees_another_side_become_one(
    primary: str, replica: str, mode: Any, tmp_path: Path
) -> None:
    hold(primary, replica, mode, 120.0, tmp_path)


def test_an_engine_that_forgets_some_commits_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The whole harness, with a fault that is known: one commit in thirty is acknowledged, and not made."""
    true, made = SQLiteEngine.commit, iter(range(1 << 30))

    async def commit(self: SQLiteEngine, commit: Commit) -> None:
        if next(made) % 30 != 29:
            await true(self, commit)

    monkeypatch.setattr(SQLiteEngine, "commit", commit)
    monkeypatch.setattr("several_processes.client.SETTLING", 1.0)  # it never will
    setup = Setup(primary="sqlite", replica="sqlite", spool="none", seconds=3.0)
    one = Client(number=0, seed=1, asynchronous=False)
    with rounds_of(setup, tmp_path) as played:
        result = played.play_plan(Plan(setup=setup, seed=SEED, clients=(one,), events=()))
    assert {"lost save", "sides differ"} & {finding.kind for finding in result.findings}
