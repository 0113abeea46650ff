"""The MCP server, started and called by the real programs: it knows whose session it is, and goes back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from .model_server import ModelServer
from .programs import AGENTS, AgentHome

MakeHome = Callable[..., AgentHome]


def answer_to(home: AgentHome, model: ModelServer, agent: str, session: str | None, call: str) -> str:
    """What the model was shown after it called a tool of the server."""
    before = len(model.requests)
    home.prompt(agent, f"PROMPT-call CALL:{call} ENDCALL", session)
    last = model.requests[-1]
    assert len(model.requests) > before + 1, json.dumps(last.body)[-3000:]
    return json.dumps((last.body.get("messages") or last.body.get("input") or last.body["contents"])[-3:])


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_looks_at_its_own_session_and_takes_its_files_back(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent, hooks=False)
    home.run("backtrail", "agents", "install", agent, "--mcp", "--yes")
    if agent == "codex":  # it asks the model before the server is up, unless the server is required
        with (home.home / ".codex/config.toml").open("a") as config:
            config.write("required = true\nstartup_timeout_sec = 100\n")
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = json.loads(home.run("backtrail", "log", "--json").stdout)["data"]["session"].partition("/")[2]
    home.prompt(agent, "PROMPT-two RUN:echo two > a.txt ENDRUN", session)

    listed = answer_to(home, model, agent, session, "list {}")
    assert f"session {agent}/{session}" in listed and "PROMPT-one" in listed and "PROMPT-two" in listed
    planned = answer_to(home, model, agent, session, 'restore_files {"turn": 2}')
    assert (home.project / "a.txt").read_text() == "two\n"
    tokens = re.findall(r"token='([0-9a-f]+)'", planned)
    assert tokens, planned
    token = tokens[-1]
    answer_to(home, model, agent, session, f'restore_files {{"turn": 2, "token": "{token}"}}')
    assert (home.project / "a.txt").read_text() == "one\n"
    told = json.loads(home.run("backtrail", "agents", "status", agent, "--json").stdout)["data"]["agents"][0]
    assert told["tools"] is True
