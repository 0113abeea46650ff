"""Leaves out of a failing plan whatever the failure does not need.

Halves, quarters and so on of its operations and faults are left out, down to single ones (delta debugging), as long as
a promise of the same kind is broken. A smaller plan may need other delays in the network to fail; so several are tried.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .checker import Failure
from .plan import Plan

Play = Callable[[Plan], list[Failure]]
_NOISES = 6  # other delays that are tried for each smaller plan


def shrink(plan: Plan, play: Play, kind: str, most: int = 4000) -> Plan:
    """The smallest plan that was found to break a promise of this kind, in at most so many runs."""
    left = most

    def fails(candidate: Plan) -> Plan | None:
        nonlocal left
        for noise in range(_NOISES):
            if left <= 0:
                return None
            left -= 1
            tried = msgspec.structs.replace(candidate, noise=noise or candidate.noise)
            if any(failure.kind == kind for failure in play(tried)):
                return tried
        return None

    for simpler in ({"calm": True}, {"linger": 0.0}):
        plan = fails(msgspec.structs.replace(plan, **simpler)) or plan
    names = plan.names()
    parts = 2
    while names:
        size = max(1, len(names) // parts)
        for first in range(0, len(names), size):
            rest = names[:first] + names[first + size :]
            smaller = fails(plan.only({*rest}))
            if smaller is not None:
                plan, names, parts = smaller, rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(names), parts * 2)
    return _without_idle_processes(plan, fails)


def _without_idle_processes(plan: Plan, fails: Callable[[Plan], Plan | None]) -> Plan:
    """Processes that do nothing are left out from the last one on, where the failure allows it."""
    while plan.processes > 1:
        last = plan.processes - 1
        if any(one.process == last for one in (*plan.operations, *plan.faults)):
            break
        fewer = fails(msgspec.structs.replace(plan, processes=last))
        if fewer is None:
            break
        plan = fewer
    return plan
