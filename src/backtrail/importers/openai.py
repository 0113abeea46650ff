"""Lists of messages as most programs keep them: a JSON array, an object with `messages`, one message per line, or one
object with `messages` per line (then each is a session). The messages may have any shape that has a role or a type."""

from __future__ import annotations

from typing import Any

from backtrail.importers.model import BadFile, Content, Found, MessageRun

_NAMES = ("id", "session_id", "conversation_id", "thread_id")


def recognises(content: Content) -> bool:
    if content.lines is not None:
        return all(_is_message(line) or _holds_messages(line) for _, line in content.lines)
    return _holds_messages(content.value) or _is_conversation(content.value)


def read(content: Content) -> list[Found]:
    value = content.value
    if content.lines is None:
        if _holds_messages(value):
            return [_found(value, content.name)]
        if _is_conversation(value):
            return [Found(content.name, stretches=(MessageRun(value),))]
        raise BadFile("it is neither a list of messages nor an object that has one")
    lines = [line for _, line in content.lines]
    if all(map(_is_message, lines)):
        return [Found(content.name, stretches=(MessageRun(lines),), notes=content.notes)]
    if not all(map(_holds_messages, lines)):
        raise BadFile("its lines are neither messages nor objects that have some")
    return [_found(line, f"{content.name}-{number}", content.notes) for number, line in content.lines]


def _found(value: dict[str, Any], name: str, notes: tuple[str, ...] = ()) -> Found:
    own = next((value[key] for key in _NAMES if type(value.get(key)) is str and value[key]), name)
    summary = value.get("summary")
    messages = value["messages"]
    return Found(own, stretches=(MessageRun(messages),), summary=summary if type(summary) is str else "", notes=notes)


def _is_message(value: Any) -> bool:
    return type(value) is dict and (type(value.get("role")) is str or type(value.get("type")) is str)


def _is_conversation(value: Any) -> bool:
    return type(value) is list and bool(value) and all(map(_is_message, value))


def _holds_messages(value: Any) -> bool:
    return type(value) is dict and (value.get("messages") == [] or _is_conversation(value.get("messages")))
