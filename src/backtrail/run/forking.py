"""A fork of a run: it has what the run had before a step, and goes on from there.

Each step is a row, so a fork before a step is a fork of the thread at the row before. The rows are found by bisection:
the number of recorded steps never goes down along a history. Steps that ended together are in one row; those of them
that come before the step are added to the fork.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.row_format import Inline, ListNode
from backtrail.errors import InvalidInput
from backtrail.history.run_status import STATUS
from backtrail.run.listing import ASKED, DUE, STEPS
from backtrail.run.model import StepInfo
from backtrail.run.recording import Identity, Recording, read_records
from backtrail.run.run_core import RunCore
from backtrail.run.run_state import ENDED, ERROR, INPUT, RESULT


async def fork(core: RunCore, to: str | None, at: Any, step: Any, input: Any) -> RunCore:
    """Fork a run at a checkpoint, or before a step; the fork is ready to go on."""
    added: list[Any] = []
    if step is not None:
        if at is not None:
            raise InvalidInput("at= and step= cannot be given together: both say where the fork begins")
        at, added = await _row_before(core, step)
    context = core.thread.context
    forked = RunCore(context, await core.thread.fork(to, at))
    await forked.load()
    changes: dict[str, Any] = {STATUS: "ready"} | ({} if input is UNSET else {INPUT: input})

    def plan(planner: Planner) -> PlannedRow:
        append = (STEPS, added) if added else None
        return planner.change(changes, append=append, drop=(ASKED, DUE, ERROR, ENDED, RESULT))

    forked.asked = {}
    await forked.save(plan)
    await forked.load()
    return forked


async def _row_before(core: RunCore, step: Any) -> tuple[int, list[Any]]:
    """The number of the last row that does not have the step, and the steps before it that this row does not have."""
    items = (await core.thread.pick([STEPS])).get(STEPS, [])
    try:
        records = read_records(items)
    except ValueError as error:
        raise core.unreadable(f"its recording makes no sense: {error}") from error
    wanted = _identity(core, Recording(core.id, 0, records), step)
    index = next(number for number, record in enumerate(records) if record.identity == wanted)
    low, high = 0, await core.thread.step()
    while high - low > 1:  # the row `low` has at most `index` steps, the row `high` has more
        middle = (low + high) // 2
        low, high = (middle, high) if await _count(core, middle) <= index else (low, middle)
    if low == 0:
        raise InvalidInput(f"step {step!r:.80} is in the first checkpoint of run {core.id!r}: begin a new run instead")
    return low, items[await _count(core, low) : index]


def _identity(core: RunCore, recording: Recording, step: Any) -> Identity:
    if isinstance(step, StepInfo):
        found = [one for one, record in recording.steps.items() if record.info() == step]
    elif type(step) is int:
        found = list(recording.steps)[step - 1 : step] if step > 0 else []
    elif isinstance(step, str):
        found = [one for one in recording.steps if one.name == step]
    else:
        raise InvalidInput(f"step must be a name, a number or a StepInfo, not {type(step).__qualname__}")
    if not found:
        raise InvalidInput(f"run {core.id!r} has no step {step!r:.80}: run.steps() lists them")
    if len(found) > 1:
        raise InvalidInput(
            f"run {core.id!r} has {len(found)} steps {step!r:.80}: give one of run.steps(), or its number there"
        )
    return found[0]


async def _count(core: RunCore, row: int) -> int:
    """The number of steps that are recorded at a row."""
    found = await core.thread.read_root(row, deep=False)
    node = (found.root.tree.children or {}).get(STEPS)
    if isinstance(node, ListNode):
        return node.count
    return len(core.values.decode(node.raw)) if isinstance(node, Inline) else 0
