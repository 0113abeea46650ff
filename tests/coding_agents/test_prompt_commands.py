"""Commands that a person types into the agent, and the answers that the agent shows without asking a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents import going_back
from backtrail.agents.events import AGENTS, Agent, read_event
from backtrail.agents.prompt_commands import Command, answer, decision, parse
from backtrail.agents.user_store import data_directory, open_user_store

from .conftest import FakeAgent, wait_for_events

NONE = frozenset[str]()


@pytest.mark.parametrize(
    ("prompt", "command"),
    [
        ("backtrail log", Command("log", None, NONE)),
        ("  backtrail   diff  2 \n", Command("diff", 2, NONE)),
        ("/backtrail undo", Command("undo", None, NONE)),
        ('"backtrail log"', Command("log", None, NONE)),
        ("backtrail rewind 3 --files-only -n", Command("rewind", 3, frozenset({"--files-only", "-n"}))),
        ("backtrail revert 12", Command("revert", 12, NONE)),
        ("backtrail rewind", Command("rewind", None, NONE)),
    ],
)
def test_a_prompt_that_is_a_command_is_one(prompt: str, command: Command) -> None:
    assert parse(prompt) == command


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "",
        "backtrail",
        "backtrail rewind 3 please",
        "why does backtrail log print this?",
        "backtrail log\nand then fix it",
        "backtrail rewind three",
        "backtrail rewind 3 --rm-rf",
        "backtrail undo 3",
        "backtrail prune",
        "backtrail rewind 99999999",
        "backtrail log " + "x" * 300,
        "backtrail rewind -3",
    ],
)
def test_a_prompt_that_only_speaks_of_backtrail_goes_to_the_agent(prompt: str | None) -> None:
    assert parse(prompt) is None


def two_turns(agent: FakeAgent, store: backtrail.Store) -> None:
    for number in (1, 2):
        agent.tell(store, "UserPromptSubmit", prompt=f"prompt {number}", prompt_id=f"id-{number}")
        agent.write("a.txt", f"turn {number}\n")
        agent.tell(store, "Stop", prompt_id=f"id-{number}")


def ask(agent: FakeAgent, store: backtrail.Store, prompt: str) -> str:
    """The answer to a prompt, as the agent shows it."""
    event = read_event(agent.agent, agent.payload("UserPromptSubmit", prompt=prompt), {})
    command = parse(prompt)
    assert event is not None and command is not None
    told = json.loads(answer(store, event, command))
    assert told["decision"] == "block"
    return str(told["reason"])


def test_log_lists_the_turns(agent: FakeAgent, user_store: backtrail.Store) -> None:
    assert ask(agent, user_store, "backtrail log") == "no turn was captured yet"
    two_turns(agent, user_store)
    lines = ask(agent, user_store, "backtrail log").splitlines()
    assert lines[0] == f"claude/session-1 in {agent.project.resolve()}"
    assert lines[1].startswith("   1  ") and lines[1].endswith("prompt 1")
    assert lines[2].startswith("   2  ") and lines[2].endswith("prompt 2")


def test_diff_shows_what_a_turn_changed(agent: FakeAgent, user_store: backtrail.Store) -> None:
    assert ask(agent, user_store, "backtrail diff") == "no turn was captured yet"
    two_turns(agent, user_store)
    assert "-turn 1\n+turn 2" in ask(agent, user_store, "backtrail diff")
    assert "+turn 1" in ask(agent, user_store, "backtrail diff 1")
    assert "it has turns 1 to 2" in ask(agent, user_store, "backtrail diff 7")


def test_rewind_and_undo_take_the_files_back_and_forth(agent: FakeAgent, user_store: backtrail.Store) -> None:
    two_turns(agent, user_store)
    file = agent.project / "a.txt"
    assert "say which turn" in ask(agent, user_store, "backtrail rewind")
    ask(agent, user_store, "backtrail rewind 2 --files-only --dry-run")
    assert file.read_text() == "turn 2\n"
    told = ask(agent, user_store, "backtrail rewind 2 --files-only")
    assert file.read_text() == "turn 1\n"
    assert "prompt 2" in told and "backtrail undo" in told
    ask(agent, user_store, "backtrail undo")
    assert file.read_text() == "turn 2\n"
    assert "nothing to undo" in ask(agent, user_store, "backtrail undo")


def test_revert_takes_back_what_one_turn_did(agent: FakeAgent, user_store: backtrail.Store) -> None:
    two_turns(agent, user_store)
    ask(agent, user_store, "backtrail revert 2")
    assert (agent.project / "a.txt").read_text() == "turn 1\n"


@pytest.mark.parametrize("name", AGENTS)
def test_an_answer_has_the_form_that_the_agent_takes(name: Agent, tmp_path: Path) -> None:
    prompts = {"gemini": "BeforeAgent", "opencode": "chat.message"}
    payload = FakeAgent(tmp_path, name).payload(prompts.get(name, "UserPromptSubmit"), prompt="backtrail log")
    event = read_event(name, payload, {})
    assert event is not None
    told = decision(event, "first line\nsecond \x1b[31mline")
    if name == "opencode":
        assert told == "first line\nsecond ␛[31mline"
        return
    # Codex's published schema refuses fields that it does not know, another decision, and a reason of blanks; Claude
    # Code takes the same two fields, and Gemini CLI has its own word for the decision.
    assert json.loads(told) == {
        "decision": "deny" if name == "gemini" else "block",
        "reason": "first line\nsecond ␛[31mline",
    }


def test_a_long_answer_is_cut(agent: FakeAgent) -> None:
    event = read_event("claude", agent.payload("UserPromptSubmit", prompt="backtrail log"), {})
    assert event is not None
    reason = json.loads(decision(event, "line\n" * 5000))["reason"]
    assert reason.count("\n") == 200 and reason.endswith("type the same in a terminal")


def test_the_hook_prints_the_answer_and_captures_no_turn(agent: FakeAgent) -> None:
    agent.hook("UserPromptSubmit", prompt="one", prompt_id="id-1")
    ran = agent.hook("UserPromptSubmit", prompt="backtrail log", prompt_id="id-2")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "one" in json.loads(ran.stdout)["reason"]
    assert wait_for_events(2)[-1]["answered"] == "log"
    with open_user_store() as store:
        assert len(agent.read(store).turns()) == 1


def test_a_command_is_answered_even_if_the_store_is_damaged(agent: FakeAgent) -> None:
    data_directory().mkdir(parents=True)
    (data_directory() / "agents.db").write_bytes(b"not a database" * 100)
    ran = agent.hook("UserPromptSubmit", prompt="backtrail rewind 1")
    assert ran.returncode == 0  # else the model would be asked what the person meant
    assert "agents.db" in json.loads(ran.stdout)["reason"]


def test_an_error_of_going_back_is_the_answer(
    agent: FakeAgent, user_store: backtrail.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_options: Any) -> None:
        raise backtrail.Conflict("x", message="somebody else was faster")

    monkeypatch.setattr(going_back, "rewind", refuse)
    two_turns(agent, user_store)
    assert ask(agent, user_store, "backtrail rewind 1") == "somebody else was faster"
