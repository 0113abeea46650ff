"""A mirror with every fault at each of its calls in turn: afterwards both sides have every acknowledged save, once.

A scenario is played once to count the calls that it makes to its two sides, and then, for each of them, once with each
fault. With a spool, and on files: the tests beside this one. With two faults at once: test_cuts_nightly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import backtrail
from fix_cut_scenarios import SCENARIOS, failover
from fix_cuts import Calls, Kind, Scenario, World, cut_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("by_itself")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", [Kind("blocking", "sync"), Kind("awaiting", "sync")], ids=str)
def test_wherever_a_mirror_is_cut_nothing_is_lost_and_the_sides_become_equal(
    kind: Kind, scenario: Scenario, in_memory: Path
) -> None:
    cut_everywhere(scenario, kind, in_memory)


def test_the_checker_sees_what_is_missing_and_what_only_one_side_has() -> None:
    world = World(Calls(), "blocking")
    failover(world)
    world.settle()
    world.check()
    world.saves["never made"] = ("t", "nowhere")
    with pytest.raises(AssertionError, match="never made is lost"):
        world.check()
    del world.saves["never made"]
    backtrail.open(world.engines[0]).thread("t").append("messages", ["only here"])
    with pytest.raises(AssertionError):
        world.check()
    world.close()
