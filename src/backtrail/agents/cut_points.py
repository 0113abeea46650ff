"""Where to cut a captured conversation: the agent's own ids of the turns on both sides of the cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backtrail.agents.capture import MESSAGES
from backtrail.agents.conversations import CutPoint, gemini
from backtrail.agents.conversations.transcript_copy import read_transcript, write_copy
from backtrail.agents.sessions import AgentSession, Turn
from backtrail.agents.transcripts import UNPARSED, parse_line

_TRANSCRIPTS = ("claude", "gemini")  # agents whose sessions are what their transcripts say
_OURS = ("restore", "revert", "undo", "redo")  # events of going back that leave the conversation as it is


def cut_point(session: AgentSession, turn: Turn) -> CutPoint:
    """The point before `turn`."""
    turns, transcript = session.turns(), transcript_of(session)
    kept = [each for each in turns if each.number < turn.number]
    dropped = [each for each in turns if each.number >= turn.number]
    if session.agent == "gemini":  # one id of each side is enough, and each has to be looked for
        dropped_ids = _first(_gemini_id(session, each, transcript) for each in dropped)
        kept_ids = _first(_gemini_id(session, each, transcript) for each in reversed(kept))
    else:
        dropped_ids = tuple(each.turn_id for each in dropped if each.turn_id is not None)
        kept_ids = tuple(each.turn_id for each in kept if each.turn_id is not None)
    prompts = tuple(session.prompt(each) for each in (*kept, turn))
    return CutPoint(session.session_id, transcript, session.cwd, dropped_ids, kept_ids, prompts)


def _first(ids: Iterable[str | None]) -> tuple[str, ...]:
    found = next((id for id in ids if id is not None), None)
    return () if found is None else (found,)


def transcript_of(session: AgentSession) -> str | None:
    """The path of the session's transcript. A session that was forked, and not used since, has told no hook yet."""
    for checkpoint in session.thread.history(newest_first=True):
        event = checkpoint.custom.get("event")
        if event == "rewind":
            path = checkpoint.custom.get("transcript")
            return path if isinstance(path, str) else None
        if event not in _OURS:
            break
    return session.transcript


def bring_back_transcript(session: AgentSession) -> str | None:
    """Write a transcript that the agent has deleted again, as it was captured; a sentence that says so. Gemini CLI
    deletes a session that was resumed in a later minute than it was begun in, when it starts with another one."""
    path = session.transcript
    if session.agent not in _TRANSCRIPTS or path is None or transcript_of(session) != path:
        return None
    if Path(path).exists() or Path(f"{path}.zst").exists() or not Path(path).parent.is_dir():
        return None
    lines = _lines(session, session.head)
    if not lines:
        return None
    write_copy(Path(path), b"".join(_raw(line) + b"\n" for line in lines))
    return f"{session.agent} had deleted the transcript of {session.session_id}: it was written again, as captured"


def _raw(line: dict[str, Any]) -> bytes:
    text = line.get(UNPARSED) if line.keys() == {UNPARSED} else None
    if isinstance(text, str):
        return text.encode()
    return text if isinstance(text, bytes) else json.dumps(line).encode()  # which knows halves of surrogate pairs


def _gemini_id(session: AgentSession, turn: Turn, transcript: str | None) -> str | None:
    """The id of a turn's prompt: the first in the transcript that was not there before the turn."""
    before = set() if turn.before is None else set(_ids(_lines(session, turn.before)))
    if turn.after is not None:
        lines = _lines(session, turn.after)
    else:
        lines = [parse_line(line) for line in read_transcript(transcript).splitlines()]
    return gemini.prompt_id(line for line in lines if line.get("id") not in before)


def _lines(session: AgentSession, at: Any) -> list[dict[str, Any]]:
    lines = session.thread.pick([MESSAGES], at=at).get(MESSAGES)
    return [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []


def _ids(lines: Iterable[Mapping[str, Any]]) -> Iterable[Any]:
    """The ids of messages, also of those that a line sets all at once."""
    for line in lines:
        yield line.get("id")
        changed = line.get("$set")
        messages = changed.get("messages") if isinstance(changed, dict) else None
        if isinstance(messages, list):
            yield from (message.get("id") for message in messages if isinstance(message, dict))
