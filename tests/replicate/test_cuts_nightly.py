"""More cuts than CI has the time for: two faults at once, a sample of pairs.

`BACKTRAIL_FAULT_ROUNDS` multiplies the number of pairs, `BACKTRAIL_FAULT_SEED` selects others.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fix_cut_scenarios import SCENARIOS
from fix_cuts import FILES, KINDS, Kind, Scenario, play

TIMES = int(os.environ.get("BACKTRAIL_FAULT_ROUNDS", "1"))
SEED = os.environ.get("BACKTRAIL_FAULT_SEED", "7")
PAIRS = 500  # for each scenario and kind of mirror

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("by_itself")]


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
