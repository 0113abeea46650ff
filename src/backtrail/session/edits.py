"""Plans: how a row changes what a session is made of. Pure; a plan is made again for each head it is tried on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from backtrail import message_shapes
from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.row_format import ListNode
from backtrail.errors import InvalidInput
from backtrail.history.save import Plan
from backtrail.message_shapes import Message
from backtrail.session.message_window import FIRST, MESSAGES, TURNS


def extending(planner: Planner, messages: list[Message], extra: dict[str, Any], added: int | None = None) -> PlannedRow:
    """A plan: messages come after those that are there, and `added` user turns with them."""
    before = planner.peek(TURNS)
    if added is None:
        added = message_shapes.user_turns(messages)
    changes = {TURNS: (before or 0) + added} if added or before is None else {}
    return planner.change({**changes, **extra}, append=(MESSAGES, messages))


def replacing(planner: Planner, messages: list[Message], extra: dict[str, Any]) -> PlannedRow:
    """A plan: messages come in the place of those that are there, under numbers that no message had before."""
    first = planner.peek(FIRST, 1) + planner.count(MESSAGES)
    return planner.change({MESSAGES: messages, TURNS: message_shapes.user_turns(messages), FIRST: first, **extra})


def check(messages: list[Message]) -> list[Message]:
    for number, message in enumerate(messages):
        if type(message) is not dict:
            what = f"message {number}" if len(messages) > 1 else "a message"
            raise InvalidInput(f"{what} must be a dict, not {type(message).__qualname__}")
    return messages


def several(messages: Any, call: str) -> list[Message]:
    """The messages that a call was given, as a list: one alone is a mistake that would be taken for its keys."""
    if isinstance(messages, Mapping | str | bytes) or not isinstance(messages, Iterable):
        raise InvalidInput(f"{call} takes a list of messages, not {type(messages).__qualname__}")
    return list(messages)


def cutting(kept: ListNode | list[Any], changes: dict[str, Any]) -> Plan:
    """A plan that puts a range of the messages in the place of all of them."""
    if isinstance(kept, ListNode):
        return lambda planner: planner.change(changes, lists={MESSAGES: kept})
    return lambda planner: planner.change({**changes, MESSAGES: kept}, drop=(MESSAGES,))
