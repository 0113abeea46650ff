"""Looks for text in conversations, message by message, and gives what is around each match.

`backtrail find --text`, the inspector and the MCP server use it. It reads every message, so its cost grows with what is
stored; an index, once there is one, has its place in front of it: it would say which threads to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backtrail import Checkpoint, Thread
from backtrail.render.message_parser import ParsedMessage, conversation_key, first_number, is_message, parse_message

_BATCH = 256  # messages that are read together
_BEFORE, _AFTER = 40, 80  # characters around a match


class Wanted(msgspec.Struct, frozen=True):
    """What a message must have: a text, ignoring case; a role; a call or result of a tool; a result that failed."""

    text: str = ""
    role: str = ""
    tool: str = ""
    failed: bool = False

    def __bool__(self) -> bool:
        return bool(self.text or self.role or self.tool or self.failed)


class Match(msgspec.Struct, frozen=True):
    """A message that was found: its index, its number for people, and the text before, in and after the match. `prompt`
    is the last thing that a person said up to there."""

    index: int
    number: int
    role: str
    before: str
    match: str
    after: str
    prompt: str


def matching_messages(thread: Thread[Any], at: Checkpoint, wanted: Wanted) -> Iterator[Match]:
    """The messages at a checkpoint that have what is wanted."""
    outline = thread.outline(at=at, salvage=True)
    key = conversation_key(outline)
    if key is None:
        return
    count = next(part.count or 0 for part in outline.parts if part.name == key)
    first, prompt = first_number(outline), ""
    names: dict[str, str] = {}  # of the calls so far: most results do not name their tool
    for start in range(0, count, _BATCH):
        for part in thread.outline([key], at=at, start=start, stop=min(count, start + _BATCH), salvage=True).parts:
            message = parse_message(part.value)
            if message.bookkeeping:
                continue
            if not is_message(part.value):
                return
            if message.role == "user" and message.text:
                prompt = message.text
            names |= {call.id: call.name for call in message.calls if call.id}
            if (found := _match(message, wanted, names)) is not None:
                index = int(part.name)
                yield Match(index, first + index, message.role, *found, prompt)


def _match(message: ParsedMessage, wanted: Wanted, names: dict[str, str]) -> tuple[str, str, str] | None:
    if wanted.role and message.role != wanted.role:
        return None
    tools = {call.name for call in message.calls} | {r.name or names.get(r.id, "") for r in message.results}
    if wanted.tool and wanted.tool not in tools:
        return None
    failures = [result for result in message.results if result.failed]
    if wanted.failed and not failures:
        return None
    whole = _text_of(message)
    if not wanted.text:
        shown = failures[0].text if wanted.failed else whole
        return " ".join(shown[: _BEFORE + _AFTER].split()), "", ""
    at = whole.casefold().find(wanted.text.casefold())
    if at < 0:
        return None
    end = at + len(wanted.text)
    return whole[max(0, at - _BEFORE) : at], whole[at:end], whole[end : end + _AFTER]


def _text_of(message: ParsedMessage) -> str:
    return "\n".join(
        [message.text, message.thinking, *message.extra]
        + [f"{call.name} {call.arguments}" for call in message.calls]
        + [result.text for result in message.results]
    ).strip("\n")
