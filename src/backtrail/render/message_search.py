"""Finds a text in the messages of a thread: what was said, called and answered, without regard to case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backtrail import Checkpoint, Thread
from backtrail.render.message_parser import ParsedMessage, conversation_key, first_number, parse_message

_BATCH = 256  # messages that are read together
_BEFORE, _AFTER = 40, 80  # characters around the text


class FoundMessage(msgspec.Struct, frozen=True):
    """A message that has the text, by its number, and the text with what stands around it. `prompt` is the last thing
    that a person said up to there."""

    checkpoint: Checkpoint
    number: int
    role: str
    excerpt: str
    prompt: str


def find_text(thread: Thread[Any], text: str) -> Iterator[FoundMessage]:
    """The messages at the head that contain a text, oldest first. Lines that are no messages are left out."""
    head = thread.head
    outline = thread.outline() if head is not None else None
    key = conversation_key(outline) if outline is not None else None
    if head is None or outline is None or key is None:
        return
    count = next(part.count or 0 for part in outline.parts if part.name == key)
    first, wanted, prompt = first_number(outline), text.casefold(), ""
    for start in range(0, count, _BATCH):
        for part in thread.outline([key], at=head, start=start, stop=min(count, start + _BATCH)).parts:
            message = parse_message(part.value)
            if message.bookkeeping:
                continue
            if message.role == "user" and message.text:
                prompt = message.text
            whole = _whole_text(message)
            at = whole.casefold().find(wanted)
            if at >= 0:
                excerpt = whole[max(0, at - _BEFORE) : at + _AFTER]
                yield FoundMessage(head, first + int(part.name), message.role, excerpt, prompt)


def _whole_text(message: ParsedMessage) -> str:
    return "\n".join(
        [message.text, message.thinking, *message.extra]
        + [f"{call.name} {call.arguments}" for call in message.calls]
        + [result.text for result in message.results]
    )
