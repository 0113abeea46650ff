"""Turns of coding agents over HTTP: prompts, tools by name, files with diffs, and a turn that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import backtrail
from backtrail.agents.events import AGENTS
from fix_captured import CapturedSession
from fix_inspector import Inspector, inspector
from fix_transcripts import PROMPTS

agents = pytest.mark.parametrize("agent", AGENTS)


@pytest.fixture
def agents_store(tmp_path: Path) -> Iterator[backtrail.Store]:
    with backtrail.open(tmp_path / "agents.db") as store:
        yield store


@pytest.fixture
def served_agents(agents_store: backtrail.Store) -> Iterator[Inspector]:
    with inspector(agents_store) as served:
        yield served


def played(served: Inspector, agent: str, tmp_path: Path) -> CapturedSession:
    return CapturedSession(served.store, agent, tmp_path / "home", tmp_path / "project")


@agents
def test_a_session_is_listed_as_turns_with_their_tools(served_agents: Inspector, agent: str, tmp_path: Path) -> None:
    session = played(served_agents, agent, tmp_path)
    session.play()
    found = served_agents.get("turns", thread=session.thread_id)
    assert (found["agent"], found["total"]) == (agent, len(PROMPTS[agent]))
    turns = found["turns"][::-1]
    assert [turn["prompt"] for turn in turns] == PROMPTS[agent]
    assert [turn["number"] for turn in turns] == list(range(1, len(turns) + 1))
    assert [tool["calls"] for tool in turns[0]["tools"]] == [1]
    assert turns[0]["tools"][0]["name"] in ("Bash", "exec_command", "run_shell_command", "bash")
    assert all(turn["reply"].startswith("reply number") and turn["files_known"] for turn in turns)
    assert all(turn["duration"] is not None and turn["tokens"] is not None for turn in turns)
    assert served_agents.get("turns", thread=session.thread_id, start=1, limit=1)["turns"] == [turns[-2]]


@agents
def test_a_turn_has_its_tool_calls_and_the_files_that_it_changed(
    served_agents: Inspector, agent: str, tmp_path: Path
) -> None:
    session = played(served_agents, agent, tmp_path)
    session.play()
    second = served_agents.get("turn", thread=session.thread_id, number=2)
    assert second["prompt"] == PROMPTS[agent][1]
    assert [(file["path"], file["kind"]) for file in second["files"]] == [("a.txt", "changed")]
    assert "-one\n+two" in second["files"][0]["text"]
    assert second["tools"][0]["arguments"] and second["tools"][0]["result"]
    assert second["files_missing"] is None


def test_a_turn_is_followed_while_it_goes_on(served_agents: Inspector, tmp_path: Path) -> None:
    session = played(served_agents, "claude", tmp_path)
    session.play(1, 1)
    assert not served_agents.get("turns", thread=session.thread_id)["turns"][0]["open"]
    session.prompt(2)
    newest = served_agents.get("turns", thread=session.thread_id)["turns"][0]
    assert (newest["number"], newest["open"], newest["after"]) == (2, True, None)
    assert served_agents.get("turn", thread=session.thread_id, number=2)["files"] is None
    session.end(2)
    newest = served_agents.get("turns", thread=session.thread_id)["turns"][0]
    assert (newest["open"], newest["reply"]) == (False, "reply number 4")


def test_lines_that_are_no_messages_are_marked(served_agents: Inspector, tmp_path: Path) -> None:
    session = played(served_agents, "claude", tmp_path)
    session.play(1, 1)
    messages = served_agents.get("messages", thread=session.thread_id, limit=100)["messages"]
    shown = [message for message in messages if not message["bookkeeping"]]
    assert [message["role"] for message in shown] == ["user", "assistant", "tool", "assistant"]
    row = served_agents.get("history", thread=session.thread_id)["rows"][0]
    assert (row["role"], row["preview"]) == ("assistant", "reply number 2")


def test_a_thread_that_is_no_session_of_an_agent_has_no_turns(served_agents: Inspector) -> None:
    served_agents.store.thread("plain").append("messages", [{"role": "user", "content": "hi"}])
    assert served_agents.get("turns", thread="plain") == {"agent": None, "total": 0, "start": 0, "turns": []}
    answer = served_agents.client.get("/api/v1/turn", params={"thread": "plain", "number": 1})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFound")
