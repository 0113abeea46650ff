"""What a turn of a captured session did: its tools, its answer, its tokens and its files, read from the store.

Only the lines of the turn are read: they lie between the checkpoint at its prompt and the one at the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import msgspec

from backtrail import BacktrailError, Checkpoint, Thread, transcript_lines
from backtrail.render.agent_turns import AgentTurn, read_turn
from backtrail.render.json_records import TokensJson
from backtrail.render.session_turns import Turn
from backtrail.workspace import Change

_KEY = "messages"
_LEAD = 16  # lines before the prompt's checkpoint: some agents write the prompt before they tell of it


class ToolCountJson(TypedDict):
    """A tool, how often the turn called it, and how many of the calls failed."""

    name: str
    calls: int
    failed: int


class TurnJson(TypedDict):
    """A turn of a coding agent. `before` and `after` are ids of checkpoints: at its prompt and at its end, null if they
    were not captured. `duration` is in seconds; it and `tokens` are null if the transcript does not have them.
    `files_known`: both checkpoints have files, so that `/turn` tells what changed."""

    number: int
    turn_id: str | None
    prompt: str
    before: str | None
    after: str | None
    open: bool
    interrupted: bool
    started_at: str | None
    duration: float | None
    model: str | None
    tokens: TokensJson | None
    tools: list[ToolCountJson]
    reply: str
    errors: list[str]
    files_known: bool
    damage: NotRequired[str]


def read_details(thread: Thread[Any], turns: Sequence[Turn], number: int) -> AgentTurn:
    """The turn at place `number` of a session's turns, from its own lines."""
    turn = turns[number]
    following = turns[number + 1].before if number + 1 < len(turns) else None
    start = _count(thread, turn.before) if turn.before is not None else _count(thread, turn.after, before=True)
    stop = _count(thread, following or (turn.after if number + 1 < len(turns) else None))
    at = following if following is not None else turn.after if number + 1 < len(turns) else None
    first = max(0, min(start, stop) - _LEAD)
    parts = thread.outline([_KEY], at=at, start=first, stop=stop, salvage=True).parts if stop > first else ()
    return read_turn(_own_lines([part.value for part in parts], start - first, turn.turn_id))


def _count(thread: Thread[Any], at: Checkpoint | None, *, before: bool = False) -> int:
    """The number of lines at a checkpoint, or at the head; with `before`, at the one before it."""
    where: Any = at.parent_id if before and at is not None else at
    if before and where is None:
        return 0
    parts = thread.outline(at=where, salvage=True).parts
    return next((part.count or 0 for part in parts if part.name == _KEY and part.kind == "list"), 0)


def _own_lines(lines: list[Any], start: int, turn_id: str | None) -> list[Any]:
    """The lines of one turn: from its prompt to that of the next one."""
    prompts = [n for n, line in enumerate(lines) if type(line) is dict and transcript_lines.is_prompt(line)]
    ids = {n: transcript_lines.turn_id(lines[n]) for n in prompts}
    own = [n for n in prompts if turn_id is not None and ids[n] == turn_id]
    if own:
        first = own[0]
        last = next((n for n in prompts if n > first and ids[n] != turn_id), len(lines))
    else:
        first = next((n for n in prompts if n >= start), prompts[-1] if prompts else start)
        last = next((n for n in prompts if n > first), len(lines))
    return lines[first:last]


def turn_files(thread: Thread[Any], turn: Turn) -> tuple[Change, ...] | None:
    """The changes that a turn made to the files; None if one of its ends has none."""
    if turn.before is None or turn.after is None or turn.before.files is None or turn.after.files is None:
        return None
    return thread.workspace(turn.after).diff(turn.before, turn.after).changes


def missing_files(turn: Turn) -> str | None:
    """Why the files of a turn are not known; None if they are, or nobody told."""
    for end in (turn.before, turn.after):
        if end is not None and end.files is None and "files_missing" in end.custom:
            return str(end.custom["files_missing"])
    return None


def turn_json(thread: Thread[Any], turns: Sequence[Turn], number: int) -> TurnJson:
    """The turn at place `number` of a session's turns. A turn that is damaged is told as such."""
    turn = turns[number]
    ends = (turn.before, turn.after)
    data: TurnJson = {
        "number": turn.number,
        "turn_id": turn.turn_id,
        "prompt": turn.prompt,
        "before": turn.before.id if turn.before is not None else None,
        "after": turn.after.id if turn.after is not None else None,
        "open": turn.after is None,
        "interrupted": turn.interrupted,
        "started_at": turn.before.created_at.isoformat() if turn.before is not None else None,
        "duration": None,
        "model": None,
        "tokens": None,
        "tools": [],
        "reply": "",
        "errors": [],
        "files_known": all(end is not None and end.files is not None for end in ends),
    }
    try:
        read = read_details(thread, turns, number)
    except BacktrailError as error:
        data["damage"] = str(error)
        return data
    data["duration"], data["model"], data["reply"] = read.duration, read.model, read.reply
    data["errors"] = list(read.errors)
    if read.tokens is not None:
        data["tokens"] = {
            "input": read.tokens.input,
            "cached": read.tokens.cached,
            "output": read.tokens.output,
        }
    data["tools"] = tool_counts(read)
    return data


def tool_counts(turn: AgentTurn) -> list[ToolCountJson]:
    """The tools of a turn by name, in the order of their first call."""
    calls = Counter(tool.name for tool in turn.tools)
    failed = Counter(tool.name for tool in turn.tools if tool.failed)
    return [{"name": name, "calls": count, "failed": failed[name]} for name, count in calls.items()]


def tools_json(turn: AgentTurn) -> list[dict[str, Any]]:
    """The tool calls of a turn with their results."""
    return [msgspec.to_builtins(tool) for tool in turn.tools]
