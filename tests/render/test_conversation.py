"""Messages of many frameworks in one shape, and nothing of any of them left out."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.render.change_summary import added
from backtrail.render.conversation import Call, Message, Result, conversation_key, read

_CASES: list[tuple[Any, Message]] = [
    ({"role": "user", "content": "hi"}, Message("user", "hi")),
    ("bare text", Message("message", "bare text")),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
        },
        Message("assistant", calls=(Call("1", "f", "{}"),)),
    ),
    ({"role": "tool", "tool_call_id": "1", "content": "42"}, Message("tool", results=(Result("1", "", "42"),))),
    (
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "2", "name": "g", "input": {}}],
        },
        Message("assistant", "a", calls=(Call("2", "g", "{}"),)),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "x"}]}],
        },
        Message("user", results=(Result("2", "", "x"),)),
    ),
    ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}, Message("assistant", thinking="hm")),
    (
        {"type": "function_call", "call_id": "3", "name": "h", "arguments": "{}"},
        Message("assistant", calls=(Call("3", "h", "{}"),)),
    ),
    (
        {"type": "function_call_output", "call_id": "3", "output": "ok"},
        Message("tool", results=(Result("3", "", "ok"),)),
    ),
    ({"role": "model", "parts": [{"text": "gemini"}]}, Message("assistant", "gemini")),
    (
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]},
        Message("assistant", calls=(Call("", "f", "{}"),)),
    ),
    (
        {"role": "model", "parts": [{"functionCall": {"id": "4", "name": "f", "args": {}}}]},
        Message("assistant", calls=(Call("4", "f", "{}"),)),
    ),
    (
        {"role": "user", "parts": [{"functionResponse": {"id": "4", "name": "f", "response": {"n": 1}}}]},
        Message("user", results=(Result("4", "f", '{\n  "n": 1\n}'),)),
    ),
    (
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "5", "toolName": "f", "input": {}}],
        },
        Message("assistant", calls=(Call("5", "f", "{}"),)),
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
        Message("tool", results=(Result("5", "f", "vercel"),)),
    ),
    (
        {
            "type": "assistant",
            "uuid": "u",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
        },
        Message("assistant", "c"),
    ),
    (
        {"type": "user", "uuid": "u", "message": {"role": "user", "content": "claude code"}},
        Message("user", "claude code"),
    ),
    ({"type": "human", "content": "langchain"}, Message("user", "langchain")),
    ({"type": "human", "data": {"content": "langchain too"}}, Message("user", "langchain too")),
    (
        {"kind": "response", "parts": [{"part_kind": "text", "content": "pydantic"}]},
        Message("assistant", "pydantic"),
    ),
    (
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "9", "content": "r"}],
        },
        Message("user", results=(Result("9", "f", "r"),)),
    ),
]


@pytest.mark.parametrize(("value", "message"), _CASES)
def test_a_message_of_any_framework_is_understood(value: Any, message: Message) -> None:
    assert read(value) == message


@pytest.mark.parametrize("value", [{"what": "ever"}, 12, ["a"], {"role": "user", "content": {"odd": 1}}, None])
def test_what_is_not_understood_is_shown_as_it_is(value: Any) -> None:
    message = read(value)
    text = message.text + "".join(message.extra)
    assert all(str(part) in text for part in (value.values() if isinstance(value, dict) and "what" in value else []))
    assert isinstance(message, Message)


def test_the_conversation_is_found_by_its_key() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.save({"plan": ["a"], "history": [{"role": "user", "content": "x"}]})
        assert conversation_key(thread.outline()) == "history"
        thread.save({"plan": {"a": 1}})
        assert conversation_key(thread.outline()) is None


def test_what_a_step_added_is_said_in_a_few_words() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        first = thread.append("messages", [{"role": "user", "content": "hello"}])
        second = thread.append(
            "messages", [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b" * 500}]
        )
        third = thread.update({"mode": "fast"})
        fourth = thread.update({"mode": "slow"})
        fifth = thread.save({"mode": "slow"})
        same = thread.save({"mode": "slow"})
        said = [added(thread, c) for c in (first, second, third, fourth, fifth, same)]
    assert [one.what for one in said] == ["+1 message", "+2 messages", "+mode", "mode=slow", "−messages", ""]
    assert (said[0].role, said[0].preview) == ("user", "hello")
    assert said[1].preview.endswith("…")
