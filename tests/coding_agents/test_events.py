"""What the four agents really send, and what else may come in its place."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail.agents.events import AGENTS, MAX_PAYLOAD, Agent, Event, check_agent, prompt_label, read_event
from backtrail.errors import InvalidInput

from .conftest import PAYLOADS

RECORDED: dict[Agent, list[dict[str, Any]]] = {
    agent: [json.loads(line) for line in (PAYLOADS / f"{agent}.jsonl").read_text().splitlines()]
    for agent in ("claude", "codex", "gemini")
}


def read(agent: Agent, payload: Any, environment: dict[str, str] | None = None) -> Event | None:
    return read_event(agent, json.dumps(payload).encode(), environment or {})


@pytest.mark.parametrize(
    ("agent", "kinds"),
    [
        ("claude", {"session_start": 6, "prompt": 6, "turn_end": 6, "session_end": 8}),
        ("codex", {"session_start": 3, "prompt": 3, "turn_end": 3, "session_end": 3}),
        ("gemini", {"session_start": 3, "prompt": 3, "turn_end": 3, "session_end": 3}),
    ],
)
def test_recorded_payloads_are_read_and_those_about_tools_are_left_out(agent: Agent, kinds: dict[str, int]) -> None:
    events = [event for payload in RECORDED[agent] if (event := read(agent, payload)) is not None]
    assert Counter(event.kind for event in events) == kinds
    for event in events:
        assert event.cwd == "/home/user/project"
        assert event.transcript is not None and event.transcript.startswith(f"/home/user/.{agent}/")
        assert (event.prompt is None) == (event.kind != "prompt")
        assert event.thread_id == f"{agent}/{event.session_id}"
        if agent != "gemini" and event.kind in ("prompt", "turn_end"):
            assert event.turn_id is not None


def test_the_end_of_a_turn_has_the_id_of_its_prompt() -> None:
    for agent in ("claude", "codex"):
        events = [event for payload in RECORDED[agent] if (event := read(agent, payload)) is not None]
        begun = [event.turn_id for event in events if event.kind == "prompt"]
        assert begun == [event.turn_id for event in events if event.kind == "turn_end"]


def test_the_directory_that_an_agent_was_started_in_is_told_by_its_environment() -> None:
    payload = RECORDED["claude"][0]
    event = read("claude", payload, {"CLAUDE_PROJECT_DIR": "/home/user"})
    assert event is not None and event.project == "/home/user"
    event = read("claude", payload, {"CLAUDE_PROJECT_DIR": "relative"})
    assert event is not None and event.project is None


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b"null", b"3", b"{", b"[" * 100_000, b'"text"'])
def test_what_is_not_a_json_object_is_refused_with_one_error(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not"):
        read_event("claude", data, {})


def test_a_payload_beyond_the_limit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than"):
        read_event("claude", b" " * (MAX_PAYLOAD + 1), {})


@pytest.mark.parametrize("session_id", [None, "", 3, "../../etc", "a/b", "x" * 300, "a\nb", "\ud800", ["s"]])
def test_a_session_id_that_could_be_none_is_refused(session_id: Any) -> None:
    with pytest.raises(InvalidInput, match="session_id"):
        read("claude", {**RECORDED["claude"][1], "session_id": session_id})


@pytest.mark.parametrize("name", [None, 3, "", "NewEvent", "stop", "BeforeAgent"])
def test_an_event_that_nobody_knows_is_left_out(name: Any) -> None:
    assert read("claude", {**RECORDED["claude"][1], "hook_event_name": name}) is None


def test_an_agent_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match="claude, codex, gemini, opencode"):
        check_agent("cursor")
    assert [check_agent(agent) for agent in AGENTS] == list(AGENTS)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_a_recorded_payload_with_a_field_of_another_type_is_an_event_or_one_clear_error(data: st.DataObject) -> None:
    agent = data.draw(st.sampled_from(list(RECORDED)))
    payload = dict(data.draw(st.sampled_from(RECORDED[agent])))
    for key in data.draw(st.lists(st.sampled_from(sorted(payload)), max_size=4)):
        if data.draw(st.booleans()):
            payload[key] = data.draw(values)
        else:
            payload.pop(key, None)
    try:
        event = read(agent, payload)
    except InvalidInput:
        return
    assert event is None or event.agent == agent


@given(st.text())
def test_the_label_of_a_prompt_is_one_line_that_every_store_takes(prompt: str) -> None:
    from backtrail.history.validation import check_label

    label = prompt_label(prompt)
    assert check_label(label) == label
    assert label is None or (len(label) <= 200 and "\n" not in label)
    assert label is not None or not prompt.strip("\0\U0010ffff \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85").split()


def test_the_label_of_a_very_long_prompt_is_its_beginning() -> None:
    label = prompt_label("word " * 100_000)
    assert label is not None and label.startswith("word word") and label.endswith("…") and len(label) == 200
