"""A mirror of two files, with every fault at each of its calls in turn, as test_cuts has it in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fix_cut_scenarios import SCENARIOS
from fix_cuts import FILES, Kind, Scenario, cut_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("by_itself")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", [kind for kind in FILES if not kind.spool], ids=str)
def test_wherever_two_files_are_cut_nothing_is_lost_and_the_sides_become_equal(
    kind: Kind, scenario: Scenario, in_memory: Path
) -> None:
    cut_everywhere(scenario, kind, in_memory)
