"""A mirror with a spool, and every fault at each of its calls in turn, as in test_cuts; and some of them on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_cut_scenarios import SCENARIOS
from fix_cuts import FILES, Kind, Scenario, cut_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("by_itself")]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_wherever_a_mirror_with_a_spool_is_cut_nothing_is_lost_and_the_sides_become_equal(
    scenario: Scenario, in_memory: Path
) -> None:
    cut_everywhere(scenario, Kind("blocking", "async", spool=True), in_memory)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", FILES, ids=str)
def test_cuts_between_two_files_lose_nothing_either(kind: Kind, scenario: Scenario, in_memory: Path) -> None:
    """Each fault at some calls: test_cuts_nightly has them all."""
    cut_everywhere(scenario, kind, in_memory, every=23)
