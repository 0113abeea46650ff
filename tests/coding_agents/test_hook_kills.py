"""The hook, killed before any of its calls that reach the disk: what was saved stays whole, and work goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents import going_back, hook_log
from backtrail.agents.sessions import AgentSession
from backtrail.agents.user_store import open_user_store
from fix_faulty_disk import TESTS, library

from .conftest import PATIENCE, FakeAgent, wait_for_events

pytestmark = [pytest.mark.slow, pytest.mark.linux]

EVENTS = {
    "claude": ("SessionStart", "UserPromptSubmit", "Stop"),
    "codex": ("SessionStart", "UserPromptSubmit", "Stop"),
    "gemini": ("SessionStart", "BeforeAgent", "AfterAgent"),
    "opencode": ("session.created", "chat.message", "session.idle"),
}


class DoomedAgent(FakeAgent):
    """An agent whose hook can be told to die."""

    def doomed(self, name: str, fatal: int | None, **fields: Any) -> int:
        """Run the hook, killed before its call number `fatal`, and wait until both of its processes are gone."""
        order = self.project.parent / "order"
        order.write_text("" if fatal is None else str(fatal))
        if self.agent == "opencode":
            fields |= {"messages": self.messages(), "transcript_path": None}
        reader, writer = os.pipe()  # the end of the last process that has it
        try:
            ran = subprocess.run(
                [sys.executable, TESTS / "doomed_hook.py", order, "hook", self.agent],
                input=self.payload(name, **fields),
                env={**os.environ, "LD_PRELOAD": str(library())},
                capture_output=True,
                timeout=PATIENCE,
                check=False,
                pass_fds=[writer],
            )
            os.close(writer)
            os.read(reader, 1)
        finally:
            os.close(reader)
        assert ran.returncode in (0, 1) and not ran.stdout, ran
        return ran.returncode

    def messages(self) -> list[dict[str, Any]]:
        self.transcript.touch()
        return [json.loads(line) for line in self.transcript.read_text().splitlines()]

    def prompt(self, number: int, fatal: int | None = None) -> int:
        name = EVENTS[self.agent][1]
        ids = {} if self.agent == "gemini" else {"prompt_id": f"id-{number}"}
        code = self.doomed(name, fatal, prompt=f"prompt {number}", **ids)
        self.say(f"prompt {number}")
        return code

    def end(self, number: int, fatal: int | None = None) -> int:
        self.write("a.txt", f"after {number}")
        ids = {} if self.agent in ("gemini", "opencode") else {"prompt_id": f"id-{number}"}
        self.say(f"answer {number}")
        return self.doomed(EVENTS[self.agent][2], fatal, **ids)


def check(agent: DoomedAgent, store: backtrail.Store) -> AgentSession:
    """The store is whole, and so is the first turn."""
    found = store.verify()
    assert found.ok, found
    session = agent.read(store)
    first = session.turn(1)
    assert first.before is not None and first.after is not None
    assert first.before.files is not None and first.after.files is not None
    texts = [line["text"] for line in session.thread.load(first.after)["messages"]]
    assert (session.prompt(first), texts) == ("prompt 1", ["prompt 1", "answer 1"])
    return session


# The ends of turns of Gemini CLI and opencode have no ids: one whose prompt was lost counts to the turn before it.
@pytest.mark.parametrize(
    ("name", "event"), [("claude", "prompt"), ("codex", "prompt"), *((name, "end") for name in EVENTS)]
)
def test_a_hook_killed_at_any_call_costs_its_own_event_at_most(name: Any, event: str, tmp_path: Path) -> None:
    agent = DoomedAgent(tmp_path, name)
    agent.doomed(EVENTS[name][0], None)
    agent.prompt(1)
    agent.end(1)
    number, died = 1, 0
    step = 3 if name == "claude" else 11  # what differs between the agents is how their messages come
    for fatal in range(0, 2000, step):
        number += 1
        lines = len(hook_log.read())
        agent.prompt(number, fatal if event == "prompt" else None)
        agent.end(number, fatal if event == "end" else None)
        told = hook_log.read()[lines:]
        with open_user_store() as store:
            session = check(agent, store)
            turn = session.turns()[-1]
            if event == "prompt" and turn.before is not None:
                assert session.prompt(turn) == f"prompt {number}"
        if len(told) == 2:  # both hooks have come to their ends
            break
        died += 1
    assert died > 20 // step and len(told) == 2, (died, told)
    agent.prompt(number + 1)
    agent.end(number + 1)
    with open_user_store() as store:
        session = check(agent, store)
        texts = [line["text"] for line in session.thread.load()["messages"]]
        assert texts == [f"{what} {each}" for each in range(1, number + 2) for what in ("prompt", "answer")]
        last = session.turns()[-1]
        assert session.prompt(last) == f"prompt {number + 1}"
        going_back.rewind(store, session, last.number, conversation=False)
        assert (agent.project / "a.txt").read_text() == f"after {number}"
    assert wait_for_events(1)
