"""opencode: the fork call of its own server, which runs for that moment on loopback behind a password made for it."""

from __future__ import annotations

import base64
import http.client
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from backtrail.agents.conversations.agent_program import agent_program
from backtrail.agents.conversations.model import CannotFork, CutPoint, Fork

PROGRAM = "opencode"
PATIENCE = 90.0  # seconds: the first call may take 20 without a network
_LISTENING = re.compile(rb"http://(127\.0\.0\.1):(\d+)")
_ID = re.compile(r"ses_\w+")


def fork(point: CutPoint) -> Fork:
    """Ask opencode for a session that ends before the message."""
    if point.first_dropped is None:
        raise CannotFork("the id of the turn's message was not recorded")
    with _server(point.directory) as server:
        messages = server.call("GET", f"/session/{_checked(point.session_id)}/message")
        ids = [_message_id(message) for message in messages] if isinstance(messages, list) else []
        if point.first_dropped not in ids:  # it would keep everything
            raise CannotFork(f"the session has no message {point.first_dropped}")
        asked = {"messageID": point.first_dropped}
        made = server.call("POST", f"/session/{_checked(point.session_id)}/fork", asked)
    session_id = made.get("id") if isinstance(made, dict) else None
    if not isinstance(session_id, str) or not _ID.fullmatch(session_id) or session_id == point.session_id:
        raise CannotFork("opencode did not say which session it made")
    return Fork(PROGRAM, session_id, (PROGRAM, "--session", session_id), None, None)


def discard(made: Fork) -> None:
    """Ask opencode to delete the session that it made."""
    with _server(None) as server:
        server.call("DELETE", f"/session/{_checked(str(made.session_id))}")


def _message_id(message: Any) -> Any:
    info = message.get("info") if isinstance(message, dict) else None
    return info.get("id") if isinstance(info, dict) else None


def _checked(session_id: str) -> str:
    if not _ID.fullmatch(session_id):
        raise CannotFork(f"{session_id!r} is not the id of a session of opencode")
    return session_id


class _Server(NamedTuple):
    """A server of opencode's that was started here."""

    host: str
    port: int
    authorization: str
    directory: str

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request, and return its answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        headers = {"authorization": self.authorization, "content-type": "application/json"}
        try:
            data = None if body is None else msgspec.json.encode(body)
            connection.request(method, f"{path}?directory={quote(self.directory, safe='')}", data, headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != http.client.OK:
                raise CannotFork(f"opencode refused {method} {path}: {answer.status} {answer.reason}")
            return msgspec.json.decode(content)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise CannotFork(f"opencode did not answer {method} {path}: {error}") from error
        finally:
            connection.close()


@contextmanager
def _server(directory: str | None) -> Iterator[_Server]:
    password = secrets.token_urlsafe(32)
    login = {"OPENCODE_SERVER_USERNAME": PROGRAM, "OPENCODE_SERVER_PASSWORD": password}
    arguments = ("serve", "--pure", "--hostname", "127.0.0.1", "--port", "0")
    with agent_program(PROGRAM, *arguments, directory=directory, patience=PATIENCE, extra=login) as process:
        host, port = _listening(process)
        authorization = "Basic " + base64.b64encode(f"{PROGRAM}:{password}".encode()).decode()
        yield _Server(host, port, authorization, directory or os.getcwd())


def _listening(process: subprocess.Popen[bytes]) -> tuple[str, int]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _LISTENING.search(line):
            return found[1].decode(), int(found[2])
    raise CannotFork("opencode serve ended before it said where it listens")
