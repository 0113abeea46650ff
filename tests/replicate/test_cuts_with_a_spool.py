"""A mirror with a spool, and every fault at each of its calls in turn, as in test_cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_cut_scenarios import SCENARIOS
from fix_cuts import Kind, Scenario, cut_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("by_itself")]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_wherever_a_mirror_with_a_spool_is_cut_nothing_is_lost_and_the_sides_become_equal(
    scenario: Scenario, in_memory: Path
) -> None:
    cut_everywhere(scenario, Kind("blocking", "async", spool=True), in_memory)
