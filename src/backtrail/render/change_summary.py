"""What a checkpoint brought that its parent did not have, in a few words, and without loading either state.

+2 messages   assistant: The tests pass now.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail import BacktrailError, Checkpoint, Corrupt, Outline, Thread
from backtrail.model import Part
from backtrail.render.conversation import Message, read
from backtrail.render.jsonable import brief

_WIDTH = 160


class Added(msgspec.Struct, frozen=True):
    """`what`: the change in a few words; `preview`: the start of the newest item, `role` who said it."""

    what: str
    preview: str = ""
    role: str = ""


def added(thread: Thread[Any], checkpoint: Checkpoint, outlines: dict[str, Outline] | None = None) -> Added:
    """Compares the outlines of a checkpoint and its parent; reads at most one item of a list. What is damaged is
    said to be so: the rest of a history stays readable. `outlines` keeps what was read, for the next row of a page."""
    try:
        return _compare(thread, checkpoint, {} if outlines is None else outlines)
    except Corrupt as error:
        return Added(f"damaged: {error.reason}")


def _compare(thread: Thread[Any], checkpoint: Checkpoint, outlines: dict[str, Outline]) -> Added:
    now = _outline(thread, checkpoint.id, outlines)
    try:
        before = _outline(thread, checkpoint.parent_id, outlines) if checkpoint.parent_id else None
    except BacktrailError:
        before = None  # the parent is damaged, or was pruned meanwhile: all there is counts as new
    old = {part.name: part for part in before.parts} if before is not None else {}
    words: list[str] = []
    preview, role = "", ""
    for part in now.parts:
        was = old.pop(part.name, None)
        if _same(part, was):
            continue
        words.append(_words(part, was))
        first = was.count or 0 if was is not None and was.kind == "list" else 0
        if part.kind == "list" and not preview and (part.count or 0) > first:
            preview, role = _last(thread, checkpoint, part)
    words += [f"−{name}" for name in old]
    return Added(", ".join(words[:4]) + (", …" if len(words) > 4 else ""), preview, role)


def _outline(thread: Thread[Any], id: str, outlines: dict[str, Outline]) -> Outline:
    if id not in outlines:
        outlines[id] = thread.outline(at=id)
    return outlines[id]


def _same(part: Part, was: Part | None) -> bool:
    if was is None:
        return False
    if part.known and was.known:
        return part.kind == was.kind and repr(part.value) == repr(was.value)
    return (part.kind, part.size, part.count) == (was.kind, was.size, was.count)


def _words(part: Part, was: Part | None) -> str:
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
        return f"{part.name}={brief(part.value, 24)}"
    return f"~{part.name}"


def _last(thread: Thread[Any], checkpoint: Checkpoint, part: Part) -> tuple[str, str]:
    count = part.count or 0
    found: Outline = thread.outline([part.name], at=checkpoint.id, start=count - 1, stop=count)
    if not found.parts:
        return "", ""
    message = read(found.parts[0].value)
    return preview_of(message), message.role


def preview_of(message: Message) -> str:
    """One line of a message."""
    if message.text:
        return brief(message.text, _WIDTH)
    if message.calls:
        return brief(" ".join(f"{call.name}({brief(call.arguments, 80)})" for call in message.calls), _WIDTH)
    if message.results:
        return brief(" ".join(f"→ {result.text}" for result in message.results), _WIDTH)
    return brief(message.thinking or " ".join(message.extra), _WIDTH)
