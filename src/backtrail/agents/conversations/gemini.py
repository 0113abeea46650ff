"""Gemini CLI: a copy of the transcript under a new session id, with the line that its own rewind writes.

A transcript is `session-<time>-<start of the id>.jsonl`. Each line is the session's metadata, a message (one with an id
that was there before replaces it), `{"$set": …}`, which may replace all messages, or `{"$rewindTo": id}`, which drops
that message and all after it. A `$rewindTo` with an unknown id would drop everything, so the messages are read first.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from backtrail.agents.conversations.model import Announce, CannotFork, CutPoint, Fork
from backtrail.agents.conversations.transcript_copy import read_transcript, remove_copy, write_copy
from backtrail.errors import DECODE_ERRORS

PROGRAM: Final = "gemini"
_FILE_NAME = re.compile(r"session-.*-[0-9a-f]{8}\.jsonl")

discard = remove_copy


def prompt_id(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The id of the first prompt among new lines of a transcript: a turn's own id, which the hook is not told."""
    return next((str(line["id"]) for line in lines if _is_prompt(line)), None)


def _is_prompt(line: Mapping[str, Any]) -> bool:
    content = line.get("content")
    if line.get("type") != "user" or not line.get("id"):
        return False
    return isinstance(content, str) or (
        isinstance(content, list) and any(isinstance(part, dict) and "text" in part for part in content)
    )


def resumed(session_id: str | None) -> Fork:
    """How to go on with a session."""
    if session_id is None:
        return Fork(PROGRAM, None, (PROGRAM,), "/clear")
    return Fork(PROGRAM, session_id, (PROGRAM, "--resume", session_id))


def fork(point: CutPoint, announce: Announce) -> Fork:
    """Copy the transcript, and drop the turn from the copy."""
    data, messages = _read(point)
    dropped = next((i for i, message in enumerate(messages) if message.get("id") in point.dropped), None)
    prompts = [message.get("id") for message in messages if _is_prompt(message)]
    if not point.dropped and prompts and prompts[-1] in point.kept:
        dropped = len(messages)  # it was killed before it wrote the prompt down
    elif dropped is None:
        raise CannotFork(f"the transcript has no message {', '.join(point.dropped[:1])}")
    kept = messages[:dropped]
    if point.kept and {message.get("id") for message in kept}.isdisjoint(point.kept):
        raise CannotFork(f"the transcript does not have message {point.kept[-1]} before {', '.join(point.dropped[:1])}")
    if not any(message.get("type") == "gemini" for message in kept):
        return resumed(None)
    path = Path(str(point.transcript))
    if not _FILE_NAME.fullmatch(path.name):
        raise CannotFork(f"{path.name} is not named as a session's transcript is")
    session_id = str(uuid.uuid4())
    path = path.with_name(f"session-{datetime.now(UTC):%Y-%m-%dT%H-%M}-{session_id[:8]}.jsonl")
    copy = b"".join(_renamed(line, session_id) for line in data.splitlines())
    if dropped < len(messages):
        copy += msgspec.json.encode({"$rewindTo": messages[dropped]["id"]}) + b"\n"
    made = msgspec.structs.replace(resumed(session_id), path=str(path), size=len(copy))
    announce(made)
    write_copy(path, copy)
    return made


def _read(point: CutPoint) -> tuple[bytes, list[dict[str, Any]]]:
    """The transcript, and its messages. A session that is resumed in a later minute than it was begun in tells of a
    file of that minute, has nothing in it, and goes on in the first one: there may be several with the session's id."""
    found = []
    path = Path(point.transcript or "")
    others = sorted(path.parent.glob(f"session-*-{point.session_id[:8]}.jsonl")) if point.transcript else []
    for each in [point.transcript, *(str(other) for other in others if other != path)]:
        data = read_transcript(each)
        messages = _messages(data)
        if not {message.get("id") for message in messages}.isdisjoint((*point.dropped, *point.kept)):
            return data, messages
        found.append((data, messages))
    return found[0]


def _decode(line: bytes) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line)
    except DECODE_ERRORS as error:
        raise CannotFork(f"a line of the transcript is not JSON: {error}") from error
    if type(record) is not dict:
        raise CannotFork("a line of the transcript is not a JSON object")
    return record


def _messages(data: bytes) -> list[dict[str, Any]]:
    """The messages that the session has at its end."""
    found: dict[str, dict[str, Any]] = {}
    for line in data.splitlines():
        record = _decode(line)
        if isinstance(id := record.get("id"), str):
            found[id] = record
        elif isinstance(to := record.get("$rewindTo"), str):
            ids = list(found)
            found = {id: found[id] for id in ids[: ids.index(to)]} if to in found else {}
        elif isinstance(changed := record.get("$set"), dict) and isinstance(changed.get("messages"), list):
            messages = [message for message in changed["messages"] if isinstance(message, dict)]
            found = {str(message.get("id")): message for message in messages}
    return list(found.values())


def _renamed(line: bytes, session_id: str) -> bytes:
    """The line as one of the new session; lines of messages stay byte for byte."""
    record = _decode(line)
    for part in (record, record.get("$set")):
        if isinstance(part, dict) and "sessionId" in part:
            part["sessionId"] = session_id
            line = msgspec.json.encode(record)
    return line + b"\n"
