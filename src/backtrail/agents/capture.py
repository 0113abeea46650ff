"""Captures an event of an agent's session: its new messages and a snapshot of its directory, as one checkpoint.

The state of a session's thread is `messages` (the lines of the transcript, as they are), `transcript` (how far it was
read) and `prompt` (the newest one, whole). The custom fields of a checkpoint are `agent`, `event`, `turn` (from 1 on; 0
before the first prompt), `open` (the turn goes on), `turn_id`, and `cwd`, the directory.

A prompt begins a turn: its checkpoint has the files as they were before. `turn_end` ends it. What a person edits
afterwards is in no turn: it is the difference from the end of one to the beginning of the next. A turn that was
interrupted has `closed_by`: "interrupt" if the agent said so, else the next event, which ended it.

If the directory cannot be saved, the messages are, and `files_missing` says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail.agents import directory_index
from backtrail.agents.events import Event, EventKind, prompt_label
from backtrail.agents.transcripts import NewLines, Position, read_new
from backtrail.errors import Conflict, EncodeError, FilesError, InvalidInput, LockTimeout, MissingExtra, UnsafePath
from backtrail.render.session_turns import known_turn
from backtrail.workspace import Limits, Snapshot, Workspace
from backtrail.workspace.pack import LARGE_FILE

if TYPE_CHECKING:
    from backtrail.model import Checkpoint
    from backtrail.store import Store
    from backtrail.thread import Thread

MESSAGES, TRANSCRIPT, PROMPT = "messages", "transcript", "prompt"
_ATTEMPTS = 3  # if a person moves the head at the same moment


class Captured(msgspec.Struct, frozen=True):
    """The outcome of a capture."""

    checkpoint: Checkpoint | None  #: None if the event was captured before
    files_missing: str | None = None
    behind: int = 0  #: bytes of the transcript that are still to be read


def capture(store: Store, event: Event, deadline: float | None = None) -> Captured:
    """Save what an event tells. After `deadline`, by the monotonic clock, the agent has gone on, and may have changed
    files before they were read: then the checkpoint has `late`."""
    head = store.thread(event.thread_id).head
    root = directory_of(event, {} if head is None else head.custom)
    files, missing = _snapshot(store, root)
    late = deadline is not None and time.monotonic() > deadline
    facts = _Facts(event, root, files, missing, late)
    directory_index.note(store, root, event.thread_id)
    for attempt in range(_ATTEMPTS):
        try:
            return _Capture(store, facts).save()
        except Conflict:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError


def directory_of(event: Event, known: Mapping[str, Any]) -> str:
    """The directory of a session: where the agent was started, although it may have gone further down since."""
    here = os.path.realpath(event.cwd)
    if event.project is not None:
        return os.path.realpath(event.project)
    before = known.get("cwd")
    return before if isinstance(before, str) and is_within(here, before) else here


def is_within(path: str, directory: str) -> bool:
    """True if a real path is a directory or inside of it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def agent_workspace(store: Store, directory: str, limits: Limits | None = None) -> Workspace:
    """The workspace of a directory that agents work in. A file that nobody can read must not cost all others."""
    return store.workspace(directory, unreadable="flag", limits=limits)


def _snapshot(store: Store, directory: str) -> tuple[Snapshot | None, str | None]:
    """A snapshot of the directory, and what it lacks, or why there is none."""
    try:
        try:
            return agent_workspace(store, directory).snapshot(), None
        except MissingExtra as error:
            small = Limits(file_bytes=LARGE_FILE - 1)
            return agent_workspace(store, directory, small).snapshot(), f"large files: {error}"
    except (FilesError, InvalidInput, LockTimeout, UnsafePath) as error:
        return None, str(error)


class _Facts(msgspec.Struct, frozen=True):
    """What is known of an event before it is saved."""

    event: Event
    directory: str
    files: Snapshot | None
    missing: str | None
    late: bool

    def custom(self, kind: EventKind, turn: int, turn_id: Any, is_open: bool) -> dict[str, Any]:
        """The custom fields of its checkpoint."""
        custom = {"agent": self.event.agent, "event": kind, "turn": turn, "open": is_open, "cwd": self.directory}
        if turn_id is not None:
            custom["turn_id"] = turn_id
        if self.missing is not None:
            custom["files_missing"] = self.missing
        if self.late:
            custom["late"] = True
        return custom


class _Capture:
    """One attempt to save one event."""

    def __init__(self, store: Store, facts: _Facts) -> None:
        self._facts = facts
        self._event = facts.event
        self._thread: Thread[dict[str, Any]] = store.thread(facts.event.thread_id)
        self._head = self._thread.head
        self._known: Mapping[str, Any] = {} if self._head is None else self._head.custom
        self._behind = 0

    def save(self) -> Captured:
        event, known = self._event, self._known
        turn, is_open = known_turn(known), known.get("open") is True
        same_turn = event.turn_id is not None and event.turn_id == known.get("turn_id")
        if event.kind == "prompt" and is_open and same_turn:
            return Captured(None, self._facts.missing)  # the hook is installed twice
        fields: dict[str, Any] = dict(event.details)
        if is_open and _ends_turns(event):
            self._save("turn_end", turn, known.get("turn_id"), is_open=False, closed_by=event.kind)
            is_open = False
        if event.kind == "prompt":
            turn, is_open = turn + 1, True
        elif event.kind == "turn_end":
            if event.turn_id is not None and not same_turn and known.get("turn_id") is not None:
                turn += 1  # no prompt began it: it was missed, or a background task woke the agent
            if event.interrupts:
                fields["closed_by"] = "interrupt"
            is_open = False
        elif event.kind == "session_end":
            is_open = False
        turn_id = event.turn_id if event.kind == "prompt" else event.turn_id or known.get("turn_id")
        saved = self._save(event.kind, turn, turn_id, is_open=is_open, **fields)
        return Captured(saved, self._facts.missing, self._behind)

    def _save(self, kind: EventKind, turn: int, turn_id: Any, *, is_open: bool, **fields: Any) -> Checkpoint:
        custom = {**self._facts.custom(kind, turn, turn_id, is_open), **fields}
        label, changes = None, {}
        if kind == "prompt" and self._event.prompt is not None:
            label, changes = prompt_label(self._event.prompt), {PROMPT: self._event.prompt}
        try:
            saved = self._update(changes, custom, label, parsed=True)
        except EncodeError:
            saved = self._update(changes, custom, label, parsed=False)
        self._head = saved
        return saved

    def _update(
        self, changes: dict[str, Any], custom: dict[str, Any], label: str | None, *, parsed: bool
    ) -> Checkpoint:
        new = self._new_lines(parsed)
        append = None
        if new is not None:
            self._behind = new.rest
            changes = {**changes, TRANSCRIPT: msgspec.to_builtins(new.position)}
            if new.rewritten:
                changes[MESSAGES] = new.lines
                custom = {**custom, "rewritten": True}
            else:
                append = (MESSAGES, new.lines)
        elif self._event.messages is not None:
            changes = {**changes, MESSAGES: self._event.messages}
        return self._thread.update(
            changes,
            label=label,
            custom=custom,
            files=self._facts.files,
            expect=None if self._head is None else self._head.id,
            append=append,
        )

    def _new_lines(self, parsed: bool) -> NewLines | None:
        if self._event.transcript is None:
            return None
        known = None if self._head is None else self._thread.pick([TRANSCRIPT], at=self._head).get(TRANSCRIPT)
        return read_new(self._event.transcript, position_of(known), parsed=parsed)


def _ends_turns(event: Event) -> bool:
    """True if no turn can be open at this event. Claude Code starts a session anew in the middle of a turn if it has
    compacted the conversation."""
    if event.kind == "session_start":
        return event.details.get("source") != "compact"
    return event.kind in ("prompt", "session_end")


def position_of(value: Any) -> Position | None:
    """How far the transcript was read, as the state has it; None if it does not tell, and all is read again."""
    try:
        return None if value is None else msgspec.convert(value, Position)
    except msgspec.ValidationError:
        return None
