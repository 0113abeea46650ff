"""Gemini CLI: a copy of the transcript under a new session id, with the line that its own rewind writes.

A transcript is `session-<time>-<start of the id>.jsonl`. Each line is the session's metadata, a message (one with an id
that was there before replaces it), `{"$set": …}`, which may replace all messages, or `{"$rewindTo": id}`, which drops
that message and all after it. A `$rewindTo` with an unknown id would drop everything, so the messages are counted first.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from backtrail.agents.conversations.model import CannotFork, CutPoint, Fork
from backtrail.agents.conversations.transcript_copy import read_transcript, remove_copy, write_copy

PROGRAM = "gemini"
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


def fork(point: CutPoint) -> Fork:
    """Copy the transcript, and drop the turn from the copy."""
    data = read_transcript(point.transcript)
    messages = _messages(data)
    if point.first_dropped not in messages:
        raise CannotFork(f"the transcript has no message {point.first_dropped}")
    kept = messages[: messages.index(point.first_dropped)]
    if point.last_kept not in kept:
        raise CannotFork(f"the transcript does not have message {point.last_kept} before {point.first_dropped}")
    path = Path(str(point.transcript))
    if not _FILE_NAME.fullmatch(path.name):
        raise CannotFork(f"{path.name} is not named as a session's transcript is")
    session_id = str(uuid.uuid4())
    name = f"session-{datetime.now(UTC):%Y-%m-%dT%H-%M}-{session_id[:8]}.jsonl"
    copy = b"".join(_renamed(line, point.session_id, session_id) for line in data.splitlines())
    copy += msgspec.json.encode({"$rewindTo": point.first_dropped}) + b"\n"
    write_copy(path.with_name(name), copy)
    made = str(path.with_name(name))
    return Fork(PROGRAM, session_id, (PROGRAM, "--resume", session_id), None, made, len(copy))


def _decode(line: bytes) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise CannotFork(f"a line of the transcript is not JSON: {error}") from error
    if type(record) is not dict:
        raise CannotFork("a line of the transcript is not a JSON object")
    return record


def _messages(data: bytes) -> list[str]:
    """The ids of the messages that the session has at its end."""
    ids: list[str] = []
    for line in data.splitlines():
        record = _decode(line)
        if isinstance(id := record.get("id"), str):
            ids += [id] if id not in ids else []
        elif isinstance(to := record.get("$rewindTo"), str):
            ids = ids[: ids.index(to)] if to in ids else []
        elif isinstance(changed := record.get("$set"), dict) and isinstance(changed.get("messages"), list):
            ids = [str(message.get("id")) for message in changed["messages"] if isinstance(message, dict)]
    return ids


def _renamed(line: bytes, old: str, new: str) -> bytes:
    """The line as one of the new session; lines of messages stay byte for byte."""
    record = _decode(line)
    for part in (record, record.get("$set")):
        if isinstance(part, dict) and part.get("sessionId") == old:
            part["sessionId"] = new
            line = msgspec.json.encode(record)
    return line + b"\n"
