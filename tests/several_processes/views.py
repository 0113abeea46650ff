"""Who could know what: when each client may have seen each side, and so when an operation may have reached a side.

All of it is generous: a side that a client sees for a part of a moment is seen, and calls that were under way when the
view changed may still arrive for a while. So "could not know" is sure.
"""

from __future__ import annotations

import math

from several_processes.ledger import Operation
from several_processes.plan import View

LATE = 2.0  # seconds after a change of view within which a call from before may arrive
SIDES = (0, 1)


class Views:
    """Spans in which clients may have seen sides."""

    def __init__(self, spools: list[int | None]) -> None:
        """With the number of each client's spool: what one puts there, another may deliver."""
        self._spools = spools
        self._spans: list[tuple[list[tuple[float, float]], list[tuple[float, float]]]] = [
            ([(-math.inf, math.inf)], [(-math.inf, math.inf)]) for _ in spools
        ]

    def change(self, client: int, side: int, view: View, at: float, *, stopped: bool = False) -> None:
        """From now on the client has this view. `stopped`: it does not run, and wakes up in the middle of a call."""
        spans = self._spans[client][side]
        begin, end = spans[-1]
        if view in ("away", "silent"):
            if end == math.inf:
                spans[-1] = (begin, math.inf if stopped else at + LATE)
        elif end != math.inf:
            spans.append((at, math.inf))

    def first(self, client: int, side: int, since: float) -> float:
        """When the client may first see the side, from `since` on."""
        return min((max(since, begin) for begin, end in self._spans[client][side] if end >= since), default=math.inf)

    def first_both(self, since: float) -> float:
        """When anybody may first see both sides at once, from `since` on."""
        moments = [
            max(since, one[0], two[0])
            for spans in self._spans
            for one in spans[0]
            for two in spans[1]
            if min(one[1], two[1]) >= max(since, one[0], two[0])
        ]
        return min(moments, default=math.inf)

    def reaches(self, operation: Operation) -> tuple[float, float]:
        """When the work of an operation may first be at either side."""
        own = self._spools[operation.client]
        sharing = [client for client, spool in enumerate(self._spools) if own is not None and spool == own]
        first = [
            min(self.first(client, side, operation.begin) for client in {operation.client, *sharing}) for side in SIDES
        ]
        return (min(first[0], self.first_both(first[1])), min(first[1], self.first_both(first[0])))

    def could_know(self, operation: Operation, other: Operation) -> bool:
        """A side that may have taken `operation` may have had the work of `other` by then."""
        reached = self.reaches(other)
        return any(
            self.first(operation.client, side, operation.begin) <= operation.end and reached[side] <= operation.end
            for side in SIDES
        )
