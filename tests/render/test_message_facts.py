"""The model, tokens, cost and time that messages of different frameworks have."""

from __future__ import annotations

from typing import Any

import pytest

from backtrail.render.agent_turns import Tokens
from backtrail.render.conversation_turns import turns_of
from backtrail.render.message_facts import facts_of, tokens_of

MESSAGES: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "anthropic": (
        {"role": "assistant", "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 2}},
        (8, 3, 2),
    ),
    "openai": (
        {
            "role": "assistant",
            "usage": {"prompt_tokens": 8, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
        },
        (8, 3, 2),
    ),
    "langchain": (
        {
            "type": "ai",
            "data": {
                "content": "x",
                "usage_metadata": {"input_tokens": 8, "output_tokens": 2, "input_token_details": {"cache_read": 3}},
            },
        },
        (8, 3, 2),
    ),
    "gemini": (
        {"usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 2, "cachedContentTokenCount": 3}},
        (8, 3, 2),
    ),
    "claude code": (
        {"type": "assistant", "message": {"role": "assistant", "usage": {"input_tokens": 8, "output_tokens": 2}}},
        (8, 0, 2),
    ),
}


@pytest.mark.parametrize("shape", MESSAGES)
def test_tokens_are_found_in_every_shape(shape: str) -> None:
    message, (read, cached, wrote) = MESSAGES[shape]
    tokens = facts_of(message).tokens
    assert tokens is not None
    assert (tokens.input, tokens.cached, tokens.output) == (read, cached, wrote)


@pytest.mark.parametrize(
    "message",
    [
        1,
        "text",
        {},
        {"usage": "none"},
        {"usage": {"input_tokens": -1}},
        {"usage": {"input_tokens": True, "output_tokens": 2**70}},
        {"timestamp": "not a time", "model": 5, "cost": "free"},
        {"timestamp": 10**30},
        {"message": {"message": {"message": {}}}},
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_none(message: Any) -> None:
    found = facts_of(message)
    assert (found.tokens, found.model, found.cost, found.at) == (None, None, None, None)


def test_a_message_that_contains_itself_is_read() -> None:
    loop: dict[str, Any] = {"model": "m"}
    loop["message"] = loop
    assert facts_of(loop).model == "m"


def test_turns_begin_where_a_person_speaks() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "bash", "input": {}}]}
    turns = turns_of(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "a"},
            call,
            result,
            {"role": "user", "content": "b"},
        ]
    )
    assert [(turn.start, turn.stop, turn.prompt) for turn in turns] == [(0, 1, ""), (1, 4, "a"), (4, 5, "b")]
    assert [tool.name for tool in turns[1].tools] == ["bash"]
    assert turns_of([]) == []


def test_a_request_that_several_lines_of_a_transcript_tell_of_is_counted_once() -> None:
    def line(id: str, output: int) -> dict[str, Any]:
        usage = {"input_tokens": 100, "output_tokens": output}
        message = {"id": id, "role": "assistant", "content": [{"type": "text", "text": "…"}], "usage": usage}
        return {"type": "assistant", "sessionId": "s", "uuid": f"{id}-{output}", "requestId": id, "message": message}

    lines = [line("a", 1), line("a", 20), line("b", 30)]
    assert tokens_of(lines, [facts_of(one) for one in lines]) == Tokens(200, 0, 50)
    assert turns_of([{"role": "user", "content": "go"}, *lines])[0].tokens == Tokens(200, 0, 50)
    assert tokens_of([{"role": "user"}], [facts_of({"role": "user"})]) is None
