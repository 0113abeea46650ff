"""Imports the sessions that coding agents have left on disk, as if they had been captured: with their own times.

Each turn has a checkpoint at its prompt and one at its end, as `capture` saves them, but no files: nobody took a
snapshot then. Every checkpoint has the position in the transcript up to which its messages go. So a second import finds
nothing new, one that was interrupted goes on, a session that went on since is continued, and so is one that hooks
capture. Nothing that the store has is changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail.agents import directory_index
from backtrail.agents.capture import MESSAGES, PROMPT, TRANSCRIPT, position_of
from backtrail.agents.events import Agent, is_session_id, prompt_label, thread_id
from backtrail.agents.old_sessions import OldSession, describe, find_transcripts
from backtrail.agents.opencode_database import list_sessions, open_database, read_messages
from backtrail.agents.session_lock import session_lock
from backtrail.agents.transcripts import UNPARSED, Position, read_steps
from backtrail.errors import BacktrailError, EncodeError, Unavailable
from backtrail.importers.model import BadFile, Report, ReportLine
from backtrail.importers.source_files import read_file
from backtrail.render.agent_turns import taken_back
from backtrail.render.message_parser import parse_message
from backtrail.render.session_turns import known_turn
from backtrail.transcript_lines import is_bookkeeping, is_prompt, turn_id, written_at

if TYPE_CHECKING:
    from backtrail.model import Checkpoint
    from backtrail.store import Store

Progress = Callable[[int, int], object]
Lines = list[dict[str, Any]]
_PATIENCE = 60.0  # seconds for which a hook that holds the session is waited for
NO_FILES = "imported from a transcript: no snapshot was taken at that time"


class _Skipped(Exception):
    """A session that is left as the store has it. The text says why."""


def import_sessions(
    store: Store, agents: Iterable[Agent], directory: Path | None = None, progress: Progress | None = None
) -> Report:
    """Import the sessions of these agents from their own directories, or from `directory`."""
    found = [(agent, path) for agent in agents for path in find_transcripts(agent, directory)]
    import_ = _Import(store)
    for number, (agent, path) in enumerate(found, 1):
        import_.file(agent, path)
        if progress is not None:
            progress(number, len(found))
    return import_.report()


class _Import:
    """One import and its report so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: dict[str, list[ReportLine]] = {}

    def file(self, agent: Agent, path: str) -> None:
        """Import one file; one that cannot be read goes into the report."""
        try:
            if agent == "opencode":
                self._database(path)
            elif path.endswith(".json"):
                self._whole_file(path)
            else:
                session = describe(agent, path)
                self._session(session, partial(_Writer.follow, path=path))
        except (BadFile, OSError) as error:
            self._add("failed", path, None, _reason(error))

    def _database(self, path: str) -> None:
        with open_database(path) as connection:
            for found in list_sessions(connection):
                session = OldSession("opencode", path, found.id, found.directory, found.sub_agent)
                if not session.sub_agent:
                    messages = read_messages(connection, found.id)
                    self._session(session, partial(_Writer.take_all, messages=messages))

    def _whole_file(self, path: str) -> None:
        """A session of Gemini CLI as it was written before it had lines: one JSON value."""
        value = read_file(Path(path), Path(path).stem).value
        messages = value.get("messages") if type(value) is dict else None
        if type(messages) is not list:
            raise BadFile("it has no list of messages")
        id = value.get("sessionId")
        session = OldSession("gemini", path, id if type(id) is str else None, None)
        lines = [line if type(line) is dict else {UNPARSED: json.dumps(line)} for line in messages]
        self._session(session, partial(_Writer.take_all, messages=lines))

    def _session(self, session: OldSession, write: Callable[[_Writer], int]) -> None:
        if session.sub_agent:
            return
        if session.session_id is None or not is_session_id(session.session_id):
            self._add("failed", session.path, None, "it does not tell the id of its session")
            return
        thread = thread_id(session.agent, session.session_id)
        try:
            with session_lock(thread, _PATIENCE):
                writer = _Writer(self._store, session, thread)
                is_new = writer.head is None
                turns = write(writer)
        except Unavailable:
            raise  # the store cannot be written to, and the next session would fail as well
        except _Skipped as why:
            self._add("skipped", session.path, thread, str(why))
        except BacktrailError as error:
            self._add("failed", session.path, thread, str(error))
        else:
            if not writer.saved:
                self._add("unchanged", session.path, thread)
            else:
                self._add("imported" if is_new else "updated", session.path, thread, f"{turns} turns")

    def _add(self, outcome: str, path: str, thread: str | None, reason: str = "") -> None:
        self._lines.setdefault(outcome, []).append(ReportLine(path, thread, reason))

    def report(self) -> Report:
        return Report(**{name: tuple(lines) for name, lines in self._lines.items()})


def _reason(error: BadFile | OSError) -> str:
    return f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


class _Writer:
    """Writes one session after what the store has of it."""

    def __init__(self, store: Store, session: OldSession, thread: str) -> None:
        self._store = store
        self.thread = store.thread(thread)
        self.head: Checkpoint | None = self.thread.head
        self.saved = 0
        self._agent = session.agent
        known = {} if self.head is None else self.head.custom
        cwd = known.get("cwd") or (os.path.realpath(session.cwd) if session.cwd is not None else None)
        self._cwd = {} if cwd is None else {"cwd": cwd}
        self._turn = known_turn(known)
        self._turn_id: str | None = known.get("turn_id")
        self._open = known.get("open") is True
        # Lines at the end that are no messages are not worth a checkpoint: they go with the next turn.
        self._held: tuple[Lines, Position | None] = ([], None)
        self._time: datetime | None = None  # of the last line that tells one
        self._turn_ids: dict[str, int] = {}  # of the turns so far, for an agent that goes back to one

    # -- the two kinds of sources --------------------------------------------------------------------------------------

    def follow(self, path: str) -> int:
        """Add the lines of a transcript that the store does not have; returns the number of turns in them."""
        position = self._position()
        if position is None and self.head is not None and self.thread.tail(MESSAGES, 1):
            raise _Skipped("the store has messages of this session, and does not tell which of the transcript's")
        turns = 0
        for step in read_steps(path, position, _step_starts()):
            if step.rewritten:
                if self.head is not None and self.head.custom.get("event") == "rewind":
                    return 0  # a session that a rewind made: its thread begins with the transcript of the old one
                raise _Skipped("the transcript was rewritten since it was read: the agent's next turn reads it again")
            turns += self._step(step.lines, step.position)
        return turns

    def take_all(self, messages: Lines) -> int:
        """Add the messages of a session that is not a file of lines, if it begins with those that the store has."""
        stored = [] if self.head is None else self.thread.pick([MESSAGES]).get(MESSAGES, [])
        if messages[: len(stored)] != stored:
            if [_id(line) for line in messages[: len(stored)]] == [_id(line) for line in stored]:
                raise _Skipped("a message has changed since it was read: the agent's next turn reads it again")
            raise _Skipped("the store has another conversation under this id, which was left as it is")
        turns = 0
        for step in _split(messages[len(stored) :], _step_starts()):
            turns += self._step(step, None)
        return turns

    def _position(self) -> Position | None:
        return None if self.head is None else position_of(self.thread.pick([TRANSCRIPT], at=self.head).get(TRANSCRIPT))

    # -- writing -------------------------------------------------------------------------------------------------------

    def _step(self, lines: Lines, position: Position | None) -> int:
        """Save one step: a turn, or lines that belong to none. Returns 1 for a turn."""
        first, back = lines[0], taken_back(lines[0])
        held, held_position = self._held
        self._held = [], None
        if back is not None:
            return self._go_back(back, held + lines, position)
        if not is_prompt(first):
            if self.head is not None and all(map(is_bookkeeping, lines)):
                self._held = held + lines, position
                return 0
            kind = "turn_end" if self._turn else "session_start"
            self._save(kind, held + lines, position, written_at(first))
            return 0
        id, text = turn_id(first), parse_message(first).text
        if self._goes_on(id, text):
            lines = held + lines
        else:
            self._turn, self._turn_id, self._open = self._turn + 1, id, True
            changes = {PROMPT: text.encode(errors="replace").decode()}
            self._save("prompt", held, held_position, written_at(first), changes, prompt_label(text))
        self._turn_id, self._open = id or self._turn_id, False
        if id is not None:
            self._turn_ids[id] = self._turn
        ended = next((at for at in map(written_at, reversed(lines)) if at is not None), None)
        self._save("turn_end", lines, position, ended)
        return 1

    def _goes_on(self, id: str | None, text: str) -> bool:
        """True if this is the prompt of the turn that the store has last, or one that was sent in the middle of it."""
        if id is not None and self._turn_id is not None:
            return id == self._turn_id
        stored = self.thread.pick([PROMPT]).get(PROMPT) if self._open else None
        return type(stored) is str and stored.strip() == text.strip()

    def _go_back(self, back: str | int, lines: Lines, position: Position | None) -> int:
        """The agent took turns back: the last `back` of them, or those from the one of this id on."""
        kept = self._turn - back if type(back) is int else self._turn_ids.get(str(back), 1) - 1
        self._turn, self._turn_id, self._open = max(0, kept), None, False
        self._save("rewind", lines, position, written_at(lines[0]))
        return 0

    def _save(
        self,
        event: str,
        lines: Lines,
        position: Position | None,
        at: datetime | None,
        changes: dict[str, Any] | None = None,
        label: str | None = None,
    ) -> None:
        custom = {
            "agent": self._agent,
            "event": event,
            "turn": self._turn,
            "open": self._open,
            **self._cwd,
            **({} if self._turn_id is None else {"turn_id": self._turn_id}),
            "files_missing": NO_FILES,
            "imported": True,
        }
        if not self.saved and "cwd" in self._cwd:
            directory_index.note(self._store, self._cwd["cwd"], self.thread.id)
        changes = dict(changes or {})
        self._time = at or self._time
        if position is not None:
            changes[TRANSCRIPT] = msgspec.to_builtins(position)
        try:
            self._update(changes, custom, label, lines)
        except EncodeError:  # a number or a text that no store keeps: the lines are kept as text
            self._update(changes, custom, label, [{UNPARSED: json.dumps(line)} for line in lines])
        self.saved += 1

    def _update(self, changes: dict[str, Any], custom: dict[str, Any], label: str | None, lines: Lines) -> None:
        self.head = self.thread.update(
            changes,
            label=label,
            custom=custom,
            expect=None if self.head is None else self.head.id,
            append=(MESSAGES, lines),
            created_at=self._time,
        )


def _step_starts() -> Callable[[dict[str, Any]], bool]:
    """Tells, line by line, where a step begins: at the prompt of another turn, and where turns are taken back."""
    current: str | None = None

    def starts(line: dict[str, Any]) -> bool:
        nonlocal current
        if taken_back(line) is not None:
            current = None
            return True
        if not is_prompt(line):
            return False
        before, current = current, turn_id(line)
        return current is None or current != before

    return starts


def _id(line: Any) -> Any:
    info = line.get("info") if type(line) is dict else None
    return info.get("id") if type(info) is dict else line.get("id") if type(line) is dict else None


def _split(lines: Lines, begins: Callable[[dict[str, Any]], bool]) -> Iterator[Lines]:
    """The lines in steps, each of which begins with a line for which `begins` is true."""
    step: Lines = []
    for line in lines:
        if step and begins(line):
            yield step
            step = []
        step.append(line)
    if step:
        yield step
