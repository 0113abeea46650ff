"""User turns, tool calls and results in the shapes of many providers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail import message_shapes

OPENAI = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "w"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]
RESPONSES = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "w", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
]
ANTHROPIC = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": [{"type": "text", "text": "…"}, {"type": "tool_use", "id": "c1", "name": "w"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
]
CLAUDE_CODE = [
    {"type": "user", "uuid": f"u{i}", "message": message} if message["role"] == "user" else
    {"type": "assistant", "uuid": f"u{i}", "message": message}
    for i, message in enumerate(ANTHROPIC)
]  # fmt: skip
LANGCHAIN = [
    {"type": "human", "data": {"content": "weather?", "id": "h1"}},
    {"type": "ai", "data": {"content": "", "tool_calls": [{"id": "c1", "name": "w", "args": {}}]}},
    {"type": "tool", "data": {"content": "sunny", "tool_call_id": "c1"}},
]
LANGCHAIN_DUMPED = [
    {"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "weather?"}},
    {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"tool_calls": [{"id": "c1", "name": "w"}]}},
    {"lc": 1, "type": "constructor", "id": ["x", "ToolMessage"], "kwargs": {"tool_call_id": "c1", "content": "s"}},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "weather?"}]},
    {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "w", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "w", "response": {"ok": 1}}}]},
]
GEMINI_WITHOUT_IDS = [
    {"role": "user", "parts": [{"text": "weather?"}]},
    {"role": "model", "parts": [{"function_call": {"name": "w", "args": {}}}]},
    {"role": "user", "parts": [{"function_response": {"name": "w", "response": {"ok": 1}}}]},
]
ADK = [
    {"id": "e1", "author": "user", "content": {"role": "user", "parts": [{"text": "weather?"}]}},
    {"id": "e2", "author": "a", "content": {"role": "model", "parts": [{"function_call": {"id": "c1", "name": "w"}}]}},
    {"id": "e3", "author": "a", "content": {"role": "user", "parts": [{"function_response": {"id": "c1"}}]}},
]
PYDANTIC_AI = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "weather?"}]},
    {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "w", "tool_call_id": "c1", "args": "{}"}]},
    {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "w", "tool_call_id": "c1", "content": 1}]},
]
VERCEL = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "w", "input": {}}]},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "w", "output": {}}]},
]
FUNCTIONS = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": None, "function_call": {"name": "w", "arguments": "{}"}},
    {"role": "function", "name": "w", "content": "sunny"},
]
CODEX = [
    {"timestamp": f"2026-11-16T09:00:0{i}Z", "type": "response_item", "payload": m} for i, m in enumerate(RESPONSES)
]
GEMINI_CLI = [
    {"id": "1", "timestamp": "2026-11-16T09:00:01Z", "type": "user", "content": [{"text": "weather?"}]},
    {
        "id": "2",
        "timestamp": "2026-11-16T09:00:02Z",
        "type": "gemini",
        "content": "",
        "toolCalls": [{"id": "c1", "name": "w"}],
    },
    {
        "id": "3",
        "timestamp": "2026-11-16T09:00:03Z",
        "type": "user",
        "content": [{"functionResponse": {"id": "c1", "name": "w", "response": {"output": "sunny"}}}],
    },
]
SHAPES: dict[str, list[dict[str, Any]]] = {
    "openai": OPENAI,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "claude code": CLAUDE_CODE,
    "codex": CODEX,
    "gemini cli": GEMINI_CLI,
    "langchain": LANGCHAIN,
    "langchain dumped": LANGCHAIN_DUMPED,
    "gemini": GEMINI,
    "gemini without ids": GEMINI_WITHOUT_IDS,
    "adk": ADK,
    "pydantic-ai": PYDANTIC_AI,
    "vercel": VERCEL,
    "functions": FUNCTIONS,
}
shapes = pytest.mark.parametrize("shape", SHAPES)


@shapes
def test_a_call_and_its_result_carry_the_same_id(shape: str) -> None:
    asked, called, answered = SHAPES[shape]
    assert message_shapes.calls(called) == message_shapes.results(answered) != []
    assert (
        message_shapes.calls(asked)
        == message_shapes.results(asked)
        == message_shapes.results(called)
        == message_shapes.calls(answered)
        == []
    )


@shapes
def test_only_the_person_has_a_user_turn(shape: str) -> None:
    assert [message_shapes.is_user_turn(message) for message in SHAPES[shape]] == [True, False, False]
    assert message_shapes.role(SHAPES[shape][0]) == "user"


@shapes
def test_a_complete_conversation_has_no_problems(shape: str) -> None:
    assert message_shapes.problems(SHAPES[shape], alternating=True) == []
    assert message_shapes.repair(SHAPES[shape]) == SHAPES[shape]


@shapes
def test_a_call_that_was_interrupted_is_closed_in_the_same_shape(shape: str) -> None:
    interrupted = SHAPES[shape][:2]
    assert [problem.kind for problem in message_shapes.problems(interrupted)] == ["unanswered call"]
    repaired = message_shapes.repair(interrupted)
    assert repaired[:2] == interrupted
    assert message_shapes.problems(repaired) == []
    assert message_shapes.results(repaired[2]) == message_shapes.calls(interrupted[1])
    assert "interrupted" in str(repaired[2])
    assert set(repaired[2]) - {"parentUuid"} <= set(SHAPES[shape][2]) | {"type", "content", "tool_call_id", "role"}


@shapes
def test_an_orphan_result_is_reported_and_removed(shape: str) -> None:
    asked, _, answered = SHAPES[shape]
    assert [problem.kind for problem in message_shapes.problems([asked, answered])] == ["orphan result"]
    assert message_shapes.repair([asked, answered]) == [asked]


def test_text_beside_an_orphan_result_is_kept() -> None:
    mixed = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}, {"type": "text", "text": "hi"}]}
    assert message_shapes.is_user_turn(mixed)
    assert message_shapes.repair([mixed]) == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert len(mixed["content"]) == 2


def test_one_of_two_parallel_calls_unanswered_is_closed_after_the_other() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    repaired = message_shapes.repair([call, {"role": "tool", "tool_call_id": "b"}, {"role": "user", "content": "next"}])
    assert [m.get("tool_call_id") for m in repaired] == [None, "b", "a", None]


def test_two_user_turns_in_a_row_are_a_problem_only_where_that_is_refused() -> None:
    twice = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert message_shapes.problems(twice) == []
    assert [problem.kind for problem in message_shapes.problems(twice, alternating=True)] == ["two user turns"]
    repaired = message_shapes.repair(twice, alternating=True)
    assert [m["role"] for m in repaired] == ["user", "assistant", "user"]
    assert message_shapes.problems(repaired, alternating=True) == []


def test_problems_print_as_sentences() -> None:
    assert "'c1' has no result" in str(message_shapes.problems(OPENAI[:2])[0])


_ids = st.sampled_from(["a", "b", "c"])
_messages = st.one_of(
    st.just({"role": "user", "content": "x"}),
    st.just({"role": "assistant", "content": "x"}),
    st.lists(_ids, min_size=1, unique=True).map(
        lambda ids: {"role": "assistant", "tool_calls": [{"id": id} for id in ids]}
    ),
    _ids.map(lambda id: {"role": "tool", "tool_call_id": id, "content": "r"}),
    st.lists(_ids, min_size=1, unique=True).map(
        lambda ids: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id} for id in ids]}
    ),
)


@given(st.lists(_messages, max_size=12))
def test_repaired_messages_have_no_orphan_and_no_two_user_turns_in_a_row(messages: list[dict[str, Any]]) -> None:
    repaired = message_shapes.repair(messages, alternating=True)
    kinds = {problem.kind for problem in message_shapes.problems(repaired, alternating=True)}
    assert "orphan result" not in kinds
    assert "two user turns" not in kinds
    spoken = [m for m in messages if message_shapes.is_user_turn(m)]
    assert [m for m in repaired if message_shapes.is_user_turn(m)] == spoken


@given(st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["role", "content", "parts", "type", "id", "tool_calls", "message", "data", "functionCall"]), x
)))  # fmt: skip
def test_any_dict_at_all_can_be_read_as_a_message(value: Any) -> None:
    message = value if type(value) is dict else {"content": value}
    message_shapes.own_id(message)
    message_shapes.role(message)
    message_shapes.is_user_turn(message)
    message_shapes.repair([message, message])
