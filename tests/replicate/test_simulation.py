"""A fixed number of simulated worlds, and tests of the simulation itself; `make simulate` plays as many as one likes.

The seeds are played by a process of their own, in which Python's hashes are the same each time: so a seed that fails
here fails in the same way by hand.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import backtrail
from simulate.checker import Failure, check
from simulate.loop import PROCESS, Process, SimulatedLoop
from simulate.plan import Operation, Plan, make_plan
from simulate.shrink import shrink
from simulate.story import Story
from simulate.world import World

SEEDS = 400
TESTS = Path(__file__).parent.parent


def _play(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Play seeds in a process of their own."""
    return subprocess.run(
        [sys.executable, "-m", "simulate", "--jobs", "1", *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("start", "replication", "spool"),
    [
        (506299, "sync", "--spool"),
        (510938, "sync", "--spool"),
        (520621, "async", "--spool"),
        (609957, "sync", "--spool"),
        (610556, "sync", "--no-spool"),
        (611792, "sync", "--spool"),
        (820027, "sync", "--spool"),
        (1000380, "async", "--no-spool"),
        (2001579, "async", "--no-spool"),
        (2002994, "async", "--spool"),
        (10000658, "sync", "--spool"),
        (10021409, "sync", "--spool"),
        (10036743, "async", "--spool"),
        (10037579, "async", "--no-spool"),
        (10061721, "sync", "--spool"),
        (12016446, "async", "--no-spool"),
        (15018524, "async", "--no-spool"),
        (16008584, "async", "--no-spool"),
        (50026503, "sync", "--no-spool"),
        (51029535, "sync", "--spool"),
        (51033286, "sync", "--spool"),
        (53053284, "sync", "--spool"),
        (57039717, "sync", "--spool"),
        (58019373, "sync", "--spool"),
    ],
)
def test_seeds_that_failed_once_keep_every_promise(start: int, replication: str, spool: str) -> None:
    played = _play("--seeds", "1", "--start", str(start), "--replication", replication, spool)
    assert played.returncode == 0, f"{played.stdout}{played.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("spool", ["--spool", "--no-spool"])
@pytest.mark.parametrize("replication", ["sync", "async"])
def test_every_promise_is_kept_whatever_goes_wrong(replication: str, spool: str) -> None:
    played = _play("--seeds", str(SEEDS), "--replication", replication, spool)
    again = f"make simulate SEED=… ARGS='--replication {replication} {spool}' makes one of them small, and tells it"
    assert played.returncode == 0, f"{played.stdout}{played.stderr}\n{again}"
    assert played.stdout.startswith(f"{SEEDS} seeds")


def test_a_seed_is_played_in_the_same_way_each_time() -> None:
    seed = next(seed for seed in range(100) if {"crash", "cut"} <= {fault.kind for fault in make_plan(seed).faults})
    stories = []
    for _ in range(2):
        world = World(make_plan(seed, spool=False), story := Story(reads=True))
        world.play()
        stories.append(story.text(world.ledger))
    assert stories[0] == stories[1]
    assert "dies" in stories[0]


# -- the checker ------------------------------------------------------------------------------------------------------


def played(*kinds: Any) -> World:
    """A world without faults, in which one process does this, one after the other."""
    operations = tuple(
        Operation(
            name=f"o{number}", process=0, lane=0, at=float(number), kind=kind, thread="apple", pick=0.0, to="pear"
        )
        for number, kind in enumerate(kinds)
    )
    plan = msgspec.structs.replace(
        make_plan(1, replication="sync", spool=False),
        operations=operations,
        faults=(),
        healed=len(operations) + 1.0,
        calm=True,
    )
    world = World(plan)
    assert world.play() == []
    return world


def found(world: World, engines: dict[str, Any]) -> set[str]:
    return {failure.kind for failure in check(world.plan, world.ledger, engines)}


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ("append", "an acknowledged save is lost"),
        ("save", "an acknowledged save is lost"),
        ("update", "an acknowledged save is lost"),
        ("fork", "an acknowledged fork is lost"),
        ("delete", "a deleted thread is back"),
        ("delete_at", "a deleted checkpoint is back"),
        ("prune", "a deleted checkpoint is back"),
        ("annotate", "an acknowledged annotation is lost"),
        ("rewind", "a head is elsewhere"),
    ],
)
def test_the_checker_finds_what_servers_do_not_have_that_missed_an_operation(last: str, kind: str) -> None:
    # The same seed makes the same ids: so the servers of the shorter world are those of the longer one, before its end.
    whole, missed = played("append", "append", last), played("append", "append")
    assert found(whole, whole.engines) == set()
    assert kind in found(whole, missed.engines)


def test_the_checker_finds_an_annotation_that_was_lost_to_one_that_it_had_replaced() -> None:
    whole, missed = played("append", "annotate", "annotate"), played("append", "annotate")
    assert found(whole, missed.engines) == {"an acknowledged annotation is lost"}


def test_the_checker_finds_sides_that_differ() -> None:
    whole, missed = played("append", "append"), played("append")
    mixed = {"primary": whole.engines["primary"], "replica": missed.engines["replica"]}
    assert found(whole, mixed) == {"the sides differ"}


def test_the_checker_finds_a_save_that_was_made_twice() -> None:
    world = played("append", "append")
    stores = [backtrail.open(engine) for engine in world.engines.values()]
    stores[0].thread("apple").append("messages", ["o1"])
    stores[0].sync_to(stores[1])
    assert found(world, world.engines) >= {"a save was made twice", "a message is twice in a state"}


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (backtrail.Corrupt("a row", "of a test"), {"an error that no caller may see"}),
        (RuntimeError("of a test"), {"an error that no caller may see"}),
        (backtrail.Unavailable("of a test"), {"unavailable without a fault"}),
        (backtrail.Conflict("apple"), set()),
    ],
)
def test_the_checker_finds_errors_that_a_caller_cannot_act_on(error: Exception, kinds: set[str]) -> None:
    world = played("append", "annotate", "annotate")
    world.ledger.calls[1].error = error
    assert found(world, world.engines) == kinds


# -- the rest of the simulation ---------------------------------------------------------------------------------------


def test_a_failing_plan_loses_everything_that_its_failure_does_not_need() -> None:
    plan = next(plan for plan in map(make_plan, range(100)) if len(plan.operations) > 10 and len(plan.faults) > 3)

    def play(smaller: Plan) -> list[Failure]:
        return [Failure("broken", "")] if {"o3", "o7", "f2"} <= {*smaller.names()} else []

    assert {*shrink(plan, play, "broken").names()} == {"o3", "o7", "f2"}


def test_a_process_that_is_stopped_goes_on_later_and_one_that_is_dead_never() -> None:
    loop = SimulatedLoop()
    begun, reached = loop.now, []

    async def live(process: Process) -> None:
        PROCESS.set(process)
        for _ in range(3):
            await asyncio.sleep(1.0)
            reached.append((process.name, loop.now - begun))

    async def main() -> None:
        processes = [Process(name) for name in ("well", "stopped", "dead")]
        for process in processes:
            loop.create_task(live(process))
        await asyncio.sleep(1.5)
        loop.stop_process(processes[1], 5.0)
        processes[2].dead = True
        await asyncio.sleep(20.0)

    loop.run_until_complete(main())
    at_first = [("well", 1.0), ("stopped", 1.0), ("dead", 1.0)]
    assert reached == [*at_first, ("well", 2.0), ("well", 3.0), ("stopped", 6.5), ("stopped", 7.5)]
