"""A mirror with every fault at each of its calls in turn: afterwards both sides have every acknowledged save, once.

A scenario is played once to count the calls that it makes to its two sides, and then, for each of them, once with each
fault. `make test-nightly` does the same on files, and with two faults at once: a sample of all pairs, which
`BACKTRAIL_FAULT_ROUNDS` multiplies and `BACKTRAIL_FAULT_SEED` selects.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import backtrail
from fix_cuts import SCENARIOS, Calls, Kind, Scenario, World, failover, play

TIMES = int(os.environ.get("BACKTRAIL_FAULT_ROUNDS", "1"))
SEED = os.environ.get("BACKTRAIL_FAULT_SEED", "7")
PAIRS = 500  # of faults at once, for each scenario and kind of mirror
KINDS = [Kind("blocking", "sync"), Kind("blocking", "async", spool=True), Kind("awaiting", "sync")]
FILES = [kind._replace(sides="sqlite") for kind in KINDS]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("by_itself")]


def cut_everywhere(scenario: Scenario, kind: Kind, folder: Path, *, every: int = 1) -> None:
    """Each fault at each call; or at each n-th, beginning with another one for each fault."""
    calls = play(scenario, kind, folder)
    for number, way in enumerate(kind.ways):
        for at in range(1 + number % every, calls + 1, every):
            play(scenario, kind, folder, {at: way})


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_wherever_a_mirror_is_cut_nothing_is_lost_and_the_sides_become_equal(
    kind: Kind, scenario: Scenario, in_memory: Path
) -> None:
    cut_everywhere(scenario, kind, in_memory)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", FILES, ids=str)
def test_cuts_between_two_files_lose_nothing_either(kind: Kind, scenario: Scenario, in_memory: Path) -> None:
    cut_everywhere(scenario, kind, in_memory, every=23)


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", FILES, ids=str)
def test_wherever_two_files_are_cut_nothing_is_lost(kind: Kind, scenario: Scenario, in_memory: Path) -> None:
    cut_everywhere(scenario, kind, in_memory)


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", [*KINDS, *FILES], ids=str)
def test_two_cuts_at_once_lose_nothing(kind: Kind, scenario: Scenario, in_memory: Path) -> None:
    """The second is as often close behind the first as anywhere."""
    dice = random.Random(f"{SEED} {kind} {scenario.__name__}")
    calls = play(scenario, kind, in_memory)
    for _ in range(PAIRS * TIMES):
        first = dice.randint(1, calls)
        second = first + dice.randint(1, dice.choice((4, calls)))
        play(scenario, kind, in_memory, {first: dice.choice(kind.ways), second: dice.choice(kind.ways)})


def test_the_checker_sees_what_is_missing_and_what_only_one_side_has() -> None:
    world = World(Calls(), "blocking")
    failover(world)
    world.settle()
    world.check(pruned=False)
    world.saves["never made"] = ("t", "nowhere")
    with pytest.raises(AssertionError, match="never made is lost"):
        world.check(pruned=False)
    del world.saves["never made"]
    backtrail.open(world.engines[0]).thread("t").append("messages", ["only here"])
    with pytest.raises(AssertionError):
        world.check(pruned=False)
    world.close()
