"""opencode: the fork call of its own server, which runs for that moment on loopback behind a password made for it."""

from __future__ import annotations

import base64
import http.client
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from backtrail.agents.conversations.agent_program import agent_program
from backtrail.agents.conversations.model import Announce, CannotFork, CutPoint, Fork
from backtrail.errors import DECODE_ERRORS

PROGRAM: Final = "opencode"
PATIENCE = 90.0  # seconds: the first call may take 20 without a network
_LISTENING = re.compile(rb"http://(127\.0\.0\.1):(\d+)")
_ID = re.compile(r"ses_\w+")


def resumed(session_id: str | None) -> Fork:
    """How to go on with a session."""
    return Fork(PROGRAM, session_id, (PROGRAM,) if session_id is None else (PROGRAM, "--session", session_id))


def fork(point: CutPoint, announce: Announce) -> Fork:
    """Ask opencode for a session that ends before the message."""
    with _server(point.directory) as server:
        messages = server.call("GET", f"/session/{_checked(point.session_id)}/message")
        dropped, is_first = _find_prompt(messages, point)
        if is_first:
            return resumed(None)
        body = {} if dropped is None else {"messageID": dropped}
        made = server.call("POST", f"/session/{_checked(point.session_id)}/fork", body)
    session_id = made.get("id") if isinstance(made, dict) else None
    if not isinstance(session_id, str) or not _ID.fullmatch(session_id) or session_id == point.session_id:
        raise CannotFork("opencode did not say which session it made")
    announce(resumed(session_id))
    return resumed(session_id)


def _find_prompt(messages: Any, point: CutPoint) -> tuple[str | None, bool]:
    """The id of the first message that is dropped, and whether it is the first of all; None if all are kept, because
    opencode was killed before it wrote the prompt down. With an id that the session does not have, opencode would keep
    everything. A fork has new ids: there, all prompts up to it must be the same."""
    if not isinstance(messages, list):
        raise CannotFork("opencode did not list the messages of the session")
    prompts = [(id, text) for message in messages if (id := _prompt_id(message)) for text in [_text(message)]]
    for number, (id, _) in enumerate(prompts):
        if id in point.dropped:
            return id, number == 0
    if prompts and prompts[-1][0] in point.kept:
        return None, False
    count, wanted = len(point.prompts), [text.strip() for text in point.prompts]
    if wanted and [text for _, text in prompts[:count]] == wanted:
        return prompts[count - 1][0], count == 1
    if prompts and [text for _, text in prompts] == wanted[:-1]:
        return None, False
    raise CannotFork(f"the session has no message {', '.join(point.dropped[:1])}")


def _prompt_id(message: Any) -> str | None:
    info = message.get("info") if isinstance(message, dict) else None
    is_prompt = isinstance(info, dict) and info.get("role") == "user" and isinstance(info.get("id"), str)
    return info["id"] if is_prompt and isinstance(info, dict) else None


def _text(message: dict[str, Any]) -> str:
    parts = message.get("parts")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def discard(made: Fork) -> None:
    """Ask opencode to delete the session that it made."""
    with _server(None) as server:
        server.call("DELETE", f"/session/{_checked(str(made.session_id))}")


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
        except (OSError, http.client.HTTPException, *DECODE_ERRORS) as error:
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
        yield _Server(host, port, authorization, directory or str(Path.cwd()))


def _listening(process: subprocess.Popen[bytes]) -> tuple[str, int]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _LISTENING.search(line):
            return found[1].decode(), int(found[2])
    raise CannotFork("opencode serve ended before it said where it listens")
