"""Saves in a store with a replica: one may have been made on the other side, or can only be spooled for now."""

from __future__ import annotations

from functools import partial
from typing import Any

from backtrail.encode.planner import Planner
from backtrail.errors import Unavailable
from backtrail.history.caches import Tip
from backtrail.history.save import find_saved, save_plan
from backtrail.history.save_arguments import Facts, OnConflict
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.model import Checkpoint


async def is_adrift(thread: ThreadHandle[S]) -> bool:
    """True if saves go to the spool: also from now on, because neither side tells where the thread is."""
    spool = thread.context.spool
    if spool is not None and not spool.adrift:
        await spool.base(thread.id)
    return spool is not None and spool.adrift


async def save_adrift(
    thread: ThreadHandle[S],
    state: Any,
    facts: Facts,
    tried: bytes | None,
    *,
    expect: Any,
    on_conflict: OnConflict,
    parent: Any,
) -> Checkpoint:
    """Save the whole state into the spool while both sides are unreachable. All of it is written, because the previous
    state cannot be read for comparison. `tried`: the id of the attempt before, which a side may have."""
    plan = partial(Planner.rewrite_all, state=state)
    return await save_plan(thread, plan, facts, expect=expect, on_conflict=on_conflict, parent=parent, repeats=tried)


async def find_on_either_side(thread: ThreadHandle[S], tip: Tip, id: bytes) -> Checkpoint | None:
    """The checkpoint of an attempt that seemed to fail but succeeded. On the other side of the mirror, another writer
    may even have built on it. `Unavailable` if that cannot be told: the save would be made twice."""
    try:
        return await find_saved(thread, tip, id)
    except Unavailable:
        spool = thread.context.spool
        if spool is None or not spool.adrift or tip.note.checkpoint == id:
            raise
        return None  # it goes to the spool, whose delivery recognizes it by its id
