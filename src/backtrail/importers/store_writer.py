"""Writes imported threads into a store: once, whole, and never over anything newer.

Every checkpoint that an import writes carries a digest of its source. The digest recognises the same content again,
whatever has happened to the session since. If the file has more than the store (the session went on elsewhere), the new
messages are added; if it differs in any other way, it is skipped and reported. An interrupted import is started over.
"""

from __future__ import annotations

from typing import Any, Literal

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.errors import BacktrailError, Conflict
from backtrail.history.context import Context
from backtrail.history.run_status import base_kind
from backtrail.history.save import Plan
from backtrail.history.save_arguments import Facts
from backtrail.history.validation import check_name
from backtrail.importers.model import ForeignThread, Message, Segment
from backtrail.model import Checkpoint
from backtrail.run.run_core import RunCore
from backtrail.session.edits import plan_append, plan_replace
from backtrail.session.message_window import SUMMARY, TURNS
from backtrail.session.session_core import SessionCore

Outcome = Literal["imported", "updated", "unchanged", "skipped"]
# Custom fields that hold the digest: of a finished import, and of one that was begun.
IMPORTED, IMPORTING = "imported", "importing"


async def import_thread(context: Context, source: ForeignThread) -> tuple[Outcome, str]:
    """Import one thread; returns the outcome, and a reason if there is one."""
    check_name(source.id, "id")
    head = await context.engine.head(source.id)
    if head is not None and base_kind(head.kind) != source.kind:
        return "skipped", f"the store has a {base_kind(head.kind)} of this id"
    try:
        return await (_import_run(context, source) if source.kind == "run" else _import_session(context, source))
    except Conflict:
        return "skipped", "another process wrote to it during the import"


async def _import_run(context: Context, source: ForeignThread) -> tuple[Outcome, str]:
    run, digest = RunCore(context, source.id), source.digest()
    if await run.thread.find(custom={IMPORTED: digest}):
        return "unchanged", ""
    if await run.exists():
        return "skipped", "the store has a run of this id, which was left as it is"
    await run.thread.save(source.fields, custom={**source.custom, IMPORTED: digest}, expect=None)
    return "imported", ""


async def _import_session(context: Context, source: ForeignThread) -> tuple[Outcome, str]:
    session, digest = SessionCore(context, source.id), source.digest()
    if await session.thread.find(custom={IMPORTED: digest}):
        return "unchanged", ""
    newest = await session.thread.head()
    if newest is not None and newest.custom.get(IMPORTING) == digest:
        await session.thread.delete()
        newest = None
    if newest is None:
        await _create(session, source, digest)
        return "imported", ""
    return await _add_new_messages(session, source, digest, newest)


async def _create(session: SessionCore, source: ForeignThread, digest: str) -> None:
    """Write every segment; the last checkpoint marks the import as complete."""
    ids: list[str] = []
    segments = source.segments or (Segment([]),)
    last = len(segments) - 1
    head = source.head % len(segments)
    for number, segment in enumerate(segments):
        done = number == last and head == last
        after = number - 1 if segment.after is None else segment.after
        custom: dict[str, Any] = {IMPORTED if done else IMPORTING: digest}
        if segment.snapshot is not None:
            custom["snapshot"] = segment.snapshot
        custom = {**source.custom, **custom} if done else custom
        ids.append(await _save(session, segment, source if done else None, custom, ids[after] if ids else None))
    if head != last:
        await _save(session, Segment([]), source, {**source.custom, IMPORTED: digest}, ids[head])


async def _save(
    session: SessionCore, segment: Segment, closing: ForeignThread | None, custom: dict[str, Any], parent: str | None
) -> str:
    """Save one checkpoint after `parent`, or as the first; returns its id."""
    facts = Facts.check(session.thread.values, None, (), custom, None, None)
    plan = _segment_plan(segment, closing)
    if parent is None:
        saved = await session.thread.save_plan(plan, facts, expect=None)
    else:
        saved = await session.thread.save_plan(plan, facts, parent=parent, compare_lists=segment.replaces_all)
    return saved.id


def _segment_plan(segment: Segment, closing: ForeignThread | None) -> Plan:
    extra: dict[str, Any] = {}
    if closing is not None and closing.summary:
        extra[SUMMARY] = closing.summary
    if closing is not None and closing.user_turns is not None:
        extra[TURNS] = closing.user_turns

    def plan(planner: Planner) -> PlannedRow:
        make = plan_replace if segment.replaces_all else plan_append
        return make(planner, segment.messages, extra)

    return plan


async def _add_new_messages(
    session: SessionCore, source: ForeignThread, digest: str, newest: Checkpoint
) -> tuple[Outcome, str]:
    """Add the messages that the file has and the session in the store lacks, if both are the same conversation."""
    encode = session.thread.values.encode
    stored: list[Message] = await session.messages()
    messages = source.messages_at_head()
    shorter = min(len(stored), len(messages))
    try:
        same = encode(stored[:shorter]) == encode(messages[:shorter])
    except BacktrailError as error:
        return "skipped", str(error)
    if not same or (not stored and messages):
        return "skipped", "the store has another conversation under this id, which was left as it is"
    if len(messages) <= len(stored):
        return "unchanged", "" if len(messages) == len(stored) else "the store has more than the file"
    facts = Facts.check(session.thread.values, None, (), {**source.custom, IMPORTED: digest}, None, None)
    plan = _segment_plan(Segment(messages[len(stored) :]), source)
    await session.thread.save_plan(plan, facts, expect=newest.id)
    return "updated", f"{len(messages) - len(stored)} messages were added"
