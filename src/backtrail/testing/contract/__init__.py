"""The contract suite: every sentence of `backtrail.engines.base`, as tests that any engine can be bound to.

    class TestMyEngine(DurableEngineContract):
        def make_engine(self, directory: Path) -> Engine:
            return MyEngine(directory / "store")

`directory` is a fresh one for each case. An engine on a server makes a private schema or prefix from its name. Each
case runs in every mode that `modes` lists: a blocking engine is driven directly and in threads, an engine that awaits
its client sets `modes = ("awaited",)`.
"""

from __future__ import annotations

import pytest

# Before the cases are imported, so that a failing assert shows its values.
for _module in "leases", "lifetimes", "listing", "racing", "reading", "sweeping", "writing":
    pytest.register_assert_rewrite(f"{__name__}.{_module}")

from backtrail.testing.contract.binding import Binding, case  # noqa: E402
from backtrail.testing.contract.leases import LeaseCases  # noqa: E402
from backtrail.testing.contract.lifetimes import DurableCases, LifetimeCases  # noqa: E402
from backtrail.testing.contract.listing import ListingCases  # noqa: E402
from backtrail.testing.contract.racing import RacingCases  # noqa: E402
from backtrail.testing.contract.reading import ReadingCases  # noqa: E402
from backtrail.testing.contract.sweeping import SweepingCases  # noqa: E402
from backtrail.testing.contract.writing import WritingCases  # noqa: E402

__all__ = ["Binding", "DurableEngineContract", "EngineContract", "case"]


class EngineContract(WritingCases, ReadingCases, ListingCases, SweepingCases, LeaseCases, RacingCases, LifetimeCases):
    """The cases that every engine must pass."""


class DurableEngineContract(EngineContract, DurableCases):
    """The cases for an engine whose store outlives it and may be opened twice at once."""
