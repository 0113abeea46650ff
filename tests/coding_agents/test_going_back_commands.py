"""The commands that go back, in a project's directory: which session they mean, what they print, what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import backtrail

from .conftest import PATIENCE, FakeAgent
from .test_going_back import AFTER_THREE, AFTER_TWO, FakeClaude, three_turns

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def claude(tmp_path: Path, user_store: backtrail.Store) -> FakeClaude:
    return three_turns(FakeClaude(tmp_path), user_store)


@pytest.fixture
def run(claude: FakeClaude) -> Run:
    def run(*arguments: str, cwd: Path = claude.project, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "backtrail.cli", *arguments]
        environment = {**os.environ, **env}
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    return run


def test_without_a_thread_the_newest_session_here_is_meant(run: Run, claude: FakeClaude) -> None:
    log = run("log")
    assert log.returncode == 0, log.stderr
    assert log.stdout.index("prompt 3") < log.stdout.index("prompt 1")
    (claude.project / "d").mkdir(exist_ok=True)
    data = json.loads(run("log", "--json", cwd=claude.project / "d").stdout)["data"]
    assert (data["session"], [turn["number"] for turn in data["turns"]]) == (f"claude/{claude.session_id}", [3, 2, 1])
    assert "prompt 2" in run("show", "2", "--full").stdout
    assert "prompt 3" not in run("show", "2", "--full").stdout
    diff = run("diff", "2")
    assert "+two" in diff.stdout and "d/new.txt" in diff.stdout and "three" not in diff.stdout
    assert [c["path"] for c in json.loads(run("diff", "--json").stdout)["data"]["files"]] == [
        "a.txt",
        "late.txt",
        "own.txt",
    ]
    assert run("diff", "1", "3", "--exit-code").returncode == 1


def test_a_rewind_shows_its_plan_asks_and_is_taken_back_by_undo(run: Run, claude: FakeClaude) -> None:
    refused = run("rewind", "3")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert claude.contents() == AFTER_THREE
    planned = run("rewind", "--turn", "3", "--dry-run")
    assert planned.stdout.startswith("would go back to before turn 3\n~ a.txt\n")
    done = run("rewind", "3", "--files", "--yes")
    assert done.returncode == 0, done.stderr
    assert "go on, in " in done.stdout and "claude --resume " in done.stdout and "/resume " in done.stdout
    assert claude.contents() == AFTER_TWO
    assert [turn["number"] for turn in json.loads(run("log", "--json").stdout)["data"]["turns"]] == [2, 1]
    undone = run("undo", "--yes")
    assert f"claude --resume {claude.session_id}" in undone.stdout
    assert claude.contents() == AFTER_THREE


def test_go_starts_the_agent_with_the_new_session_in_its_directory(run: Run, claude: FakeClaude, home: Path) -> None:
    program = home / "claude"
    program.write_text('#!/bin/sh\necho "started in $PWD with $*"\n')
    program.chmod(0o755)
    done = run("rewind", "2", "--yes", "--go", cwd=claude.project / "d", PATH=f"{home}:{os.environ['PATH']}")
    new = done.stdout.partition("--resume ")[2].split()[0]
    assert f"started in {claude.project.resolve()} with --resume {new}" in done.stdout


def test_one_turn_is_reverted_by_its_number(run: Run, claude: FakeClaude) -> None:
    done = run("revert", "--turn", "2", "--yes", "--json")
    data = json.loads(done.stdout)["data"]
    assert [change["path"] for change in data["files"]] == ["d/new.txt"]
    assert {"path": "a.txt", "reason": "changed since in the same lines"} in data["kept"]
    assert "d/new.txt" not in claude.contents()
    assert run("undo", "--yes").returncode == 0
    assert claude.contents() == AFTER_THREE


def test_a_revert_says_what_it_took_back_and_what_it_cannot(
    run: Run, claude: FakeClaude, user_store: backtrail.Store
) -> None:
    thread = f"claude/{claude.session_id}"
    claude.turn(user_store, 4, {})
    planned, done = run("revert", "2", "--dry-run"), run("revert", "2", "--yes")
    assert planned.stdout.startswith(f"would take back what turn 2 of {thread} did to the files, but for 1 file that ")
    assert done.stdout.splitlines() == [
        f"took back what turn 2 of {thread} did to the files, but for 1 file that cannot go back",
        "- d/new.txt",
        "= a.txt   (kept: changed since in the same lines)",
    ]
    again = run("revert", "2", "--yes").stdout.splitlines()
    assert again[0] == f"nothing of what turn 2 of {thread} did to the files can be taken back"
    told = run("revert", "4", "--yes").stdout
    assert told.startswith(f"there is nothing to take back: turn 4 of {thread} changed no file, or all are again ")
    run("undo", "--yes")  # of the one revert that did anything
    assert claude.contents() == AFTER_THREE
    assert "nothing to undo" in run("undo", "--yes").stderr


def test_a_session_is_named_by_its_thread(run: Run, claude: FakeClaude, user_store: backtrail.Store) -> None:
    other = FakeAgent(claude.project.parent, "codex", "session-2")
    other.tell(user_store, "UserPromptSubmit", prompt="of codex", turn_id="t-1")
    assert "of codex" in run("log").stdout
    assert "prompt 3" in run("log", f"claude/{claude.session_id}").stdout
    done = run("rewind", f"claude/{claude.session_id}", "3", "--files-only", "--yes")
    assert "codex/session-2 worked in this directory since then" in done.stdout
    assert claude.contents() == AFTER_TWO


def test_what_makes_no_sense_is_refused_and_nothing_is_done(run: Run, claude: FakeClaude, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for arguments, told in (
        (("rewind",), "name one turn"),
        (("rewind", "9", "--yes"), "has no turn 9"),
        (("rewind", "3", "--turn", "2", "--yes"), "name one turn"),
        (("rewind", "3", "--conversation", "--files-only", "--yes"), "leave out one of the two"),
        (("rewind", "3", "--prune", "--yes"), "not for sessions of coding agents"),
        (("revert", "x", "2"), "no store"),
        (("undo", "--yes"), "nothing to undo"),
        (("diff", "2", "x"), "not the number of a turn"),
    ):
        ended = run(*arguments)
        assert ended.returncode not in (0, 1), (arguments, ended)
        assert told in ended.stderr, (arguments, ended.stderr)
    assert "no session of a coding agent was captured" in run("log", cwd=elsewhere).stderr
    assert "nothing of a coding agent was captured yet" in run("log", XDG_DATA_HOME=str(elsewhere)).stderr
    assert claude.contents() == AFTER_THREE


def test_threads_of_other_stores_mean_what_they_did(run: Run, tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "other.db") as store:
        store.thread("3").save({"n": 1})
        store.thread("3").save({"n": 2})
    path = str(tmp_path / "other.db")
    assert json.loads(run("-s", path, "show", "3", "--json").stdout)["data"]["state"] == {"n": 2}
    assert run("-s", path, "rewind", "3", "1", "--yes").returncode == 0
    assert json.loads(run("-s", path, "show", "3", "--json").stdout)["data"]["state"] == {"n": 1}
    assert "--go" in run("-s", path, "rewind", "3", "1", "--go").stderr
    assert "only those have turns" in run("-s", path, "revert", "3", "1").stderr
