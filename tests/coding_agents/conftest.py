"""A home directory, a project and an agent for each test; the hook is run as an agent runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents import hook_log
from backtrail.agents.capture import Captured, capture
from backtrail.agents.events import Agent, read_event
from backtrail.agents.sessions import AgentSession
from backtrail.agents.user_store import open_user_store

PAYLOADS = Path(__file__).parent / "payloads"
PATIENCE = 60.0  # seconds, on a crowded machine


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of this test, which is all that it sees of the machine's."""
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith(("BACKTRAIL_", "XDG_", "CLAUDE", "CODEX", "GEMINI"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    return home


class FakeAgent:
    """An agent as far as a hook sees it: it works in a directory, appends to a transcript, and tells its events."""

    def __init__(
        self, base: Path, agent: Agent = "claude", session: str = "session-1", project: str = "project"
    ) -> None:
        self.agent = agent
        self.session_id = session
        self.project = base / project
        self.project.mkdir(exist_ok=True)
        self.transcript = base / f"{agent}-{session}.jsonl"

    def payload(self, name: str, **fields: Any) -> bytes:
        """What the agent sends to its hook."""
        base = {"session_id": self.session_id, "transcript_path": str(self.transcript), "cwd": str(self.project)}
        return json.dumps({**base, "hook_event_name": name, **fields}).encode()

    def tell(self, store: backtrail.Store, name: str, **fields: Any) -> Captured:
        """Capture an event in this process."""
        event = read_event(self.agent, self.payload(name, **fields), {})
        assert event is not None
        return capture(store, event)

    def say(self, *texts: str) -> None:
        """Append lines to the transcript."""
        with self.transcript.open("a") as file:
            for text in texts:
                file.write(json.dumps({"type": "user", "text": text}) + "\n")

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, store: backtrail.Store) -> AgentSession:
        """The session as it was captured."""
        return AgentSession(store, self.agent, self.session_id)

    def hook(self, name: str, env: dict[str, str] | None = None, **fields: Any) -> subprocess.CompletedProcess[bytes]:
        """Run the hook as the agent does."""
        return run_hook([self.agent], self.payload(name, **fields), env)


def run_hook(
    arguments: list[str], payload: bytes, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run `backtrail hook …` with a payload on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "backtrail.cli", "hook", *arguments],
        input=payload,
        env={**os.environ, **(env or {})},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


@pytest.fixture
def agent(tmp_path: Path) -> FakeAgent:
    """Claude Code in a project of its own."""
    return FakeAgent(tmp_path)


@pytest.fixture
def user_store() -> Iterator[backtrail.Store]:
    """The store of the agents."""
    with open_user_store() as store:
        yield store


def wait_for_events(count: int) -> list[dict[str, Any]]:
    """The lines of the hook's log, as soon as it has so many."""
    deadline = time.monotonic() + PATIENCE
    while len(found := hook_log.read()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found
