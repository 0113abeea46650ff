"""A one-line summary of what a checkpoint changed, made from outlines, without loading a state.

+2 messages   assistant: The tests pass now.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail import BacktrailError, Checkpoint, Corrupt, Hole, Outline, OverBudget, Thread
from backtrail.model import Part
from backtrail.render.agent_turns import Tokens
from backtrail.render.jsonable import short_text
from backtrail.render.message_facts import facts_of, tokens_of
from backtrail.render.message_parser import ParsedMessage, is_message, parse_message

_PREVIEW_WIDTH = 160
_RUN_STEP = {"kind", "name", "args", "at"}  # fields of a step of a durable run, which is no message
_LOOKED_AT = 20  # messages that one step added, from the newest on


class ChangeSummary(msgspec.Struct, frozen=True):
    """`text`: the change in a few words; `preview`: the start of the newest message; `role`: its role; `failed`: one of
    the newest messages is the result of a tool that failed. `roles` and `tools`: of all of the newest messages;
    `unnamed`: the ids of those calls whose results do not name their tool. `model`, `tokens` and `cost` are what all
    messages that were added say; they are None if there are none, or too many to be read."""

    text: str
    preview: str = ""
    role: str = ""
    failed: bool = False
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    model: str | None = None
    tokens: Tokens | None = None
    cost: float | None = None


def summarize(thread: Thread[Any], checkpoint: Checkpoint, outlines: dict[str, Outline] | None = None) -> ChangeSummary:
    """Compare the outlines of a checkpoint and its parent, and read one item of a list, or a few lines of a transcript.
    A damaged state is summarized as such, so that the rest of a history stays readable. `outlines` caches outlines for
    the next row of a page."""
    try:
        return _compare(thread, checkpoint, {} if outlines is None else outlines)
    except Corrupt as error:
        return ChangeSummary(f"damaged: {error.reason}")
    except OverBudget as error:
        return ChangeSummary(f"too large: more {error.limit} than one load may take")


def _compare(thread: Thread[Any], checkpoint: Checkpoint, outlines: dict[str, Outline]) -> ChangeSummary:
    now = _outline(thread, checkpoint.id, checkpoint, outlines)
    if isinstance(now.value, Hole):
        return ChangeSummary(f"damaged: {now.value.reason}")
    try:
        before = (
            _outline(thread, checkpoint.parent_id, checkpoint.parent_id, outlines) if checkpoint.parent_id else None
        )
    except BacktrailError:
        before = None  # the parent is damaged, or was pruned meanwhile: everything counts as new
    old = {part.name: part for part in before.parts} if before is not None else {}
    changes: list[str] = []
    newest = ChangeSummary("")
    for part in now.parts:
        was = old.pop(part.name, None)
        if _same(part, was):
            continue
        changes.append(_describe(part, was))
        first = was.count or 0 if was is not None and was.kind == "list" else 0
        if part.kind == "list" and not newest.preview and (part.count or 0) > first:
            newest = _last_items(thread, checkpoint, part, first)
    changes += [f"−{name}" for name in old]
    return msgspec.structs.replace(newest, text=", ".join(changes[:4]) + (", …" if len(changes) > 4 else ""))


def _outline(thread: Thread[Any], id: str, at: Checkpoint | str, outlines: dict[str, Outline]) -> Outline:
    if id not in outlines:
        outlines[id] = thread.outline(at=at, salvage=True)
    return outlines[id]


def _same(part: Part, was: Part | None) -> bool:
    if was is None:
        return False
    if part.known and was.known:
        return part.kind == was.kind and repr(part.value) == repr(was.value)
    return (part.kind, part.size, part.count) == (was.kind, was.size, was.count)


def _describe(part: Part, was: Part | None) -> str:
    if part.kind == "list":
        count, old = part.count or 0, (was.count or 0) if was is not None and was.kind == "list" else 0
        change = count - old
        name = str(part.name)
        if abs(change) == 1 and name.endswith("s"):
            name = name[:-1]
        return f"+{change} {name}" if change > 0 else f"−{-change} {name}" if change < 0 else f"~{name}"
    if was is None:
        return f"+{part.name}"
    if part.known and part.kind in ("value", "text"):
        return f"{part.name}={short_text(part.value, 24)}"
    return f"~{part.name}"


def _last_items(thread: Thread[Any], checkpoint: Checkpoint, part: Part, first: int) -> ChangeSummary:
    """The newest messages that were added, without what else changed."""
    count = part.count or 0
    start = max(first, count - _LOOKED_AT)
    found: Outline = thread.outline([part.name], at=checkpoint, start=start, stop=count, salvage=True)
    if not found.parts or not is_message(found.parts[-1].value):
        return ChangeSummary("")
    newest = found.parts[-1].value
    if isinstance(newest, dict) and part.name == "steps" and newest.keys() >= _RUN_STEP:
        return ChangeSummary(
            "", short_text(f"{newest['kind']} {newest['name']}", _PREVIEW_WIDTH), "", "error" in newest
        )
    messages = [parse_message(one.value) for one in found.parts]
    shown = next((message for message in reversed(messages) if not message.bookkeeping), messages[-1])
    results = [result for message in messages for result in message.results]
    called = {call.id: call.name for message in messages for call in message.calls}
    added = [one.value for one in found.parts] if start == first else []
    facts = [facts_of(message) for message in added]
    costs = [fact.cost for fact in facts if fact.cost is not None]
    return ChangeSummary(
        "",
        message_preview(shown),
        role_shown(shown),
        any(result.failed for result in results),
        tuple(dict.fromkeys(role_shown(message) for message in messages if not message.bookkeeping)),
        tuple(dict.fromkeys([*called.values(), *(result.name for result in results if result.name)])),
        tuple(result.id for result in results if not result.name and result.id not in called),
        next((fact.model for fact in reversed(facts) if fact.model), None),
        tokens_of(added, facts),
        sum(costs) if costs else None,
    )


def role_shown(message: ParsedMessage) -> str:
    """The role of a message. Anthropic and Google give the results of tools the role of the user, who did not write
    them."""
    return "tool" if message.role == "user" and message.results and not message.text else message.role


def message_preview(message: ParsedMessage) -> str:
    """The start of a message, on one line."""
    if message.text:
        return short_text(message.text, _PREVIEW_WIDTH)
    if message.calls:
        return short_text(
            " ".join(f"{call.name}({short_text(call.arguments, 80)})" for call in message.calls), _PREVIEW_WIDTH
        )
    if message.results:
        return short_text(" ".join(f"→ {result.text}" for result in message.results), _PREVIEW_WIDTH)
    return short_text(message.thinking or " ".join(message.extra), _PREVIEW_WIDTH)
