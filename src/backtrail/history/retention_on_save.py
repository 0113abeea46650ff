"""Retention as part of a save: a checkpoint that `keep_last` no longer keeps is deleted in the same commit.

The cached tip lists the checkpoints that are still kept, so this costs one mark and no read. It is done only while the
thread is alone in its lineage: a new fork swaps its parent's head, so a commit planned before the fork is refused.
Lineages with forks, and limits of age, are left to `prune` and the janitor.

Deleted checkpoints are swept once there are about half as many marks as the lineage has rows, so that the total work
stays proportional to the number of saves; and never in a lineage so large that it would take long.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from backtrail.engines.base import Mark, Position
from backtrail.errors import BacktrailError
from backtrail.history.ancestry import Ancestry
from backtrail.history.caches import KeepLastWindow, Tip
from backtrail.history.context import Context
from backtrail.history.records import deletion, now_micros
from backtrail.history.retention import protected, unpack_retention
from backtrail.history.save_arguments import Facts
from backtrail.history.sweep import Sweeper
from backtrail.model import Retention

_MAX_MARKS = 64  # in one save, however many checkpoints a new policy stops keeping
_WORTH_A_SWEEP = 64  # marks
_MAX_SWEPT_ROWS = 4096  # of a lineage that is swept within a save


class Retired(NamedTuple):
    """The checkpoints that a save removes, and the window after it; None if saves apply no retention."""

    window: KeepLastWindow | None
    marks: list[Mark]


NONE = Retired(None, [])


async def retire(context: Context, tip: Tip | None, position: Position, facts: Facts) -> Retired:
    """Add the checkpoint at `position` to its thread's window, and remove those that fall out. This changes the window,
    which must be discarded if the commit fails."""
    policy = _policy_of(context, tip)
    window = await _window_of(context, tip, policy)
    if window is None or policy.keep_last is None:
        return NONE
    marks: list[Mark] = []
    while len(window.waiting) >= policy.keep_last and len(marks) < _MAX_MARKS:
        branch, step, stays = window.waiting.popleft()
        if not stays:
            marks.append(deletion(context.frames, context.generation, branch, step, now_micros()))
    window.marked += len(marks)
    window.waiting.append((*position, protected(policy, facts)))
    window.rows += 1
    return Retired(window, marks)


def _policy_of(context: Context, tip: Tip | None) -> Retention:
    """The thread's own policy, or the store's."""
    if tip is None or not tip.note.retention:
        return context.retention
    return unpack_retention(tip.note.retention, f"the head of thread {tip.head.thread!r}")


async def _window_of(context: Context, tip: Tip | None, policy: Retention) -> KeepLastWindow | None:
    """The window of a thread whose saves apply retention; None for any other."""
    if policy.keep_last is None or (tip is not None and tip.head.kind == "workspace"):
        return None
    if tip is None:
        return KeepLastWindow(deque())
    if tip.keep_last is not None:
        return tip.keep_last
    head = tip.head
    if [other.key for other in await context.engine.heads(head.lineage)] != [head.key]:
        return None
    steps = [one async for one in (await Ancestry.of(context, head)).steps_back()]
    waiting = ((*one.position, protected(policy, one.facts)) for one in reversed(steps) if one.alive)
    return KeepLastWindow(deque(waiting), sum(1 for one in steps if not one.alive), len(steps))


async def sweep_if_due(context: Context, lineage: str, window: KeepLastWindow) -> None:
    """Sweep the checkpoints that saves have removed, once there are enough of them. The save itself is done, so an
    error is only logged."""
    if window.marked < max(_WORTH_A_SWEEP, window.rows // 2) or window.rows > _MAX_SWEPT_ROWS:
        return
    if context.mirror is not None and not context.mirror.may_drop:
        return
    try:
        await Sweeper(context).lineage(lineage)
    except BacktrailError as error:
        import logging  # hardly any process needs it

        logging.getLogger(__name__).warning(
            "the sweep of %r after a save failed and is left to the next one: %s", lineage, error
        )
