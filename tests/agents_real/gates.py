"""Stops a real agent at a chosen moment of its turn, so that a test can kill it just there.

A gate is a program of the test that stands in the hook's place in the agent's settings. It runs the hook, and waits
before or after it for as long as there is a file that says so. `kill_everything` ends all processes of a home at once:
the agent, its tools, its hooks, and what these have left running.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from fix_faulty_disk import TESTS, library

from .programs import PATIENCE, AgentHome

HOOK_FILES = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/plugins/backtrail.js",
}
#: The agents' names of the events; None if resuming a session tells no such event.
EVENTS: dict[str, dict[str, str | None]] = {
    "claude": {"start": "SessionStart", "prompt": "UserPromptSubmit", "end": "Stop", "leave": "SessionEnd"},
    "codex": {"start": "SessionStart", "prompt": "UserPromptSubmit", "end": "Stop", "leave": None},
    "gemini": {"start": "SessionStart", "prompt": "BeforeAgent", "end": "AfterAgent", "leave": "SessionEnd"},
    "opencode": {"start": None, "prompt": "chat.message", "end": "session.idle", "leave": None},
}
_GATE = """\
#!/bin/sh
event=$(mktemp "{folder}/event.XXXXXX")
cat > "$event"
name=$(grep -o '"hook_event_name" *: *"[^"]*"' "$event" | head -n 1 | sed 's/.*"\\([^"]*\\)"$/\\1/')
wait_at() {{
  test -e "{folder}/$name.$1" || return
  touch "{folder}/reached"
  while test -e "{folder}/$name.$1"; do sleep 0.05; done
}}
wait_at before
{command} < "$event"
code=$?
wait_at after
exit $code
"""


def _replace_command(home: AgentHome, agent: str, command: str) -> None:
    """Put another command in the place of the hook's."""
    settings = home.home / HOOK_FILES[agent]
    path = home.run("sh", "-c", "command -v backtrail").stdout.strip()
    text = settings.read_text()
    assert f"{path} hook {agent}" in text
    settings.write_text(text.replace(f"{path} hook {agent}", command))


class Gate:
    """The gate of an agent's hook."""

    def __init__(self, home: AgentHome, agent: str) -> None:
        self._folder = home.home / "gate"
        self._folder.mkdir()
        program = home.home / "bin" / "gate"
        path = home.run("sh", "-c", "command -v backtrail").stdout.strip()
        program.write_text(_GATE.format(folder=self._folder, command=f"{shlex.quote(path)} hook {agent}"))
        program.chmod(0o755)
        _replace_command(home, agent, str(program))

    def close(self, event: str, side: str) -> None:
        """Let no hook of this event go on, `before` it runs or `after`."""
        (self._folder / f"{event}.{side}").touch()

    def reached(self) -> bool:
        """True if a hook waits."""
        return (self._folder / "reached").exists()

    def open(self) -> None:
        """Let all hooks go on."""
        for path in [*self._folder.glob("*.before"), *self._folder.glob("*.after")]:
            path.unlink()


class DoomedHook:
    """A hook that dies by SIGKILL before one of its calls that reach the disk: see `doomed_hook`."""

    def __init__(self, home: AgentHome, agent: str) -> None:
        self._order = home.home / "order"
        words = [f"LD_PRELOAD={library()}", sys.executable, str(TESTS / "doomed_hook.py"), str(self._order)]
        _replace_command(home, agent, f"env {shlex.join(words)} hook {agent}")

    def die_after(self, calls: int | None) -> None:
        """From now on, every hook dies after so many calls; with None, none does."""
        self._order.write_text("" if calls is None else str(calls))


def wait_until(done: object, process: subprocess.Popen[str]) -> None:
    """Wait until `done()` is true; the agent must not end before."""
    assert callable(done)
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_everything(home: AgentHome) -> None:
    """End every process that has this home, by SIGKILL, until there is none."""
    while found := list(_processes(home)):
        for number in found:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _processes(home: AgentHome) -> list[int]:
    wanted = f"HOME={home.home}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and wanted in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue  # it ended meanwhile
    return found
