"""A checkpoint as a text: the whole state in JSON, its messages line by line, or the conversation in Markdown."""

from __future__ import annotations

import json
from typing import Any

from clew import Checkpoint, InvalidInput, Thread
from clew.present.conversation import conversation_key, read
from clew.present.plain import to_json
from clew.present.records import checkpoint_json

MEDIA_TYPES = {"json": "application/json", "messages": "application/x-ndjson", "markdown": "text/markdown"}


def write(thread: Thread[Any], checkpoint: Checkpoint, form: str) -> str:
    """The text of `form`: json, messages or markdown."""
    if form == "json":
        state = to_json(thread.load(checkpoint))
        return (
            json.dumps({"checkpoint": checkpoint_json(checkpoint), "state": state}, ensure_ascii=False, indent=2) + "\n"
        )
    if form not in MEDIA_TYPES:
        raise InvalidInput(f"there is no form {form!r}: use {', '.join(MEDIA_TYPES)}")
    key = conversation_key(thread.outline(at=checkpoint.id))
    parts = thread.outline([key], at=checkpoint.id).parts if key is not None else ()
    if form == "messages":
        return "".join(json.dumps(to_json(part.value), ensure_ascii=False) + "\n" for part in parts)
    title = f"# {checkpoint.thread_id}\n\nStep {checkpoint.step}, {checkpoint.created_at:%Y-%m-%d %H:%M:%S} UTC\n"
    return title + "".join(_section(part.value) for part in parts)


def _section(value: Any) -> str:
    message = read(value)
    lines = [f"\n## {message.role}\n"]
    if message.text:
        lines.append(message.text)
    lines += [_fenced(f"{call.name}({call.arguments})") for call in message.calls]
    lines += [_fenced(result.text) for result in message.results]
    lines += [_fenced(extra) for extra in message.extra]
    return "\n".join(lines) + "\n"


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
