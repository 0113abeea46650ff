"""Lines of coding agents' transcripts: which of them are messages, and in which of those a person speaks.

Claude Code, Codex, Gemini CLI and opencode write more than the conversation: attachments, settings, token counts,
copies of requests. Such lines are bookkeeping, and so is every kind that is not known here: agents add kinds with every
release. Nothing is changed; a line is read as far as its values have the expected types.

| agent | a line |
| --- | --- |
| Claude Code | `{"type": "user", "uuid": …, "message": {"role": …, "content": …}}` |
| Codex | `{"timestamp": …, "type": "response_item", "payload": {…an item of OpenAI's Responses…}}` |
| Gemini CLI | `{"id": …, "timestamp": …, "type": "gemini", "content": …, "toolCalls": […]}` and `{"$set": {…}}` |
| opencode | `{"info": {"id": …, "role": …, "time": …}, "parts": […]}`: a message as `opencode export` has it |
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

Line = dict[str, Any]
Agent = Literal["claude", "codex", "gemini", "opencode"]
AGENTS: tuple[Agent, ...] = ("claude", "codex", "gemini", "opencode")

_GEMINI_TYPES = ("user", "gemini", "info", "warning", "error")
# Texts that Claude Code writes in the name of the person: output of local commands, and notes of what was interrupted.
_CLAUDE_NOTES = (
    "<local-command-",
    "<bash-",
    "<command-name>",  # a command of the program itself; one that is a prompt begins with <command-message>
    "[Request interrupted by user",
    "<task-notification>",
)
_OPENCODE_MARKS = ("step-start", "step-finish", "snapshot", "patch")  # parts that say nothing
_OPENCODE_IDS = ("id", "sessionID", "messageID", "time")  # of a part
_FIRST_YEAR = 1970  # a time before is no time of a line
_CODEX_NOTES = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "# AGENTS.md instructions")


def agent_of(line: Line) -> Agent | None:
    """The agent that wrote a line; None for a message of another shape."""
    if "role" in line:
        return None
    if type(line.get("info")) is dict and type(line.get("parts")) is list:
        return "opencode"
    if "$set" in line or "$rewindTo" in line or "projectHash" in line:
        return "gemini"
    kind = line.get("type")
    if type(kind) is not str:
        return None
    if type(line.get("payload")) is dict and ("timestamp" in line or kind == "response_item"):
        return "codex"
    if kind in _GEMINI_TYPES and "content" in line and ("timestamp" in line or "toolCalls" in line):
        return "gemini"
    if "uuid" in line or "sessionId" in line or "parentUuid" in line or "leafUuid" in line or "snapshot" in line:
        return "claude"
    return None


def body(line: Line) -> Line | None:
    """The message in a line, which may be the line itself; None if the line is bookkeeping, or of no agent."""
    agent = agent_of(line)
    return None if agent is None else _BODIES[agent](line)


def is_bookkeeping(line: Line) -> bool:
    """True if an agent wrote this line, and it is not a message."""
    agent = agent_of(line)
    return agent is not None and _BODIES[agent](line) is None


def is_prompt(line: Line) -> bool:
    """True if a person speaks in this line of a transcript."""
    agent = agent_of(line)
    inner = _BODIES[agent](line) if agent is not None else None
    if inner is None or inner.get("role", inner.get("type")) != "user":
        return False
    if agent == "claude":
        return _is_claude_prompt(line)
    return _is_codex_prompt(inner) if agent == "codex" else _has_text(line)


def turn_id(line: Line) -> str | None:
    """The agent's own id of the turn that a line belongs to, where the line has one."""
    agent = agent_of(line)
    found: Any = None
    if agent == "claude":
        found = line.get("promptId")
    elif agent == "codex":
        payload = line["payload"]
        passed = payload.get("internal_chat_message_metadata_passthrough")
        found = payload.get("turn_id") or (passed.get("turn_id") if type(passed) is dict else None)
    elif agent == "gemini" and is_prompt(line):
        found = line.get("id")
    elif agent == "opencode":
        found = line["info"].get("id" if line["info"].get("role") == "user" else "parentID")
    return found if type(found) is str and found else None


def written_at(line: Line) -> datetime | None:
    """The time at which an agent wrote a line."""
    value = line.get("timestamp") or line.get("startTime")  # the latter in the first line of Gemini CLI
    try:
        if type(value) is str:
            found = datetime.fromisoformat(value)
            found = found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
        else:
            info = line.get("info")
            times = info.get("time") if type(info) is dict else None
            millis = times.get("created") if type(times) is dict else None
            if type(millis) is not int:
                return None
            found = datetime.fromtimestamp(millis / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # not a time, or none that a calendar has
    return found if found.year >= _FIRST_YEAR else None


# -- each agent --------------------------------------------------------------------------------------------------------


def _claude(line: Line) -> Line | None:
    kind, message = line.get("type"), line.get("message")
    if kind in ("user", "assistant") and type(message) is dict:
        return message if type(message.get("role")) is str else {"role": kind, **message}
    text = line.get("content")
    return {"role": "system", "content": text} if kind == "system" and type(text) is str and text else None


def _codex(line: Line) -> Line | None:
    payload: Line = line["payload"]
    if line["type"] == "compacted":
        return {"role": "system", "content": payload.get("message") or "the conversation so far was compacted"}
    if line["type"] != "response_item":
        return _codex_error(line)
    kind = payload.get("type")
    known = type(kind) is str and (kind in ("message", "reasoning") or kind.endswith(("_call", "_call_output")))
    return payload if known else None


def _codex_error(line: Line) -> Line | None:
    payload: Line = line["payload"]
    if line["type"] == "event_msg" and payload.get("type") in ("error", "stream_error"):
        return {"role": "system", "content": f"error: {payload.get('message')}"}
    return None


def _gemini(line: Line) -> Line | None:
    # The first of two lines of one id may have nothing but the token count: the second has the calls.
    says = line.get("content") or line.get("toolCalls") or line.get("thoughts")
    return line if says and line.get("type") in _GEMINI_TYPES else None


def _opencode(line: Line) -> Line | None:
    role = line["info"].get("role")
    parts = [_without_ids(part) if type(part) is dict else part for part in line["parts"]]
    said = [part for part in parts if type(part) is not dict or part.get("type") not in _OPENCODE_MARKS]
    return {**line["info"], "role": role, "parts": said} if type(role) is str else None


def _without_ids(part: Line) -> Line:
    return {key: value for key, value in part.items() if key not in _OPENCODE_IDS}


_BODIES = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}


def _is_claude_prompt(line: Line) -> bool:
    if line.get("isMeta") or line.get("isCompactSummary") or line.get("isSidechain"):
        return False
    content = line["message"].get("content")
    if "promptSource" in line or "turnPosition" in line:
        return True
    images = type(content) is list and any(type(b) is dict and b.get("type") in ("image", "document") for b in content)
    return images or any(text and not text.lstrip().startswith(_CLAUDE_NOTES) for text in _texts(content))


def _is_codex_prompt(payload: Line) -> bool:
    passed = payload.get("internal_chat_message_metadata_passthrough")
    items = passed.get("content_item_metadata") if type(passed) is dict else None
    if type(items) is list:
        return any(
            type(item) is dict and type(of := item.get("provenance")) is dict and of.get("type") == "user"
            for item in items
        )
    return any(not text.lstrip().startswith(_CODEX_NOTES) for text in _texts(payload.get("content")))


def _has_text(line: Line) -> bool:
    """True for a message of Gemini or opencode with a part that is not a tool's answer and not made by the program."""
    content = line.get("content") or line.get("parts")
    if type(content) is str:
        return True
    parts = content if type(content) is list else []
    return any(
        type(part) is dict
        and not part.get("synthetic")
        and "functionResponse" not in part
        and part.get("type") != "tool"
        for part in parts
    )


def _texts(content: Any) -> list[str]:
    parts = content if type(content) is list else [content]
    found = [part.get("text") if type(part) is dict else part for part in parts]
    return [text for text in found if type(text) is str]
