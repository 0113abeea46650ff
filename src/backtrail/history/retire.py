"""Retention as part of a save: the checkpoint that falls out of `keep_last` goes in the same commit that pushes it out.

The tip remembers which checkpoints are still within reach, so this costs no read and one mark. It is done only while
the thread is alone in its lineage: a new fork swaps its parent's head, so a commit that did not know of it is refused.
Lineages with forks, and the limits of age, are left to `prune` and the janitor.

What was marked is swept now and then, after about half as many marks as the lineage has rows, so that the work over all
saves stays in proportion to them; and never where that would take long.
"""

from __future__ import annotations

from collections import deque

from backtrail.engines.base import Mark
from backtrail.history.ancestry import Ancestry, SeenStep
from backtrail.history.caches import KeepLastWindow, Tip
from backtrail.history.context import Context
from backtrail.history.records import now_micros, removal
from backtrail.history.retention import protected, unpack_retention
from backtrail.model import Retention

_AT_ONCE = 64  # marks that one save makes at most, however many a new policy lets go of
_LEAST = 64  # marks that are worth a sweep
_MOST = 4096  # rows of a lineage that is swept within a save


def policy_of(context: Context, tip: Tip) -> Retention:
    """The thread's own policy, or the store's."""
    own = tip.note.retention
    return unpack_retention(own, f"the head of thread {tip.head.thread!r}") if own else context.retention


async def window_of(context: Context, tip: Tip | None) -> KeepLastWindow | None:
    """The line of a thread whose saves retire others; None for all others."""
    if tip is None:
        return KeepLastWindow(deque()) if context.retention.keep_last is not None else None
    policy = policy_of(context, tip)
    head = tip.head
    if policy.keep_last is None or head.kind == "workspace":
        return None
    if tip.keep_last is not None:
        return tip.keep_last
    if [other.key for other in await context.engine.heads(head.lineage)] != [head.key]:
        return None
    trail = await Ancestry.to(context, head, head.branch, head.step)
    seen: list[SeenStep] = [one async for one in trail.back()]
    waiting = ((one.branch.id, one.step.step, protected(policy, one)) for one in reversed(seen) if one.alive)
    return KeepLastWindow(deque(waiting), sum(1 for one in seen if not one.alive), len(seen))


def retire(context: Context, policy: Retention, line: KeepLastWindow) -> list[Mark]:
    """Marks on the checkpoints that the next save pushes out. The line is the caller's to throw away if that fails."""
    marks: list[Mark] = []
    limit = policy.keep_last or 1
    while len(line.waiting) >= limit and len(marks) < _AT_ONCE:
        branch, step, stays = line.waiting.popleft()
        if not stays:
            marks.append(removal(context.frames, branch, step, now_micros()))
    line.marked += len(marks)
    return marks


def due(line: KeepLastWindow) -> bool:
    """Whether it is time for a sweep."""
    return line.marked >= max(_LEAST, line.rows // 2) and line.rows <= _MOST
