"""picoclaw's sessions: one JSON file each, or one line per message in a .jsonl with a .meta.json beside it.

Truncation there is a number of lines to skip, so what was truncated is still in the file: it is imported first, and cut
away by a checkpoint of its own.
"""

from __future__ import annotations

import json
from typing import Any

from backtrail.importers.model import BadFile, Content, Found, MessageRun
from backtrail.importers.scan import META


def recognises(content: Content) -> bool:
    if content.lines is not None:
        return content.path.with_name(content.path.stem + META).exists()
    return type(content.value) is dict and "key" in content.value and "messages" in content.value


def read(content: Content) -> list[Found]:
    return [_read_lines(content) if content.lines is not None else _read_value(content.value)]


def _read_value(value: Any) -> Found:
    if type(value) is not dict or type(value.get("key")) is not str:
        raise BadFile("it has no session key")
    messages = value.get("messages") or []
    if type(messages) is not list or not all(type(message) is dict for message in messages):
        raise BadFile("its messages are not a list of objects")
    facts = {name: value[name] for name in ("created", "updated") if type(value.get(name)) is str}
    summary = value.get("summary")
    text = summary if type(summary) is str else ""
    return Found(value["key"], stretches=(MessageRun(messages),), summary=text, facts=facts)


def _read_lines(content: Content) -> Found:
    messages = [message for _, message in content.lines or ()]
    notes = list(content.notes)
    meta: dict[str, Any] = {}
    beside = content.path.with_name(content.path.stem + META)
    try:
        meta = json.loads(beside.read_text("utf-8"))
        if type(meta) is not dict:
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        notes.append(f"{beside.name} is missing: the session is named after its file, and has no summary")
    except (OSError, ValueError) as error:
        notes.append(f"the meta file {beside.name} is damaged ({error}): the session is named after its file")
        meta = {}
    skip = meta.get("skip")
    stretches = [MessageRun(messages)]
    if type(skip) is int and skip > 0:
        stretches.append(MessageRun(messages[skip:], whole=True))
    key, summary = meta.get("key"), meta.get("summary")
    facts = {name: meta[name] for name in ("created_at", "updated_at") if type(meta.get(name)) is str}
    return Found(
        key if type(key) is str and key else content.name,
        stretches=tuple(stretches),
        summary=summary if type(summary) is str else "",
        facts=facts,
        notes=tuple(notes),
    )
