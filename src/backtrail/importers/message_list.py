"""Plain lists of messages, format "openai": a JSON array, an object with `messages`, one message per line, or one
object with `messages` per line (then each line is a session).

The name of the format is that of the best known shape; any message with a role or a type is accepted."""

from __future__ import annotations

from typing import Any

from backtrail.importers.model import BadFile, FileContent, ForeignThread, Segment

_ID_KEYS = ("id", "session_id", "conversation_id", "thread_id")


def recognises(content: FileContent) -> bool:
    if content.lines is not None:
        return all(_is_message(line) or _has_messages(line) for _, line in content.lines)
    return _has_messages(content.value) or _is_conversation(content.value)


def read(content: FileContent) -> list[ForeignThread]:
    value = content.value
    if content.lines is None:
        if _has_messages(value):
            return [_thread(value, content.name)]
        if _is_conversation(value):
            return [ForeignThread(content.name, segments=(Segment(value),))]
        raise BadFile("it is neither a list of messages nor an object that has one")
    lines = [line for _, line in content.lines]
    if all(map(_is_message, lines)):
        return [ForeignThread(content.name, segments=(Segment(lines),), notes=content.notes)]
    if not all(map(_has_messages, lines)):
        raise BadFile("its lines are neither messages nor objects that have some")
    return [_thread(line, f"{content.name}-{number}", content.notes) for number, line in content.lines]


def _thread(value: dict[str, Any], name: str, notes: tuple[str, ...] = ()) -> ForeignThread:
    own = next((value[key] for key in _ID_KEYS if type(value.get(key)) is str and value[key]), name)
    summary = value.get("summary")
    messages = value["messages"]
    return ForeignThread(
        own, segments=(Segment(messages),), summary=summary if type(summary) is str else "", notes=notes
    )


def _is_message(value: Any) -> bool:
    return type(value) is dict and (type(value.get("role")) is str or type(value.get("type")) is str)


def _is_conversation(value: Any) -> bool:
    return type(value) is list and bool(value) and all(map(_is_message, value))


def _has_messages(value: Any) -> bool:
    return type(value) is dict and (value.get("messages") == [] or _is_conversation(value.get("messages")))
