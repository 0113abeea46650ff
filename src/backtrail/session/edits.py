"""Edits: how a save changes the messages of a session. Pure; an edit is planned again for each head it is tried on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from backtrail import message_shapes
from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.row_format import ListNode
from backtrail.errors import InvalidInput
from backtrail.message_shapes import Message
from backtrail.session.message_window import FIRST, MESSAGES, TURNS, check_value


def plan_append(
    planner: Planner, messages: list[Message], extra: dict[str, Any], turns: int | None = None
) -> PlannedRow:
    """Append messages. `turns`, the user turns among them, are counted if they are not given."""
    before = planner.peek(TURNS)
    if turns is None:
        turns = message_shapes.user_turns(messages)
    changes = {TURNS: check_value(TURNS, before or 0) + turns} if turns or before is None else {}
    return planner.change({**changes, **extra}, append=(MESSAGES, messages))


def plan_replace(planner: Planner, messages: list[Message], extra: dict[str, Any]) -> PlannedRow:
    """Replace all messages. The new ones get numbers that no message had before."""
    first = check_value(FIRST, planner.peek(FIRST, 1)) + planner.count(MESSAGES)
    return planner.change({MESSAGES: messages, TURNS: message_shapes.user_turns(messages), FIRST: first, **extra})


def plan_keep(planner: Planner, kept: ListNode | list[Any], changes: dict[str, Any]) -> PlannedRow:
    """Keep only a range of the messages."""
    if isinstance(kept, ListNode):
        return planner.change(changes, lists={MESSAGES: kept})
    return planner.change({**changes, MESSAGES: kept}, drop=(MESSAGES,))


def check_messages(messages: list[Message]) -> list[Message]:
    """Refuse a message that is not a dict."""
    for number, message in enumerate(messages, 1):
        if type(message) is not dict:
            what = f"message {number}" if len(messages) > 1 else "a message"
            raise InvalidInput(f"{what} must be a dict, not {type(message).__qualname__}")
    return messages


def message_list(messages: Any, call: str) -> list[Message]:
    """The messages given to a call, as a list. A single message is refused: its keys would be taken for messages."""
    if isinstance(messages, Mapping | str | bytes) or not isinstance(messages, Iterable):
        raise InvalidInput(f"{call} takes a list of messages, not {type(messages).__qualname__}")
    return list(messages)
