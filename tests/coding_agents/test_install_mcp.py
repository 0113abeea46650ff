"""Telling the agents to start the MCP server, and taking that back: nothing of anybody else's is lost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from backtrail.agents.events import AGENTS, Agent
from backtrail.agents.install.mcp_servers import has_server, server_file, with_server, without_server
from backtrail.agents.install.programs import program, server_command
from backtrail.agents.install.settings import apply, is_installed, plan_install, plan_server, plan_uninstall
from backtrail.agents.install.status import report
from backtrail.errors import InvalidInput

agents = pytest.mark.parametrize("agent", AGENTS)
WORDS = ["/opt/tools/bin/backtrail", "mcp", "--agent"]

JSON_FILES = {
    "nothing": "",
    "an empty object": "{}\n",
    "other settings": '{\n    "model": "opus", // mine\n    "n": [1, 2]\n}\n',
    "one line": '{"model": "opus"}',
    "other servers": '{\n  "KEY": {\n    "mine": {\n      "command": "x"\n    }\n  }\n}\n',
    "no servers yet": '{\n  "KEY": {},\n  "model": "x"\n}\n',
}
TOML_FILES = {
    "nothing": "",
    "other settings": '# mine\nmodel = "gpt"\n\n[analytics]\nenabled = false\n',
    "other servers": '[mcp_servers.mine]\ncommand = "x"\n\n[mcp_servers.mine.env]\nA = "1"\n',
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def files_of(agent: Agent) -> dict[str, str]:
    if agent == "codex":
        return TOML_FILES
    key = "mcp" if agent == "opencode" else "mcpServers"
    return {name: text.replace("KEY", key) for name, text in JSON_FILES.items()}


def parsed(agent: Agent, text: str) -> Any:
    if agent == "codex":
        return tomllib.loads(text)
    return json.loads(text.replace(" // mine", ""))


@agents
def test_the_server_is_added_once_and_taken_out_again(agent: Agent) -> None:
    words = [*WORDS, agent]
    for name, text in files_of(agent).items():
        added = with_server(text, agent, words, "f")
        assert has_server(added, agent, "f"), name
        assert with_server(added, agent, words, "f") == added, name
        before, after = parsed(agent, text) if text else {}, parsed(agent, added)
        assert {key: value for key, value in after.items() if "mcp" not in key} == {
            key: value for key, value in before.items() if "mcp" not in key
        }, name
        if name not in ("nothing", "no servers yet", "an empty object"):
            assert without_server(added, agent, "f") == text, name
        assert not has_server(without_server(added, agent, "f"), agent, "f")


@agents
def test_a_server_from_another_place_is_replaced(agent: Agent) -> None:
    old = with_server("", agent, ["/old/backtrail", "mcp", "--agent", agent], "f")
    new = with_server(old, agent, [*WORDS, agent], "f")
    assert "/old/" not in new and "/opt/tools" in new


@agents
def test_somebody_elses_server_of_that_name_is_not_touched(agent: Agent) -> None:
    other = with_server("", agent, [*WORDS, agent], "f").replace('"--agent"', '"--other"')
    assert without_server(other, agent, "f") == other
    with pytest.raises(InvalidInput, match="another MCP server"):
        with_server(other, agent, [*WORDS, agent], "f")


def test_a_file_that_cannot_be_read_is_left_as_it_is() -> None:
    for text in ("[", "mcp_servers = {}\n"):
        with pytest.raises(InvalidInput, match="nothing was changed"):
            with_server(text, "codex", [*WORDS, "codex"], "f")
    for text in ("[]", "{", '{"mcpServers": 1}'):
        with pytest.raises(InvalidInput, match="nothing was changed"):
            with_server(text, "claude", [*WORDS, "claude"], "f")


@agents
@pytest.mark.parametrize("place", ["nothing", "other settings"])
def test_installed_and_uninstalled_the_files_are_what_they_were(agent: Agent, place: str) -> None:
    one = program(agent)
    path = server_file(one)
    text = files_of(agent)[place]
    if text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for _ in range(2):
        for edit in plan_server(plan_install(one, f"/opt/backtrail hook {agent}"), one, server_command(agent)):
            apply(edit)
    assert has_server(path.read_text(), agent, "f")
    again = plan_server(plan_install(one, f"/opt/backtrail hook {agent}"), one, server_command(agent))
    assert not any(edit.changes for edit in again)
    hook_text = one.file.read_text()
    assert is_installed(one, hook_text, f"/opt/backtrail hook {agent}")
    for edit in plan_server(plan_uninstall(one), one, None):
        apply(edit)
    assert (path.read_text() if path.exists() else "") == text
    assert not list(path.parent.glob("*.backtrail-backup"))


def test_the_servers_of_claude_are_beside_its_directory_unless_that_was_moved(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server_file(program("claude")) == home / ".claude.json"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "elsewhere"))
    assert server_file(program("claude")) == home / "elsewhere" / ".claude.json"


@agents
def test_the_status_tells_whether_the_tools_are_registered_and_can_start(agent: Agent, home: Path) -> None:
    one = program(agent)
    assert report([agent]).agents[0].tools is False
    for edit in plan_server(plan_install(one, f"/opt/backtrail hook {agent}"), one, [*WORDS, agent]):
        apply(edit)
    status = report([agent]).agents[0]
    assert (status.tools, status.tools_file) == (True, str(server_file(one)))
    assert any("the program that the tools are started with is gone" in line for line in status.to_do)
    server_file(one).write_text("{")
    status = report([agent]).agents[0]
    assert status.tools is False
    assert len([line for line in status.to_do if str(server_file(one)) in line and "correct it first" in line]) == 1
