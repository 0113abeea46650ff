"""Putting what was found into a store: once, whole, and never over anything newer.

Every checkpoint that an import writes carries a digest of what it came from. The same content again is recognised by
it, whatever has become of the session since. A file that has more than the store (the session went on elsewhere) adds
what is new; one that differs in any other way is left out and reported. An import that was cut short is begun again.
"""

from __future__ import annotations

from typing import Any, Literal

from backtrail.encode.planner import Planned, Planner
from backtrail.errors import BacktrailError, Conflict
from backtrail.history.context import Context
from backtrail.history.save import Facts, Plan
from backtrail.history.validation import check_name
from backtrail.importers.model import Found, Message, MessageRun
from backtrail.model import Checkpoint
from backtrail.run.core import RunCore
from backtrail.session.core import SessionCore
from backtrail.session.edits import extending, replacing
from backtrail.session.message_window import SUMMARY, TURNS

Outcome = Literal["imported", "updated", "unchanged", "skipped"]
DONE, BEGUN = "imported", "importing"


async def take(context: Context, found: Found) -> tuple[Outcome, str]:
    """Import one find; what became of it, and why where that needs saying."""
    check_name(found.id, "id")
    head = await context.engine.head(found.id)
    if head is not None and head.kind != found.kind:
        return "skipped", f"the store has a {head.kind} of this id"
    try:
        return await (_take_run(context, found) if found.kind == "run" else _take_session(context, found))
    except Conflict:
        return "skipped", "another process wrote to it during the import"


async def _take_run(context: Context, found: Found) -> tuple[Outcome, str]:
    run, digest = RunCore(context, found.id), found.digest()
    if await run.thread.find(custom={DONE: digest}):
        return "unchanged", ""
    if await run.exists():
        return "skipped", "the store has a run of this id, which was left as it is"
    await run.thread.save(found.fields, custom={**found.facts, DONE: digest}, expect=None)
    return "imported", ""


async def _take_session(context: Context, found: Found) -> tuple[Outcome, str]:
    session, digest = SessionCore(context, found.id), found.digest()
    if await session.thread.find(custom={DONE: digest}):
        return "unchanged", ""
    newest = await session.thread.head()
    if newest is not None and newest.custom.get(BEGUN) == digest:
        await session.thread.delete()
        newest = None
    if newest is None:
        await _create(session, found, digest)
        return "imported", ""
    return await _continue(session, found, digest, newest)


async def _create(session: SessionCore, found: Found, digest: str) -> None:
    """Write every stretch; the last checkpoint says that all of it is there."""
    ids: list[str] = []
    stretches = found.stretches or (MessageRun([]),)
    last = len(stretches) - 1
    head = found.head % len(stretches)
    for number, stretch in enumerate(stretches):
        done = number == last and head == last
        after = number - 1 if stretch.after is None else stretch.after
        custom: dict[str, Any] = {DONE if done else BEGUN: digest}
        if stretch.snapshot is not None:
            custom["snapshot"] = stretch.snapshot
        told = {**found.facts, **custom} if done else custom
        ids.append(await _save(session, stretch, found if done else None, told, ids[after] if ids else None))
    if head != last:
        await _save(session, MessageRun([]), found, {**found.facts, DONE: digest}, ids[head])


async def _save(
    session: SessionCore, stretch: MessageRun, closing: Found | None, custom: dict[str, Any], parent: str | None
) -> str:
    """One checkpoint, after `parent` or as the first; its id."""
    facts = Facts.check(session.thread.values, None, (), custom, None, None)
    plan = _stretch_plan(stretch, closing)
    if parent is None:
        saved = await session.thread.writer.save(plan, facts, expect=None)
    else:
        saved = await session.thread.writer.save(plan, facts, parent=parent, whole=stretch.whole)
    return saved.id


def _stretch_plan(stretch: MessageRun, closing: Found | None) -> Plan:
    extra: dict[str, Any] = {}
    if closing is not None and closing.summary:
        extra[SUMMARY] = closing.summary
    if closing is not None and closing.user_turns is not None:
        extra[TURNS] = closing.user_turns

    def plan(planner: Planner) -> Planned:
        make = replacing if stretch.whole else extending
        return make(planner, stretch.messages, extra)

    return plan


async def _continue(session: SessionCore, found: Found, digest: str, newest: Checkpoint) -> tuple[Outcome, str]:
    """The store has a session of this id: add what the file has more, if it is the same conversation."""
    encode = session.thread.values.encode
    stored: list[Message] = await session.messages()
    live = found.live()
    shorter = min(len(stored), len(live))
    try:
        same = encode(stored[:shorter]) == encode(live[:shorter])
    except BacktrailError as error:
        return "skipped", str(error)
    if not same or (not stored and live):
        return "skipped", "the store has another conversation under this id, which was left as it is"
    if len(live) <= len(stored):
        return "unchanged", "" if len(live) == len(stored) else "the store has more than the file"
    facts = Facts.check(session.thread.values, None, (), {**found.facts, DONE: digest}, None, None)
    plan = _stretch_plan(MessageRun(live[len(stored) :]), found)
    await session.thread.writer.save(plan, facts, expect=newest.id)
    return "updated", f"{len(live) - len(stored)} messages were added"
