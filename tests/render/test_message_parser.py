"""Messages of many frameworks are parsed into one shape, and nothing is left out."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.render.message_parser import ParsedMessage, ToolCall, ToolResult, conversation_key, parse_message

_CASES: list[tuple[Any, ParsedMessage]] = [
    ({"role": "user", "content": "hi"}, ParsedMessage("user", "hi")),
    ("bare text", ParsedMessage("message", "bare text")),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
        },
        ParsedMessage("assistant", calls=(ToolCall("1", "f", "{}"),)),
    ),
    (
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        ParsedMessage("tool", results=(ToolResult("1", "", "42"),)),
    ),
    (
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "2", "name": "g", "input": {}}],
        },
        ParsedMessage("assistant", "a", calls=(ToolCall("2", "g", "{}"),)),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "x"}]}],
        },
        ParsedMessage("user", results=(ToolResult("2", "", "x"),)),
    ),
    (
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
        ParsedMessage("assistant", thinking="hm"),
    ),
    (
        {"type": "function_call", "call_id": "3", "name": "h", "arguments": "{}"},
        ParsedMessage("assistant", calls=(ToolCall("3", "h", "{}"),)),
    ),
    (
        {"type": "function_call_output", "call_id": "3", "output": "ok"},
        ParsedMessage("tool", results=(ToolResult("3", "", "ok"),)),
    ),
    ({"role": "model", "parts": [{"text": "gemini"}]}, ParsedMessage("assistant", "gemini")),
    (
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]},
        ParsedMessage("assistant", calls=(ToolCall("", "f", "{}"),)),
    ),
    (
        {"role": "model", "parts": [{"functionCall": {"id": "4", "name": "f", "args": {}}}]},
        ParsedMessage("assistant", calls=(ToolCall("4", "f", "{}"),)),
    ),
    (
        {"role": "user", "parts": [{"functionResponse": {"id": "4", "name": "f", "response": {"n": 1}}}]},
        ParsedMessage("user", results=(ToolResult("4", "f", '{\n  "n": 1\n}'),)),
    ),
    (
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "5", "toolName": "f", "input": {}}],
        },
        ParsedMessage("assistant", calls=(ToolCall("5", "f", "{}"),)),
    ),
    (
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "5",
                    "toolName": "f",
                    "output": {"type": "text", "value": "vercel"},
                }
            ],
        },
        ParsedMessage("tool", results=(ToolResult("5", "f", "vercel"),)),
    ),
    (
        {
            "type": "assistant",
            "uuid": "u",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
        },
        ParsedMessage("assistant", "c"),
    ),
    (
        {"type": "user", "uuid": "u", "message": {"role": "user", "content": "claude code"}},
        ParsedMessage("user", "claude code"),
    ),
    ({"type": "human", "content": "langchain"}, ParsedMessage("user", "langchain")),
    ({"type": "human", "data": {"content": "langchain too"}}, ParsedMessage("user", "langchain too")),
    (
        {"kind": "response", "parts": [{"part_kind": "text", "content": "pydantic"}]},
        ParsedMessage("assistant", "pydantic"),
    ),
    (
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "9", "content": "r"}],
        },
        ParsedMessage("user", results=(ToolResult("9", "f", "r"),)),
    ),
]


@pytest.mark.parametrize(("value", "message"), _CASES)
def test_a_message_of_any_framework_is_parsed(value: Any, message: ParsedMessage) -> None:
    assert parse_message(value) == message


@pytest.mark.parametrize("value", [{"what": "ever"}, 12, ["a"], {"role": "user", "content": {"odd": 1}}, None])
def test_an_unknown_value_is_kept_as_it_is(value: Any) -> None:
    message = parse_message(value)
    text = message.text + "".join(message.extra)
    assert all(str(part) in text for part in (value.values() if isinstance(value, dict) and "what" in value else []))
    assert isinstance(message, ParsedMessage)


def test_the_conversation_is_found_by_its_key() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.save({"plan": ["a"], "history": [{"role": "user", "content": "x"}]})
        assert conversation_key(thread.outline()) == "history"
        thread.save({"plan": {"a": 1}})
        assert conversation_key(thread.outline()) is None
