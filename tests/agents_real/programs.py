"""The real coding agents: fetched from npm into a cache, and run in a home made for the test.

`python -m agents_real.programs CACHE` fetches the programs that are missing there and prints the versions. `AgentHome`
runs one of them against a model server of ours: a home of its own, and an environment in which nothing of the person
who runs the tests is left.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

AGENTS = ("claude", "codex", "gemini", "opencode")
PATIENCE = 400  # seconds for a turn: a few, and a hundred times that on a crowded machine
_ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_PLATFORM = f"linux-{_ARCHITECTURE}"


def _package(agent: str) -> str:
    """The npm package that holds the program for this machine."""
    if agent == "codex":  # its packages for each platform are versions of one package
        newest = subprocess.run(["npm", "view", "@openai/codex", "version"], check=True, capture_output=True, text=True)
        return f"@openai/codex@{newest.stdout.strip()}-{_PLATFORM}"
    return {
        "claude": f"@anthropic-ai/claude-code-{_PLATFORM}",
        "gemini": "@google/gemini-cli",
        "opencode": f"opencode-{_PLATFORM}",
    }[agent]


def fetch(cache: Path, agent: str) -> None:
    """Bring a program into the cache, unless it is there."""
    folder = cache / agent
    if (folder / "package").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", _package(agent)], cwd=folder, check=True, capture_output=True, text=True
    )
    archive = folder / packed.stdout.split()[-1]
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()


def version(cache: Path, agent: str) -> str:
    """The version of the program in the cache."""
    found: str = json.loads((cache / agent / "package" / "package.json").read_text())["version"]
    return found.removesuffix(f"-{_PLATFORM}")


def command(cache: Path, agent: str) -> list[str]:
    """The command line that starts the program."""
    package = cache / agent / "package"
    if agent == "claude":
        return [str(package / "claude")]
    if agent == "codex":
        return [str(next(path for path in (package / "vendor").rglob("codex") if path.is_file()))]
    if agent == "gemini":
        return ["node", str(package / "bundle" / "gemini.js")]
    return [str(package / "bin" / "opencode")]


_CODEX_CONFIG = """\
model = "gpt-5.2-codex"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
requires_openai_auth = false
supports_websockets = false
"""


def _settings(agent: str, url: str) -> tuple[str, str] | None:
    """The settings file that keeps a program on loopback: its path from the home, and its contents."""
    if agent == "codex":
        return ".codex/config.toml", _CODEX_CONFIG.format(url=url)
    if agent == "gemini":
        security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
        general = {"enableAutoUpdate": False}
        privacy = {"usageStatisticsEnabled": False}
        text = json.dumps({"security": security, "general": general, "privacy": privacy}, indent=2)
        return ".gemini/settings.json", text
    if agent == "opencode":
        options = {"baseURL": f"{url}/v1", "apiKey": "x"}
        models = {"m": {"name": "m", "tool_call": True}}
        fake = {"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options, "models": models}
        chosen = {"model": "fake/m", "small_model": "fake/m", "permission": "allow", "provider": {"fake": fake}}
        return ".config/opencode/opencode.json", json.dumps({"autoupdate": False, "share": "disabled", **chosen})
    return None


def _environment(agent: str, url: str) -> dict[str, str]:
    if agent == "claude":
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }
    if agent == "codex":
        return {"FAKE_KEY": "x"}
    if agent == "gemini":
        return {"GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_NO_RELAUNCH": "true"}
    names = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD")
    # Where there are plugins, it installs a package with their types, and waits a minute for a network.
    return {**dict.fromkeys(names, "1"), "npm_config_registry": url, "npm_config_fetch_retries": "0"}


class AgentHome:
    """A home directory with the programs in it, a project, and a model server that they ask."""

    def __init__(self, folder: Path, cache: Path, url: str) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        programs = self.home / "bin"
        programs.mkdir(parents=True)
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TMPDIR": str(folder),
        }
        for agent in AGENTS:
            if not (cache / agent / "package").exists():
                continue
            wrapper = programs / agent
            wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(command(cache, agent))} "$@"\n')
            wrapper.chmod(0o755)
            self.environment |= _environment(agent, url)
            settings = _settings(agent, url)
            if settings is not None:
                path = self.home / settings[0]
                path.parent.mkdir(parents=True)
                path.write_text(settings[1])

    def keep_gemini_sessions(self) -> None:
        """Tell Gemini CLI not to delete sessions: it does so with one that was resumed in a later minute."""
        path = self.home / ".gemini/settings.json"
        settings = json.loads(path.read_text())
        settings["general"]["sessionRetention"] = {"enabled": False}
        path.write_text(json.dumps(settings))

    def run(self, *command: str, extra: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the project, as the person would. Raises if it fails."""
        return subprocess.run(
            command,
            cwd=self.project,
            env={**self.environment, **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in the project, in a process group of its own."""
        return subprocess.Popen(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def prompt(self, agent: str, text: str, session: str | None = None) -> subprocess.CompletedProcess[str]:
        """Send a prompt to a new session of the agent, or to `session`, and wait for the turn's end."""
        return self.run(*prompt_command(agent, text, session))


def prompt_command(agent: str, text: str, session: str | None = None) -> list[str]:
    """The command that sends one prompt and ends."""
    if agent == "claude":
        resume = ["--resume", session] if session else []
        return ["claude", "-p", "--dangerously-skip-permissions", *resume, text]
    if agent == "codex":
        resume = ["resume", session] if session else []
        return ["codex", "exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", *resume, text]
    if agent == "gemini":
        resume = ["--resume", session] if session else []
        return ["gemini", "--yolo", "-m", "gemini-2.5-pro", *resume, "-p", text]
    resume = ["--session", session] if session else []
    return ["opencode", "run", *resume, text]


def main() -> None:
    cache = Path(sys.argv[1])
    for agent in AGENTS:
        fetch(cache, agent)
    sys.stdout.write("".join(f"{agent} {version(cache, agent)}\n" for agent in AGENTS))


if __name__ == "__main__":
    main()
