"""A conversation as turns: what the user asked, which tools ran and how often, what came back.

    user -> bash, edit x2 -> answer

A turn begins with a message in which a person speaks and ends before the next one; what comes before the first is a
turn without a prompt, unless a coding agent wrote it: that is its set-up. Messages may be of any shape that
`message_parser` knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from backtrail import message_shapes, transcript_lines
from backtrail.render.agent_turns import Tokens
from backtrail.render.change_summary import role_shown
from backtrail.render.jsonable import short_text
from backtrail.render.message_facts import facts_of, tokens_of
from backtrail.render.message_parser import parse_message

_TEXT = 300  # characters of a prompt or a reply


class ToolCount(msgspec.Struct, frozen=True):
    """A tool, how often a turn called it in a row, and how many of these calls failed."""

    name: str
    count: int
    failed: int


class ConversationTurn(msgspec.Struct, frozen=True):
    """The messages from `start` up to `stop`. `tokens`, `cost`, `duration` (seconds) and `model` are None if no message
    of the turn has them; `cost` is the sum of what the messages say."""

    start: int
    stop: int
    prompt: str
    reply: str
    tools: tuple[ToolCount, ...]
    failed: int
    tokens: Tokens | None
    cost: float | None
    model: str | None
    started_at: datetime | None
    duration: float | None
    roles: tuple[str, ...] = ()


def turns_of(messages: Sequence[Any]) -> list[ConversationTurn]:
    """The turns of a conversation, oldest first."""
    starts = [index for index, message in enumerate(messages) if _begins(message)]
    lead = messages[: starts[0]] if starts else messages
    if any(type(message) is not dict or transcript_lines.agent_of(message) is None for message in lead):
        starts.insert(0, 0)
    stops = [*starts[1:], len(messages)]
    return [_turn(messages, start, stop) for start, stop in zip(starts, stops, strict=False)]


def _begins(message: Any) -> bool:
    if type(message) is not dict:
        return False
    if transcript_lines.agent_of(message) is not None:
        return transcript_lines.is_prompt(message)
    return message_shapes.is_user_turn(message)


def _turn(messages: Sequence[Any], start: int, stop: int) -> ConversationTurn:
    parsed = [parse_message(message) for message in messages[start:stop]]
    facts = [facts_of(message) for message in messages[start:stop]]
    failures = {result.id for message in parsed for result in message.results if result.failed}
    said = [message.text for message in parsed if message.role == "assistant" and message.text]
    times = [fact.at for fact in facts if fact.at is not None]
    costs = [fact.cost for fact in facts if fact.cost is not None]
    spoken = start < len(messages) and _begins(messages[start])
    return ConversationTurn(
        start,
        stop,
        short_text(parsed[0].text, _TEXT) if spoken else "",
        short_text(said[-1], _TEXT) if said else "",
        _tools([(call.name, call.id in failures) for message in parsed for call in message.calls]),
        len(failures) or sum(result.failed for message in parsed for result in message.results),
        tokens_of(messages[start:stop], facts),
        sum(costs) if costs else None,
        next((fact.model for fact in reversed(facts) if fact.model), None),
        times[0] if times else None,
        max(0.0, (max(times) - min(times)).total_seconds()) if len(times) > 1 else None,
        tuple(dict.fromkeys(role_shown(message) for message in parsed if not message.bookkeeping)),
    )


def _tools(calls: list[tuple[str, bool]]) -> tuple[ToolCount, ...]:
    """Calls of one tool in a row are one entry."""
    found: list[ToolCount] = []
    for name, failed in calls:
        if found and found[-1].name == name:
            last = found.pop()
            found.append(ToolCount(name, last.count + 1, last.failed + failed))
        else:
            found.append(ToolCount(name, 1, int(failed)))
    return tuple(found)
