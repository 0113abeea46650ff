"""Nothing that a store holds reaches a terminal raw: no control character, no turn of direction, in no command."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import backtrail
from backtrail.cli.formatting import safe, safe_json
from backtrail.cli.main import COMMANDS

BELL, CSI, DELETE, TURN, ISOLATE, MARK, TAG = "\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\u200f", "\U000e0041"
HOSTILE = f"\x1b]0;owned{BELL}{CSI}31m{DELETE}{TURN}{ISOLATE}{MARK}{TAG}"
# What each command is called with; a thread that is not there shows its name in an error.
CALLS = {
    "threads": [[]],
    "sessions": [[]],
    "runs": [[]],
    "log": [["THREAD"], ["THREAD", "--all"], ["nobodyHOSTILE"]],
    "show": [["THREAD"], ["THREAD", "--full"], ["THREAD", "labelHOSTILE"]],
    "diff": [
        ["THREAD", "1", "2"],
        ["THREAD", "1", "@", "--full"],
        ["THREAD", "sessionHOSTILE"],
        ["THREAD", "xHOSTILE"],
    ],
    "steps": [["runHOSTILE"], ["nobodyHOSTILE"]],
    "pending": [[], ["run"]],
    "answer": [
        ["runHOSTILE", "askHOSTILE", "xHOSTILE"],
        ["runHOSTILE", "noneHOSTILE", "x"],
        ["nobodyHOSTILE", "a", "b"],
    ],
    "submit": [["taskHOSTILE", "inputHOSTILE", "--id", "newHOSTILE"], ["otherHOSTILE", "--id", "newHOSTILE"]],
    "work": [["moduleHOSTILE:x"], ["json:loads", "--drain"]],
    "find": [["--label", "labelHOSTILE"], ["--text", "owned"]],
    "ui": [["--port", "99999"], ["--host", "hostHOSTILE"]],
    "fork": [["THREAD", "THREAD"], ["THREAD", "forkHOSTILE"]],
    "rewind": [["THREAD", "1", "--dry-run"], ["THREAD", "missingHOSTILE"]],
    "revert": [["THREAD", "1"], ["nobodyHOSTILE", "1"]],
    "undo": [["nobodyHOSTILE"], ["THREAD"]],
    "redo": [["THREAD"], ["THREAD"], ["nobodyHOSTILE"]],
    "label": [["THREAD", "2", "newHOSTILE"]],
    "tag": [["THREAD", "2", "tagHOSTILE"]],
    "rm": [["THREAD", "--dry-run"], ["nobodyHOSTILE", "--yes"]],
    "files": [["list"], ["diff"]],
    "agents": [["status", "xHOSTILE"], ["install", "--dry-run", "xHOSTILE"], ["uninstall", "--dry-run"]],
    "hook": [["xHOSTILE"]],
    "mcp": [["xHOSTILE"]],
    "import": [["files"], ["missingHOSTILE"]],
    "export": [["THREAD"], ["THREAD", "--format", "markdown"], ["THREAD", "--format", "json"]],
    "copy": [["copy.db"]],
    "sync": [["backtrail.db", "copy.db"], ["xHOSTILE", "y"]],
    "prune": [["--keep-last", "1", "--dry-run"]],
    "compact": [[]],
    "verify": [[]],
    "rekey": [["missingHOSTILE"]],
    "stats": [[]],
    "doctor": [[]],
    "bench": [["--seconds", "HOSTILE"]],
}
# Several commands in one process, each with the terminal as its stdout and stderr.
DRIVER = """
import json, sys
from backtrail.cli import context
from backtrail.cli.main import backtrail
for arguments in json.load(open("calls.json")):
    try:
        context.run(backtrail, arguments)
    except SystemExit as ended:
        print("code", ended.code, flush=True)
"""


@pytest.fixture
def hostile_store(tmp_path: Path) -> Path:
    """A directory with a store in which every text tries to steer a terminal, and a file to import that does."""
    name = f"thread{HOSTILE}"
    message = {"role": f"user{HOSTILE}", "content": f"owned{HOSTILE}", f"key{HOSTILE}": 1}
    with backtrail.open(tmp_path / "backtrail.db") as store:
        thread: backtrail.Thread[dict[str, object]] = store.thread(name)
        thread.save({"messages": [message], f"name{HOSTILE}": f"value{HOSTILE}"}, custom={"note": HOSTILE})
        thread.append("messages", [message], label=f"label{HOSTILE}", tags=[f"tag{HOSTILE}"])
        store.session(f"session{HOSTILE}").append(message)
        with contextlib.suppress(backtrail.Suspended), store.run(f"run{HOSTILE}", task=f"task{HOSTILE}") as run:
            run.messages.append(message)
            run.checkpoint()
            run.step(f"step{HOSTILE}", lambda: message)
            with contextlib.suppress(ValueError):
                run.step(f"fail{HOSTILE}", int, HOSTILE)
            with contextlib.suppress(backtrail.Suspended):
                run.ask(f"ask{HOSTILE}", f"question{HOSTILE}", about=message, schema={"const": f"a{HOSTILE}"})
            raise backtrail.Suspended("run")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / f"bad{HOSTILE.replace('/', '')}.json").write_text(f"{{{HOSTILE}")
    return tmp_path


@pytest.mark.parametrize("form", [[], ["--json"], ["--debug"]], ids=["text", "json", "debug"])
def test_no_command_lets_stored_text_steer_the_terminal(hostile_store: Path, form: list[str]) -> None:
    assert CALLS.keys() == COMMANDS.keys()
    filled = [
        [name, *(a.replace("THREAD", f"thread{HOSTILE}").replace("HOSTILE", HOSTILE) for a in arguments), *form]
        for name, calls in CALLS.items()
        for arguments in calls
    ]
    (hostile_store / "calls.json").write_text(json.dumps(filled))
    shown = on_a_terminal(hostile_store)
    assert shown.count("\ncode ") >= len(filled) - 1
    assert "owned" in shown
    for character in (f"\x1b]0;owned{BELL}", CSI, DELETE, TURN, ISOLATE, MARK, TAG):
        at = shown.find(character)
        assert at < 0, shown[max(0, at - 300) : at + 60]


def test_json_for_a_terminal_means_the_same() -> None:
    value = {f"key{HOSTILE}": [HOSTILE, "😀 ünï", "\u2028"]}
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(safe_json(text)) == value
    assert safe(safe_json(text)) == safe_json(text)


def on_a_terminal(directory: Path) -> str:
    """Run the commands of calls.json on a terminal, and return what it showed."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BACKTRAIL_")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "5000", "BACKTRAIL_PAGER": "off"}
    environment["HOME"] = str(directory)  # the hook has a log there
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        process.wait(60)
    os.close(ours)
    return seen.decode()
