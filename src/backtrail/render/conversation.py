"""Messages of any framework as one shape: who spoke, what was said, which tools were called and what they answered.

Knows the message forms of OpenAI (chat and responses), Anthropic, Google, LangChain, pydantic-ai, the Vercel AI SDK and
Claude Code's transcripts. What it does not know it shows as it is: nothing is ever left out.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from backtrail import Outline, Unregistered, message_shapes
from backtrail.render.jsonable import to_json

_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool", "developer": "system"}
_RESULTS = ("tool_result", "tool-result")
_KEYS = ("messages", "history", "conversation", "events", "items", "chat")


class Call(msgspec.Struct, frozen=True):
    """A tool that was called."""

    id: str
    name: str
    arguments: str


class Result(msgspec.Struct, frozen=True):
    """What a tool answered. `id` is the call's."""

    id: str
    name: str
    text: str
    failed: bool = False


class Message(msgspec.Struct, frozen=True):
    """One message. `thinking` is what a model thought aloud, `extra` whatever has no other place."""

    role: str
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    extra: tuple[str, ...] = ()


def conversation_key(outline: Outline) -> str | None:
    """Under which top-level key the messages are, if there are any."""
    lists = [part for part in outline.parts if part.kind == "list" and isinstance(part.name, str)]
    names = {str(part.name) for part in lists}
    for key in _KEYS:
        if key in names:
            return key
    return None


def read(value: Any) -> Message:
    """Any message-like value as a `Message`."""
    if isinstance(value, Unregistered):
        value = value.value
    if isinstance(value, str):
        return Message("message", value)
    if not isinstance(value, dict):
        return Message("message", extra=(_text(value),))
    inner = message_shapes.body(value)
    if inner is not value and "content" in inner:  # an entry of a transcript, around the message
        value = {"role": value.get("type"), **inner}
    draft = _Draft(_role(value))
    kind = value.get("type")
    if kind == "function_call":
        draft.calls.append(Call(_str(value.get("call_id")), _str(value.get("name")), _text(value.get("arguments"))))
    elif kind == "function_call_output":
        draft.results.append(Result(_str(value.get("call_id")), "", _text(value.get("output"))))
    elif kind == "reasoning":
        draft.thinking += _text(value.get("summary") or value.get("content") or "")
    elif draft.role == "tool" and not _blocks(value):
        answered = Result(
            _str(value.get("tool_call_id")),
            _str(value.get("name")),
            _text(_said(value)),
            value.get("status") == "error",
        )
        draft.results.append(answered)
    else:
        _content(draft, _said(value))
    for call in value.get("tool_calls") or ():
        draft.call(call)
    known = draft.done()
    if known == Message(known.role) and "content" not in value and "parts" not in value:
        return Message(known.role, extra=(_text(value),))
    return known


def _role(value: dict[Any, Any]) -> str:
    role = value.get("role") or value.get("author") or value.get("type")
    if role in (None, "message", "response", "request"):
        role = {"response": "assistant", "request": "user"}.get(str(value.get("kind") or role), "message")
    if role in ("function_call", "reasoning"):
        return "assistant"
    if role == "function_call_output":
        return "tool"
    return _ROLES.get(str(role), str(role))


def _said(value: dict[Any, Any]) -> Any:
    for key in ("content", "parts", "text"):
        if key in value:
            said = value[key]
            return said.get("parts", said) if isinstance(said, dict) else said
    return ""


def _blocks(value: dict[Any, Any]) -> bool:
    said = _said(value)
    return isinstance(said, list) and any(isinstance(b, dict) and b.get("type") in _RESULTS for b in said)


class _Draft:
    """A message in the making."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.text: list[str] = []
        self.thinking = ""
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.extra: list[str] = []

    def call(self, call: Any) -> None:
        if not isinstance(call, dict):
            self.extra.append(_text(call))
            return
        function = call.get("function")
        inner = function if isinstance(function, dict) else call
        arguments = inner.get("arguments", inner.get("args", inner.get("input", "")))
        id = _first(call, "id", "tool_call_id", "call_id", "toolCallId")
        self.calls.append(Call(_str(id), _str(_first(inner, "name", "tool_name", "toolName")), _text(arguments)))

    def result(self, answer: dict[Any, Any], content: Any) -> None:
        id = _first(answer, "tool_use_id", "tool_call_id", "toolCallId", "id")
        name = _first(answer, "name", "tool_name", "toolName")
        self.results.append(Result(_str(id), _str(name), _flat(content), bool(answer.get("is_error"))))

    def done(self) -> Message:
        return Message(
            self.role, "\n".join(self.text), self.thinking, tuple(self.calls), tuple(self.results), tuple(self.extra)
        )


def _content(draft: _Draft, content: Any) -> None:
    if isinstance(content, str):
        draft.text += [content] if content else []
    elif isinstance(content, list | tuple):
        for block in content:
            _block(draft, block)
    elif content is not None:
        draft.extra.append(_text(content))


def _block(draft: _Draft, block: Any) -> None:
    if isinstance(block, str):
        draft.text.append(block)
        return
    if isinstance(block, Unregistered):
        block = block.value
    if not isinstance(block, dict):
        draft.extra.append(_text(block))
        return
    kind = str(block.get("type") or block.get("part_kind") or "")
    if kind in ("tool_use", "tool-call", "tool_call"):
        draft.call(block)
    elif kind in (*_RESULTS, "tool-return"):
        answer = _first(block, "content", "output", "result")
        wrapped = isinstance(answer, dict) and set(answer) == {"type", "value"}
        draft.result(block, answer["value"] if wrapped else answer)
    elif kind == "thinking":
        draft.thinking += _text(block.get("thinking") or block.get("content") or "")
    elif isinstance(call := _first(block, "function_call", "functionCall"), dict):
        draft.call(call)
    elif isinstance(answer := _first(block, "function_response", "functionResponse"), dict):
        draft.result(answer, answer.get("response"))
    elif isinstance(block.get("text"), str):
        draft.text.append(block["text"])
    elif isinstance(block.get("content"), str):
        draft.text.append(block["content"])
    else:
        draft.extra.append(_text(block))


def _first(value: dict[Any, Any], *keys: str) -> Any:
    """What stands under the first of the keys that frameworks use for it."""
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _flat(value: Any) -> str:
    """A tool's answer: the texts of its blocks, or all of it."""
    if isinstance(value, list) and all(isinstance(b, dict) and isinstance(b.get("text"), str) for b in value):
        return "\n".join(block["text"] for block in value)
    return _text(value)


def _str(value: Any) -> str:
    return "" if value is None else str(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(to_json(value), ensure_ascii=False, indent=2)
