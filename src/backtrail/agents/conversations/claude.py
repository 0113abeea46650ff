"""Claude Code: a copy of the transcript under a new session id, cut before the turn.

A transcript is `<uuid>.jsonl`, one JSON object on each line. Entries of the conversation have a `uuid` and name the
entry before them in `parentUuid`, so they form a tree: a person who goes back inside Claude Code leaves a dead branch.
A prompt's entries have its `promptId`. The copy ends with the entry that the dropped prompt names as its parent: what
came between the two in the file is a dead branch. Lines without a `uuid` are bookkeeping; those that queue the dropped
prompt are left out.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final

import msgspec

from backtrail.agents.conversations.model import Announce, CannotFork, CutPoint, Fork
from backtrail.agents.conversations.transcript_copy import read_transcript, remove_copy, write_copy
from backtrail.errors import DECODE_ERRORS

PROGRAM: Final = "claude"
_ENTRYPOINT = "cli"  # `/resume` inside the program lists no sessions of other entry points

discard = remove_copy


def resumed(session_id: str | None) -> Fork:
    """How to go on with a session."""
    if session_id is None:
        return Fork(PROGRAM, None, (PROGRAM,), "/clear")
    return Fork(PROGRAM, session_id, (PROGRAM, "--resume", session_id), f"/resume {session_id}")


def fork(point: CutPoint, announce: Announce) -> Fork:
    """Copy the transcript up to the turn."""
    lines = [_entry(line) for line in read_transcript(point.transcript).splitlines()]
    kept = _cut(lines, point)
    if not any(line.get("type") == "assistant" for line in kept):
        return resumed(None)
    session_id = str(uuid.uuid4())
    path = Path(str(point.transcript)).with_name(f"{session_id}.jsonl")
    copy = b"".join(msgspec.json.encode(_renamed(line, session_id)) + b"\n" for line in kept)
    made = msgspec.structs.replace(resumed(session_id), path=str(path), size=len(copy))
    announce(made)
    write_copy(path, copy)
    return made


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = msgspec.json.decode(line)
    except DECODE_ERRORS as error:
        raise CannotFork(f"a line of the transcript is not JSON: {error}") from error
    if type(entry) is not dict:
        raise CannotFork("a line of the transcript is not a JSON object")
    return entry


def _cut(lines: list[dict[str, Any]], point: CutPoint) -> list[dict[str, Any]]:
    prompts = [i for i, line in enumerate(lines) if line.get("type") == "user" and line.get("uuid")]
    dropped = next((i for i in prompts if lines[i].get("promptId") in point.dropped), None)
    if dropped is None and prompts and lines[prompts[-1]].get("promptId") in point.kept:
        # It was killed before it wrote the prompt down, but for its place in the queue.
        return [line for i, line in enumerate(lines) if i <= prompts[-1] or line.get("type") != "queue-operation"]
    if dropped is None:
        raise CannotFork(f"the transcript has no prompt {', '.join(point.dropped[:1])}")
    place = prompts.index(dropped)
    earlier, later = ({lines[i].get("promptId") for i in part} for part in (prompts[:place], prompts[place:]))
    if (earlier and point.kept and earlier.isdisjoint(point.kept)) or not later.isdisjoint(point.kept):
        raise CannotFork(f"the transcript does not have prompt {point.kept[-1]} before prompt {point.dropped[0]}")
    before = lines[dropped].get("parentUuid")
    if before is None:
        return []
    end = next((i for i, line in enumerate(lines[:dropped]) if line.get("uuid") == before), None)
    if end is None:
        raise CannotFork(f"prompt {point.dropped[0]} does not name the entry before it")
    kept = lines[: end + 1]
    for line in lines[end + 1 : dropped]:
        if line.get("uuid") or line.get("type") == "queue-operation":
            break
        kept.append(line)
    return kept


def _renamed(line: dict[str, Any], session_id: str) -> dict[str, Any]:
    """The line as one of the new session."""
    changed = dict.fromkeys({"sessionId", "session_id"} & line.keys(), session_id)
    if "entrypoint" in line:
        changed["entrypoint"] = _ENTRYPOINT
    return {**line, **changed}
