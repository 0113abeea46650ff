"""What an agent's hook is sent, read as one kind of event for all four agents.

Payloads come from programs that change every week: fields that are missing or of another type are taken as not given,
and an event that is not about a turn is `None`. Only what no capture can do without (who, and which session) is
required.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from backtrail.errors import InvalidInput

Agent = Literal["claude", "codex", "gemini", "opencode"]
AGENTS: tuple[Agent, ...] = get_args(Agent)

EventKind = Literal["session_start", "prompt", "turn_end", "compact", "session_end", "rewind"]
"""`rewind` comes from no hook: going back saves it in the new session's thread, with the last turn that is kept."""

MAX_PAYLOAD = 64 * 2**20  #: bytes of one payload that are read
MAX_LABEL = 200  #: characters of a prompt in a checkpoint's label

HOOK_EVENTS: dict[Agent, dict[str, EventKind]] = {
    "claude": {
        "SessionStart": "session_start",
        "UserPromptSubmit": "prompt",
        "Stop": "turn_end",
        "StopFailure": "turn_end",
        "PreCompact": "compact",
        "SessionEnd": "session_end",
    },
    "codex": {
        "SessionStart": "session_start",
        "UserPromptSubmit": "prompt",
        "Stop": "turn_end",
        "Interrupt": "turn_end",  # since 0.169; versions before pass over it
        "PreCompact": "compact",
        "SessionEnd": "session_end",
    },
    "gemini": {
        "SessionStart": "session_start",
        "BeforeAgent": "prompt",
        "AfterAgent": "turn_end",
        "PreCompress": "compact",
        "SessionEnd": "session_end",
    },
    # The names that our own plugin sends.
    "opencode": {
        "session.created": "session_start",
        "chat.message": "prompt",
        "session.idle": "turn_end",
        "session.compacting": "compact",
    },
}
_TURN_IDS = ("prompt_id", "turn_id", "message_id")  # Claude Code's, Codex's, and our plugin's for opencode
_DETAILS = ("source", "reason", "trigger", "model", "permission_mode")  # short texts that tell more of an event
_PROJECT_VARIABLES = {"claude": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR"}
_SESSION_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}", re.ASCII)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of an agent's session."""

    agent: Agent
    kind: EventKind
    name: str  #: the agent's own name of the event
    session_id: str
    cwd: str  #: where the agent works now; it may be below the directory that it was started in
    project: str | None = None  #: the directory that it was started in, if it says so
    transcript: str | None = None  #: the path of its transcript
    turn_id: str | None = None
    prompt: str | None = None
    details: dict[str, str] = {}
    messages: list[Any] | None = None  #: of an agent without a transcript file: all that the session has

    @property
    def interrupts(self) -> bool:
        """True if the person has ended the turn, and not the agent."""
        return self.name == "Interrupt"

    @property
    def thread_id(self) -> str:
        """The thread that keeps the session."""
        return thread_id(self.agent, self.session_id)


def thread_id(agent: Agent, session_id: str) -> str:
    """The id of the thread that keeps a session of an agent."""
    return f"{agent}/{session_id}"


def is_session_id(text: str) -> bool:
    """True if a text can be the id of a session: it becomes part of a thread's name."""
    return _SESSION_ID.fullmatch(text) is not None


def check_agent(name: str) -> Agent:
    """The agent of this name; `InvalidInput` lists those that there are."""
    for agent in AGENTS:
        if agent == name:
            return agent
    raise InvalidInput(f"there is no agent {name[:80]!r}: use {', '.join(AGENTS)}")


def read_event(agent: Agent, payload: bytes, environment: Mapping[str, str] = os.environ) -> Event | None:
    """The event that a hook was sent; None if it is not about a turn. `InvalidInput` if it cannot be read."""
    if len(payload) > MAX_PAYLOAD:
        raise InvalidInput(f"the hook's input has more than {MAX_PAYLOAD:,} bytes")
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the hook's input is not JSON ({type(error).__name__})") from None
    if not isinstance(data, dict):
        raise InvalidInput("the hook's input is not a JSON object")
    name = _text(data, "hook_event_name")
    kind = HOOK_EVENTS[agent].get(name or "")
    if name is None or kind is None:
        return None
    session_id = _text(data, "session_id")
    if session_id is None or not is_session_id(session_id):
        raise InvalidInput(f"the hook's input for {name} has no session_id that could be one")
    cwd = _directory(_text(data, "cwd")) or _directory(_working_directory())
    if cwd is None:
        raise InvalidInput(f"the hook's input for {name} has no cwd that could be one")
    messages = data.get("messages")
    return Event(
        agent=agent,
        kind=kind,
        name=name,
        session_id=session_id,
        cwd=cwd,
        project=_directory(environment.get(_PROJECT_VARIABLES.get(agent, ""))),
        transcript=_directory(_text(data, "transcript_path")),
        turn_id=next((id for key in _TURN_IDS if (id := _text(data, key)) and len(id) <= 200), None),
        prompt=_text(data, "prompt") if kind == "prompt" else None,
        details={key: value for key in _DETAILS if (value := _text(data, key)) and len(value) <= 200},
        messages=messages if isinstance(messages, list) else None,
    )


def prompt_label(prompt: str) -> str | None:
    """The text of a prompt as a label: one line, shortened; None if nothing is left."""
    start = prompt[: 8 * MAX_LABEL].encode(errors="replace").decode().replace("\0", " ")
    line = " ".join(start.split()).lstrip("\U0010ffff")
    return (line if len(line) <= MAX_LABEL else line[: MAX_LABEL - 1] + "…") or None


def _text(data: dict[str, Any], key: str) -> str | None:
    """A text that can be stored; None if it is not given, empty, or of another type."""
    value = data.get(key)
    return value if isinstance(value, str) and value else None


def _directory(path: str | None) -> str | None:
    """An absolute path without NULs and surrogates; None for anything else."""
    if path is None or not path.startswith("/") or "\0" in path or len(path) > 4096:
        return None
    try:
        path.encode()
    except UnicodeEncodeError:
        return None
    return path


def _working_directory() -> str | None:
    """This process's directory: agents start their hooks where they work."""
    try:
        return os.getcwd()  # noqa: PTH109  # the same, without an import that a hook would wait for
    except OSError:
        return None
