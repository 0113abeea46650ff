"""The agents on this machine: where their programs and their settings are, and which versions they have."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from backtrail.agents.events import Agent

TITLES: dict[Agent, str] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "opencode",
}
_HOMES: dict[Agent, tuple[str, str]] = {  # the variable that moves it, and where it is without
    "claude": ("CLAUDE_CONFIG_DIR", "~/.claude"),
    "codex": ("CODEX_HOME", "~/.codex"),
    "gemini": ("", "~/.gemini"),
    "opencode": ("", "~/.config/opencode"),
}
_FILES: dict[Agent, str] = {
    "claude": "settings.json",
    "codex": "hooks.json",
    "gemini": "settings.json",
    "opencode": "plugins/backtrail.js",
}
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[\w.+-]*", re.ASCII)
_SECONDS = 20.0  # for a program to tell its version
_OUR_COMMAND = re.compile(r"backtrail(?:\.cli)?['\"]?\s+hook\s+(?P<agent>[a-z]+)", re.ASCII)


class Program(msgspec.Struct, frozen=True):
    """One agent on this machine."""

    agent: Agent
    executable: str | None  #: None if it is not on the PATH
    home: Path  #: the directory of its settings
    file: Path  #: the file that tells it to run the hook

    @property
    def found(self) -> bool:
        """True if the agent is installed, or was used by this user."""
        return self.executable is not None or self.home.is_dir()

    def version(self) -> str | None:
        """The version that the program tells; None if it does not."""
        if self.executable is None:
            return None
        try:
            told = subprocess.run(
                [self.executable, "--version"],
                capture_output=True,
                timeout=_SECONDS,
                stdin=subprocess.DEVNULL,
                check=False,  # a program that fails has told nothing, or enough
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = _VERSION.search(told.stdout.decode(errors="replace"))
        return None if found is None else found[0]


def program(agent: Agent) -> Program:
    """Look for an agent."""
    variable, default = _HOMES[agent]
    base = os.environ.get(variable, "") if variable else ""
    if agent == "opencode" and (configured := os.environ.get("XDG_CONFIG_HOME")):
        base = str(Path(configured) / "opencode")
    home = Path(base) if Path(base).is_absolute() else Path(default).expanduser()
    return Program(agent, shutil.which(agent), home, home / _FILES[agent])


def hook_command(agent: Agent) -> str:
    """The command of the hook that the agent is told to run."""
    return shlex.join([*own_command(), "hook", agent])


def server_command(agent: Agent) -> list[str]:
    """The command of the MCP server that the agent is told to start."""
    return [*own_command(), "mcp", "--agent", agent]


def own_command() -> list[str]:
    """The command that runs backtrail: absolute, and the same as long as backtrail is where it is. A program on the
    PATH that is this one is named as it is there: `~/.local/bin` stays if an environment is made anew."""
    beside = Path(sys.executable).parent / "backtrail"
    on_path = shutil.which("backtrail")
    if on_path is not None and (not beside.exists() or Path(on_path).resolve() == beside.resolve()):
        return [os.path.abspath(on_path)]  # noqa: PTH100  # `resolve` would follow the link
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "backtrail.cli"]


def is_our_command(command: object, agent: Agent) -> bool:
    """True if a command of the agent's settings runs our hook, from wherever it was installed."""
    found = _OUR_COMMAND.search(command) if isinstance(command, str) else None
    return found is not None and found["agent"] == agent and isinstance(command, str) and found.end() == len(command)


def command_exists(command: str) -> bool:
    """True if the program that a command starts is there."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return bool(words) and os.access(words[0], os.X_OK)
