"""Codex: `thread/fork` of its own app server, which speaks JSON-RPC over stdio, one message on each line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from backtrail.agents.conversations.agent_program import agent_program
from backtrail.agents.conversations.model import Announce, CannotFork, CutPoint, Fork
from backtrail.agents.conversations.transcript_copy import read_transcript
from backtrail.errors import DECODE_ERRORS

PROGRAM: Final = "codex"
PATIENCE = 60.0  # seconds for all that is asked of the app server


def resumed(session_id: str | None) -> Fork:
    """How to go on with a session."""
    return Fork(PROGRAM, session_id, (PROGRAM,) if session_id is None else (PROGRAM, "resume", session_id))


def fork(point: CutPoint, announce: Announce) -> Fork:
    """Ask Codex for a thread that ends with the last turn that is kept."""
    last = _last_kept(point) if point.kept else _turn_before(point)
    if last is None:
        return resumed(None)
    with _app_server(point.directory) as server:
        asked = {"threadId": point.session_id, "lastTurnId": last, "excludeTurns": True}
        thread = server.call("thread/fork", asked).get("thread")
    session_id = thread.get("id") if isinstance(thread, dict) else None
    if not isinstance(session_id, str) or session_id == point.session_id:
        raise CannotFork("codex app-server did not say which thread it made")
    made = resumed(session_id)
    announce(made)
    return made


def _last_kept(point: CutPoint) -> str:
    """The last turn that is kept. If Codex was killed before it wrote that down, the transcript has those before it."""
    try:
        started = _started(point)
    except CannotFork:  # it has compressed or moved the transcript, and knows its turns itself
        return point.kept[-1]
    return next((id for id in reversed(point.kept) if id in started), point.kept[-1])


def _turn_before(point: CutPoint) -> str | None:
    """The turn before the first one that was captured, as the transcript has it; None if that is the first of all."""
    started = _started(point)
    for number, id in enumerate(started):
        if id in point.dropped:
            return started[number - 1] if number else None
    raise CannotFork(f"the transcript has no turn {', '.join(point.dropped[:1])}")


def _started(point: CutPoint) -> list[str]:
    """The ids of the turns in the transcript."""
    found = []
    for line in read_transcript(point.transcript).splitlines():
        try:
            payload = msgspec.json.decode(line).get("payload")
        except (*DECODE_ERRORS, AttributeError) as error:
            raise CannotFork(f"a line of the transcript is not a JSON object: {error}") from error
        if isinstance(payload, dict) and payload.get("type") == "task_started":
            found.append(str(payload.get("turn_id")))
    return found


def discard(made: Fork) -> None:
    """Ask Codex to archive the thread that it made."""
    with _app_server(None) as server:
        server.call("thread/archive", {"threadId": made.session_id})


class _AppServer:
    """A conversation with `codex app-server`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._count = 0

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return its result; notifications that come first are left aside."""
        self._count += 1
        self._write({"id": self._count, "method": method, "params": params})
        while True:
            answer = self._read(method)
            if answer.get("id") != self._count or "method" in answer:
                continue
            if "error" in answer:
                error = answer["error"]
                told = error.get("message") if isinstance(error, dict) else error
                raise CannotFork(f"codex app-server refused {method}: {told}")
            result = answer.get("result")
            if not isinstance(result, dict):
                raise CannotFork(f"codex app-server answered {method} with no result")
            return result

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._write({"method": method})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise CannotFork(f"codex app-server ended: {error.strerror}") from error

    def _read(self, method: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CannotFork(f"codex app-server ended before it answered {method}")
        try:
            message = msgspec.json.decode(line)
        except DECODE_ERRORS:
            return {}  # a line that is not of the protocol
        return message if isinstance(message, dict) else {}


@contextmanager
def _app_server(directory: str | None) -> Iterator[_AppServer]:
    with agent_program(PROGRAM, "app-server", directory=directory, patience=PATIENCE) as process:
        server = _AppServer(process)
        server.call("initialize", {"clientInfo": {"name": "backtrail", "version": "1"}})
        server.notify("initialized")
        yield server
