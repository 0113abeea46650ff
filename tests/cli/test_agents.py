"""`backtrail agents` and `backtrail hook` as a person runs them: text, JSON, questions, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with settings of Claude Code, and no agents on the PATH."""
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text('{\n  "model": "opus" // mine\n}\n')
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return home


def test_install_shows_what_it_writes_and_needs_a_yes(run: Run, home: Path) -> None:
    file = home / ".claude" / "settings.json"
    before = file.read_text()
    asked = run("agents", "install")
    assert asked.code == 2 and "say --yes" in asked.err
    shown = run("agents", "install", "--dry-run")
    assert shown.code == 0 and f"{file}: changed" in shown.out and '+    "UserPromptSubmit": [' in shown.out
    assert file.read_text() == before
    done = run("agents", "install", "--yes")
    assert done.code == 0 and "Claude Code" in done.out and "// mine" in file.read_text()
    assert "nothing to change" in run("agents", "install", "--yes").out
    undone = run("agents", "uninstall", "--yes")
    assert undone.code == 0 and '-    "UserPromptSubmit": [' in undone.out
    assert file.read_text() == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["settings.json"]


def test_install_as_json(run: Run, home: Path) -> None:
    done = run("agents", "install", "claude", "codex", "--yes", "--json").data
    assert done["done"] is True
    assert [(file["agent"], file["change"]) for file in done["files"]] == [("claude", "write"), ("codex", "write")]
    assert json.loads((home / ".codex" / "hooks.json").read_text()) == json.loads(done["files"][1]["text"])
    again = run("agents", "install", "codex", "--dry-run", "--json").data
    assert [(file["change"], file["text"]) for file in again["files"]] == [("none", None)]
    removed = run("agents", "uninstall", "codex", "--yes", "--json").data
    assert [(file["agent"], file["change"]) for file in removed["files"]] == [("codex", "remove")]


def test_codex_is_said_to_need_an_approval(run: Run, home: Path) -> None:
    assert "type /hooks" in run("agents", "install", "codex", "--yes").out


def test_a_machine_without_agents_is_told_so(run: Run, home: Path) -> None:
    (home / ".claude" / "settings.json").unlink()
    (home / ".claude").rmdir()
    ended = run("agents", "install", "--yes")
    assert ended.code == 1 and "none of the agents is on this machine" in ended.err
    assert "Gemini CLI: not on this machine" in run("agents", "status").out
    assert "nothing to change" in run("agents", "uninstall", "--yes").out


def test_an_agent_that_nobody_knows_is_refused(run: Run, home: Path) -> None:
    for command in ("install", "uninstall", "status"):
        ended = run("agents", command, "cursor")
        assert ended.code == 2 and "use claude, codex, gemini, opencode" in ended.err


def test_settings_that_are_no_json_are_refused_and_left(run: Run, home: Path) -> None:
    (home / ".claude" / "settings.json").write_text("{ nonsense")
    ended = run("agents", "install", "--yes")
    assert ended.code == 2 and "settings.json is not JSON at line 1" in ended.err
    assert (home / ".claude" / "settings.json").read_text() == "{ nonsense"


def test_status_says_how_it_stands_and_what_to_do(run: Run, home: Path) -> None:
    before = run("agents", "status").out
    assert f"store: {home}/.local/share/backtrail/agents.db" in before
    assert "  hook: not installed" in before and "  to do: backtrail agents install claude" in before
    run("agents", "install", "--yes")
    after = run("agents", "status", "claude").out
    assert "  hook: installed" in after and "  last event: never" in after and "Codex" not in after
    (one,) = run("agents", "status", "claude", "--json").data["agents"]
    assert (one["agent"], one["installed"], one["trusted"], one["last_fired"]) == ("claude", True, None, None)
    assert not (home / ".local").exists()  # looking makes nothing


def test_the_hook_command_of_the_table_ends_as_the_quick_one_does(run: Run, home: Path) -> None:
    assert run("hook", "cursor").code == 1
    assert run("hook").code == 1
