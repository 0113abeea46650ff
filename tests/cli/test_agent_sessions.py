"""Sessions of coding agents in the terminal: turns, tools by name, files with diffs, and the import of old ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import backtrail
from fix_captured import CapturedSession
from fix_transcripts import PROMPTS, SESSIONS, put_session

from .conftest import Run


@pytest.fixture
def project(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a user whose agents' store has a session of Claude Code."""
    variables = {
        "HOME": str(store_dir / "home"),
        "XDG_DATA_HOME": str(store_dir / "data"),
        "BACKTRAIL_AGENTS_STORE": str(store_dir / "agents.db"),
    }
    monkeypatch.setenv("HOME", variables["HOME"])
    monkeypatch.setenv("XDG_DATA_HOME", variables["XDG_DATA_HOME"])
    with backtrail.open(store_dir / "agents.db") as store:
        CapturedSession(store, "claude", store_dir / "home", store_dir / "project").play(1, 3)
    return variables


@pytest.fixture
def here(run: Run, project: dict[str, str]) -> Run:
    """Runs a command as that user."""
    return partial(run, env=project)


SESSION = f"claude/{SESSIONS['claude']}"


def test_the_log_of_a_session_lists_turns_with_tools_files_tokens_and_duration(here: Run) -> None:
    ran = here("log", SESSION)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [PROMPTS["claude"][n] in "\n".join(lines) for n in range(4)] == [True, True, True, False]
    assert any("Bash ×1" in line and "a.txt" in line and "20 + 10 tokens" in line and "0.7 s" in line for line in lines)


def test_the_log_as_json_has_the_same(here: Run) -> None:
    turns = here("log", SESSION, "--json").data["turns"]
    assert [turn["number"] for turn in turns] == [3, 2, 1]
    assert turns[1]["tools"] == [{"name": "Bash", "calls": 1, "failed": 0}]
    assert turns[1]["files"] == [{"path": "a.txt", "kind": "changed"}]
    assert turns[1]["tokens"] == {"input": 20, "cached": 0, "output": 10}


def test_a_turn_is_shown_with_its_tools_and_its_diff(here: Run) -> None:
    shown = here("show", SESSION, "2").out
    assert PROMPTS["claude"][1] in shown and "▸ Bash(" in shown and "↳ (Bash completed" in shown
    assert "reply number 4" in shown
    assert "  -one\n  +two\n" in shown
    data = here("show", SESSION, "2", "--json").data
    assert data["tools"][0]["name"] == "Bash"
    assert data["files"][0]["path"] == "a.txt"
    assert PROMPTS["claude"][2] in here("show", SESSION).out


def test_a_checkpoint_is_shown_without_lines_that_are_no_messages(here: Run) -> None:
    shown = here("show", SESSION, "@")
    assert "reply number 5" in shown.out and "attachment" not in shown.out
    assert "attachment" in here("show", SESSION, "@", "--full").out


def test_the_last_messages_are_those_that_are_shown(here: Run) -> None:
    for number in (1, 4, 10):
        assert sum(" #" in line for line in here("tail", SESSION, "-n", str(number)).out.splitlines()) == number
    everything = here("tail", SESSION, "-n", "1000").out
    assert everything.endswith(here("tail", SESSION, "-n", "10").out)
    assert here("tail", SESSION, "-n", "0").out == ""
    assert len(here("tail", SESSION, "-n", "7", "--json").out.splitlines()) == 7


def test_a_name_or_prefix_of_a_session_means_the_store_of_the_agents_in_every_command(
    here: Run, store_dir: Path
) -> None:
    assert SESSION in here("threads", "claude/").out
    assert "talk" in here("threads").out and SESSION not in here("threads").out
    assert SESSION in here("find", "claude/", "--text", "reply number 4").out
    assert "reply number 5" in here("tail", SESSION, "-n", "60").out
    assert "reply number 5" in here("export", SESSION, "--format", "markdown").out
    assert here("tag", SESSION, "good").code == 0
    assert here("label", SESSION, "named").code == 0
    assert SESSION in here("find", "claude/", "--label", "named").out
    assert here("fork", SESSION, "--to", "aside").code == 0
    mixed = here("rm", SESSION, "talk", "--yes")
    assert mixed.code == 2 and "delete them by themselves" in mixed.err
    assert f"did you mean '{SESSION}'?" in here("tail", SESSION[:-1]).err
    assert here("rm", SESSION, "--yes").code == 0
    assert here("threads", "claude/", "--json").data["threads"] == []
    missing = here("tail", SESSION, "-s", str(store_dir / "backtrail.db"))
    assert (missing.code, SESSION in missing.err) == (3, True)


def test_the_inspector_shows_the_sessions_of_the_agents(
    here: Run, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[backtrail.Store] = []

    def remember(store: backtrail.Store, **options: object) -> Any:
        served.append(store)
        assert options["name"] == str(store_dir / "agents.db")
        assert store.thread(SESSION).exists()
        raise backtrail.InvalidInput("seen")

    monkeypatch.setattr("backtrail.server.application", remember)
    assert "seen" in here("ui", "--agents", "--no-browser", "--port", "0").err
    assert len(served) == 1


def test_a_turn_that_does_not_exist_is_an_error(here: Run) -> None:
    ran = here("show", SESSION, "9")
    assert ran.code == 3 and "has no turn 9" in ran.err


def test_old_sessions_are_imported_once(here: Run, store_dir: Path) -> None:
    put_session("codex", store_dir / "home")
    ran = here("agents", "import", "codex", "gemini")
    assert ran.code == 0 and ran.out.startswith("1 imported")
    assert here("agents", "import", "codex", "--json").data["unchanged"][0]["id"] == f"codex/{SESSIONS['codex']}"
    log = here("log", f"codex/{SESSIONS['codex']}").out
    assert PROMPTS["codex"][0] in log and "exec_command ×1" in log
    shown = here("show", f"codex/{SESSIONS['codex']}", "1").out
    assert "not known: imported from a transcript" in shown


def test_a_directory_is_that_of_one_agent(here: Run, store_dir: Path) -> None:
    put_session("codex", store_dir / "backup")
    assert here("agents", "import", "--dir", str(store_dir)).code == 2
    assert here("agents", "import", "codex", "--dir", str(store_dir / "backup")).out.startswith("1 imported")
    assert "there is no agent" in here("agents", "import", "cursor").err


def test_a_bad_transcript_fails_and_the_rest_is_imported(here: Run, store_dir: Path) -> None:
    put_session("codex", store_dir / "home").with_name("rollout-bad.jsonl").write_bytes(b"\x00\xff" * 100)
    ran = here("agents", "import", "codex")
    assert ran.code == 1 and "1 imported" in ran.out and "rollout-bad.jsonl" in ran.out
