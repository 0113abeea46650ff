"""Commands typed as prompts into the real programs: answered by the hook, and no model is asked."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing

import pytest

from .model_server import ModelServer
from .programs import AGENTS, PATIENCE, AgentHome, prompt_command
from .test_going_back import MakeHome, backtrail, contents, newest_session, turns_of, without_replies


def type_command(home: AgentHome, agent: str, text: str, session: str) -> str:
    """Send a prompt that may end with an error; what was printed. On a crowded machine the agent is let go before the
    hook is done: its log tells when it is."""
    log = home.home / ".local/share/backtrail/hook.log"
    answered = log.read_text().count('"answered"')
    process = home.start(*prompt_command(agent, text, session))
    printed: str = process.communicate(timeout=PATIENCE)[0]
    deadline = time.monotonic() + PATIENCE
    while log.read_text().count('"answered"') == answered:
        assert time.monotonic() < deadline, printed
        time.sleep(0.1)
    return printed


@pytest.mark.parametrize("agent", AGENTS)
def test_a_rewind_that_is_typed_as_a_prompt_is_answered_without_the_model(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    home.prompt(agent, "PROMPT-two RUN:echo two > a.txt ENDRUN", session)
    asked = len(model.requests)

    listed = type_command(home, agent, "backtrail log", session)
    assert turns_of(home) == ["PROMPT-one", "PROMPT-two"]
    printed = type_command(home, agent, "backtrail rewind 2", session)
    assert contents(home) == {"a.txt": "one\n"}
    new = newest_session(home)
    assert new != session and turns_of(home) == ["PROMPT-one"]
    if agent == "opencode":  # `opencode run` shows an error; the answer is a message of the session
        told = stored_by_opencode(home)
        assert "went back: now before turn 2" in told or "backtrail takes too long" in told, told
    elif agent != "codex":  # `codex exec` shows only that the prompt was blocked
        assert "PROMPT-two" in listed, listed
        assert new in printed, printed
    assert not [request for request in model.requests[asked:] if "backtrail" in json.dumps(request.body)[-2000:]]

    home.prompt(agent, "PROMPT-three RUN:echo three > a.txt ENDRUN", new)
    assert without_replies(model.last_shown("PROMPT-three")) == ["PROMPT-one", "ran echo one > a.txt", "PROMPT-three"]
    type_command(home, agent, "backtrail undo", new)
    assert contents(home) == {"a.txt": "two\n"}
    assert newest_session(home) == session
    type_command(home, agent, "backtrail redo", session)
    assert contents(home) == {"a.txt": "three\n"}
    assert newest_session(home) == new


def stored_by_opencode(home: AgentHome) -> str:
    with closing(sqlite3.connect(home.home / ".local/share/opencode/opencode.db")) as database:
        return "\n".join(data for (data,) in database.execute("SELECT data FROM part"))


def sessions_of_gemini(home: AgentHome) -> set[str]:
    return {path.name for path in (home.home / ".gemini/tmp").rglob("session-*.jsonl")}


@pytest.mark.parametrize("retention", [True, False])
def test_gemini_deletes_a_session_that_was_resumed_later_unless_its_retention_is_off(
    retention: bool, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home("gemini")
    if not retention:
        home.keep_gemini_sessions()
    home.prompt("gemini", "PROMPT-one RUN:echo one > a.txt ENDRUN")
    first = newest_session(home)
    begun = sessions_of_gemini(home)
    time.sleep(61)  # the name of a transcript has the minute in it
    home.prompt("gemini", "PROMPT-two RUN:echo two > a.txt ENDRUN", first)
    home.prompt("gemini", "PROMPT-other")
    assert (begun <= sessions_of_gemini(home)) is not retention
    done = backtrail(home, "rewind", f"gemini/{first}", "2", "--yes")
    assert any("had deleted the transcript" in note for note in done["notes"]) is retention
    home.prompt("gemini", "PROMPT-three", newest_session(home))
    assert without_replies(model.last_shown("PROMPT-three")) == ["PROMPT-one", "ran echo one > a.txt", "PROMPT-three"]
