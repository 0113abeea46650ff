"""picoclaw's sessions: one JSON file each, or one line per message in a .jsonl with a .meta.json beside it.

picoclaw truncates by a number of lines to skip, so the truncated messages are still in the file: they are imported
first, and removed by a checkpoint of their own.
"""

from __future__ import annotations

import json
from typing import Any

from backtrail.importers.model import BadFile, FileContent, ForeignThread, Segment
from backtrail.importers.source_files import META_SUFFIX, read_text


def recognises(content: FileContent) -> bool:
    if content.lines is not None:
        return content.path.with_name(content.path.stem + META_SUFFIX).is_file()
    return type(content.value) is dict and "key" in content.value and "messages" in content.value


def read(content: FileContent) -> list[ForeignThread]:
    return [_read_lines(content) if content.lines is not None else _read_value(content.value)]


def _read_value(value: Any) -> ForeignThread:
    if type(value) is not dict or type(value.get("key")) is not str:
        raise BadFile("it has no session key")
    messages = value.get("messages") or []
    if type(messages) is not list or not all(type(message) is dict for message in messages):
        raise BadFile("its messages are not a list of objects")
    custom = {name: value[name] for name in ("created", "updated") if type(value.get(name)) is str}
    summary = value.get("summary")
    text = summary if type(summary) is str else ""
    return ForeignThread(value["key"], segments=(Segment(messages),), summary=text, custom=custom)


def _read_lines(content: FileContent) -> ForeignThread:
    messages = [message for _, message in content.lines or ()]
    notes = list(content.notes)
    meta: dict[str, Any] = {}
    meta_path = content.path.with_name(content.path.stem + META_SUFFIX)
    try:
        meta = json.loads(read_text(meta_path))
        if type(meta) is not dict:
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        notes.append(f"{meta_path.name} is missing: the session is named after its file, and has no summary")
    except (BadFile, ValueError, RecursionError) as error:
        notes.append(f"the meta file {meta_path.name} is damaged ({error}): the session is named after its file")
        meta = {}
    skip = meta.get("skip")
    segments = [Segment(messages)]
    if type(skip) is int and skip > 0:
        segments.append(Segment(messages[skip:], replaces_all=True))
    key, summary = meta.get("key"), meta.get("summary")
    custom = {name: meta[name] for name in ("created_at", "updated_at") if type(meta.get(name)) is str}
    return ForeignThread(
        key if type(key) is str and key else content.name,
        segments=tuple(segments),
        summary=summary if type(summary) is str else "",
        custom=custom,
        notes=tuple(notes),
    )
