"""Transcripts of coding agents as messages and turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail import message_shapes, transcript_lines
from backtrail.render.agent_turns import AgentTurn, Tokens, find_turns, read_turn
from backtrail.render.message_parser import parse_message
from fix_transcripts import PROMPTS, recorded_lines

agents = pytest.mark.parametrize("agent", transcript_lines.AGENTS)


def turns_of(lines: list[Any]) -> list[AgentTurn]:
    starts = [turn.index for turn in find_turns(lines)]
    return [read_turn(lines[start:stop]) for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True)]


@agents
def test_every_line_is_recognised_as_its_agents(agent: str) -> None:
    assert {transcript_lines.agent_of(line) for line in recorded_lines(agent)} == {agent}


@agents
def test_a_turn_is_a_prompt_of_a_person(agent: str) -> None:
    lines = recorded_lines(agent)
    assert [turn.prompt for turn in find_turns(lines)] == PROMPTS[agent]
    assert message_shapes.user_turns(lines) == len(PROMPTS[agent])


@agents
def test_a_turn_has_its_tools_by_name_with_their_results(agent: str) -> None:
    first = turns_of(recorded_lines(agent))[0]
    name = {"claude": "Bash", "codex": "exec_command", "gemini": "run_shell_command", "opencode": "bash"}[agent]
    [tool] = first.tools
    assert tool.name == name
    assert "echo one > a.txt" in tool.arguments
    assert tool.result
    assert not tool.failed
    assert first.reply.startswith("reply number")


@agents
def test_a_turn_has_its_duration_its_time_and_its_model(agent: str) -> None:
    for turn in turns_of(recorded_lines(agent)):
        assert turn.duration is not None and 0 < turn.duration < 60
        assert turn.started_at is not None and turn.started_at.year == 2026


@pytest.mark.parametrize(
    ("agent", "tokens"),
    [("claude", Tokens(20, 0, 10)), ("gemini", Tokens(2, 0, 2)), ("opencode", Tokens(2, 0, 2)), ("codex", Tokens())],
)
def test_a_turn_counts_each_request_once(agent: str, tokens: Tokens) -> None:
    assert turns_of(recorded_lines(agent))[0].tokens == tokens


def test_the_duration_that_the_agent_measured_is_preferred() -> None:
    assert turns_of(recorded_lines("claude"))[3].duration == 0.966
    assert turns_of(recorded_lines("codex"))[0].duration == 0.878


def test_a_command_that_failed_is_a_tool_that_failed() -> None:
    assert [tool.failed for tool in turns_of(recorded_lines("opencode"))[1].tools] == [True]
    codex = {"timestamp": "2026-11-16T09:00:00Z", "type": "response_item"}
    output = {
        "type": "function_call_output",
        "call_id": "c",
        "output": "Wall time: 0 s\nProcess exited with code 3\nOutput:",
    }
    assert parse_message({**codex, "payload": output}).results[0].failed
    assert not parse_message({**codex, "payload": {**output, "output": "Process exited with code 0"}}).results[0].failed


@agents
def test_bookkeeping_is_no_message_and_is_still_there_as_json(agent: str) -> None:
    lines = recorded_lines(agent)
    hidden = [line for line in lines if parse_message(line).bookkeeping]
    assert [line for line in lines if transcript_lines.is_bookkeeping(line)] == hidden
    assert bool(hidden) == (agent != "opencode")
    for line in hidden:
        assert message_shapes.role(line) == ""
        assert message_shapes.calls(line) == message_shapes.results(line) == []
        assert not message_shapes.is_user_turn(line)
        assert parse_message(line).extra


@agents
def test_a_whole_transcript_has_no_problems(agent: str) -> None:
    assert message_shapes.problems(recorded_lines(agent)) == []


def test_what_an_agent_writes_in_the_persons_name_is_not_shown_as_the_persons() -> None:
    roles = [parse_message(line).role for line in recorded_lines("claude") if line.get("type") == "user"]
    assert roles.count("user") == len(PROMPTS["claude"])
    assert {"tool", "system"} < set(roles)
    codex = [parse_message(line) for line in recorded_lines("codex")]
    assert [message.text for message in codex if message.role == "user"] == PROMPTS["codex"]


def test_turns_that_the_agent_took_back_are_gone() -> None:
    gemini = recorded_lines("gemini")
    second = find_turns(gemini)[1]
    back = {"$rewindTo": second.turn_id}
    assert [turn.prompt for turn in find_turns([*gemini, back])] == PROMPTS["gemini"][:1]
    assert find_turns([*gemini, {"$rewindTo": "unknown"}]) == []
    rolled = {
        "timestamp": "2026-11-16T09:30:00Z",
        "type": "event_msg",
        "payload": {"type": "thread_rolled_back", "num_turns": 2},
    }
    assert [turn.prompt for turn in find_turns([*recorded_lines("codex"), rolled])] == PROMPTS["codex"][:1]


def test_a_prompt_that_is_sent_in_the_middle_of_a_turn_begins_no_other() -> None:
    lines = recorded_lines("codex")
    at = find_turns(lines)[0].index
    assert len(find_turns([*lines[: at + 2], lines[at], *lines[at + 2 :]])) == 3


def test_an_error_of_the_model_is_an_error_of_the_turn() -> None:
    claude = recorded_lines("claude")
    start = find_turns(claude)[2].index
    failed = {
        "type": "assistant",
        "uuid": "e",
        "isApiErrorMessage": True,
        "message": {"role": "assistant", "content": [{"type": "text", "text": "API Error: overloaded"}]},
    }
    assert read_turn([claude[start], failed]).errors == ("API Error: overloaded",)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@agents
@given(data=st.data())
def test_a_line_of_wrong_types_is_read_as_far_as_it_goes(agent: str, data: st.DataObject) -> None:
    line = dict(data.draw(st.sampled_from(recorded_lines(agent))))
    for key in data.draw(st.lists(st.sampled_from([*line, "message", "payload", "content", "type", "info", "parts"]))):
        line[key] = data.draw(json_values)
    inner = next((value for value in line.values() if isinstance(value, dict)), None)
    if inner:
        inner[data.draw(st.sampled_from([*inner]))] = data.draw(json_values)
    lines = [line, *recorded_lines(agent)[:5]]
    find_turns(lines)
    read_turn(lines)
    message_shapes.repair(lines, alternating=True)
    message_shapes.own_id(line)
    transcript_lines.written_at(line)
