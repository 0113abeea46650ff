"""Runs that a worker does: submitting one, submitting a failed one again, and those whose time has come."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.errors import Conflict, InvalidInput, ThreadNotFound
from backtrail.history.checkpoint_ids import new_id, uuid_text
from backtrail.history.context import Context
from backtrail.history.records import now_micros
from backtrail.history.run_status import KINDS, STATUS
from backtrail.history.save_arguments import NO_FACTS
from backtrail.history.store_core import list_heads
from backtrail.history.validation import check_limit, check_name
from backtrail.run.listing import DUE, RUNS, SUBMITTED, RunInfo
from backtrail.run.run_core import RunCore
from backtrail.run.run_state import ENDED, ERROR, INPUT, RESULT, TOKEN
from backtrail.run.times import to_micros

WAITING = ("sleeping", "waiting")  #: statuses in which a run has a time at which it goes on
_PAGE = 1000


async def submit(
    context: Context,
    task: str,
    input: Any = None,
    id: str | None = None,
    at: float | dt.timedelta | dt.datetime | None = None,
) -> RunCore:
    """Begin a run for a worker, now or at a time. If there is a run of this id, it is that one."""
    check_name(task, "task")
    now = now_micros()
    core = RunCore(context, uuid_text(new_id(now)) if id is None else id, task)
    core.submitted, core.loaded, core.token = True, True, os.urandom(16)
    due = 0 if at is None else to_micros(at, "at", now) or 0
    fields = {**core.state(), TOKEN: core.token, SUBMITTED: True, INPUT: input}
    fields |= {STATUS: "sleeping", DUE: due} if due > now else {STATUS: "ready"}

    def plan(planner: Planner) -> PlannedRow:
        return planner.change(fields)

    try:
        await core.thread.save_plan(plan, NO_FACTS, expect=None)
    except Conflict:
        return await _existing(context, core.id, task)
    core.saved, core.status, core.due = True, *(("sleeping", due) if due > now else ("ready", 0))
    core.input = core.copy_of(input)  # not the caller's object, which may change
    return core


async def _existing(context: Context, id: str, task: str) -> RunCore:
    core = RunCore(context, id)
    await core.load()
    if core.task != task:
        raise InvalidInput(f"run {id!r} exists, for the task {core.task!r:.80}: choose another id for {task!r:.80}")
    return core


async def resubmit(context: Context, id: str) -> RunCore:
    """Make a failed run ready again: the steps it has done are kept, the one that failed is done again."""
    core = RunCore(context, id)
    if not await core.load():
        raise ThreadNotFound(
            core.id, f"run {core.id!r} does not exist: store.runs(status='failed') lists those to retry"
        )
    if core.status != "failed":
        raise InvalidInput(f"run {core.id!r} is {core.status}: only a failed run is submitted again")

    def plan(planner: Planner) -> PlannedRow:
        return planner.change({STATUS: "ready", SUBMITTED: True}, drop=(ERROR, ENDED, RESULT, DUE))

    await core.save(plan)
    core.status, core.submitted, core.error = "ready", True, None
    return core


async def due(context: Context, prefix: str = "", limit: int | None = None) -> list[RunInfo]:
    """Runs whose time has come, the longest overdue first: they slept, or a question of theirs has expired. All runs
    that sleep or wait are looked at, by their heads."""
    now, found = now_micros(), list[RunInfo]()
    for status in WAITING:
        after: str | None = None
        while page := await list_heads(context, prefix, _PAGE, after, KINDS[status], exact=True):
            after = page[-1].thread
            for head in page:
                if 0 < (await RUNS.schedule(context, head)).due <= now:
                    found.append(await RUNS.info(context, head))
    found.sort(key=lambda info: (info.due_at, info.id))
    return found[: check_limit(limit)]
