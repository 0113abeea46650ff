"""A session of a coding agent as its hooks capture it: recorded lines, and files that its turns write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backtrail.agents.capture import capture
from backtrail.agents.events import Event, thread_id
from backtrail.render.agent_turns import find_turns
from fix_transcripts import SESSIONS, put_session, recorded_lines

WRITTEN = (("a.txt", "one\n"), ("a.txt", "two\n"), ("c.txt", "three\n"), ("a.txt", "tui\n"))


class CapturedSession:
    """Replays the turns of a recorded session, one by one: the prompt, a file that is written, the end."""

    def __init__(self, store: Any, agent: Any, home: Path, project: Path) -> None:
        self.store = store
        self.agent = agent
        self.thread_id = thread_id(agent, SESSIONS[agent])
        self.project = project
        self.lines = recorded_lines(agent)
        self.turns = find_turns(self.lines)
        self._home = home
        project.mkdir(parents=True, exist_ok=True)
        (project / "kept.txt").write_text("kept\n")

    def play(self, first: int = 1, last: int | None = None) -> None:
        """Play turns, by their numbers."""
        for number in range(first, (last or len(self.turns)) + 1):
            self.prompt(number)
            name, text = WRITTEN[number - 1]
            (self.project / name).write_text(text)
            self.end(number)

    def prompt(self, number: int) -> None:
        """The hook at the prompt of a turn."""
        turn = self.turns[number - 1]
        self._event("prompt", turn.index, turn.turn_id, prompt=turn.prompt)

    def end(self, number: int) -> None:
        """The hook at the end of a turn."""
        stop = self.turns[number].index if number < len(self.turns) else len(self.lines)
        self._event("turn_end", stop, self.turns[number - 1].turn_id)

    def _event(self, kind: Any, stop: int, turn_id: str | None, **fields: Any) -> None:
        lines = self.lines[:stop]
        transcript = None if self.agent == "opencode" else str(put_session(self.agent, self._home, lines))
        event = Event(
            agent=self.agent,
            kind=kind,
            name=kind,
            session_id=SESSIONS[self.agent],
            cwd=str(self.project),
            transcript=transcript,
            messages=lines if self.agent == "opencode" else None,
            turn_id=None if self.agent == "gemini" else turn_id,
            **fields,
        )
        capture(self.store, event)
