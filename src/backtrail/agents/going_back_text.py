"""What going back did, or would do, as lines for a person: the same in a terminal, in the agent and over MCP."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from backtrail.agents.conversations import Fork
from backtrail.agents.going_back_plan import Outcome
from backtrail.model import counted
from backtrail.workspace import Changes

_SHOWN = 200  # changed files
_SHOWN_KEPT = 20


def outcome_lines(outcome: Outcome) -> list[str]:
    """The lines, without control characters being made visible: that is up to whoever shows them."""
    lines = [_headline(outcome)]
    if outcome.changes is not None:
        lines += change_lines(outcome.changes)
    lines += [f"note: {note}" for note in outcome.notes]
    if outcome.fork is not None and not outcome.dry_run:
        lines += resume_lines(outcome.fork, outcome.session.cwd)
    if outcome.prompt is not None:
        lines += [f"the prompt of turn {outcome.turn}, to send it again or another one:", *_indented(outcome.prompt)]
    return lines


def resume_lines(fork: Fork, directory: str) -> Iterator[str]:
    """How to go on with a session."""
    what = "begin anew" if fork.session_id is None else "go on"
    yield f"{what}, in {directory}: {shlex.join(fork.resume)}"
    if fork.inside is not None:
        yield f"or, inside the running {fork.agent}: {fork.inside}"


def change_lines(changes: Changes) -> Iterator[str]:
    """What changes, what is removed, and what is kept, and why."""
    merged = set(changes.merged)
    for change in changes.changes[:_SHOWN]:
        yield str(change) + ("   (later changes are kept)" if change.path in merged else "")
    if len(changes.changes) > _SHOWN:
        yield f"… {len(changes.changes) - _SHOWN:,} more files; --json lists them all"
    for kept in changes.kept[:_SHOWN_KEPT]:
        yield f"= {kept.path}   (kept: {kept.reason})"
    if len(changes.kept) > _SHOWN_KEPT:
        yield f"= {len(changes.kept) - _SHOWN_KEPT:,} more are kept; --json lists them all"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The same as plain data."""
    changes = outcome.changes
    data: dict[str, Any] = {
        "action": outcome.action,
        "session": outcome.session.thread_id,
        "directory": outcome.session.cwd,
        "turn": outcome.turn,
        "prompt": outcome.prompt,
        "resume": None if outcome.fork is None or outcome.dry_run else list(outcome.fork.resume),
        "inside": None if outcome.fork is None or outcome.dry_run else outcome.fork.inside,
        "notes": list(outcome.notes),
        "token": outcome.token,
        "done": not outcome.dry_run,
    }
    if changes is not None:
        data["files"] = [{"path": c.path, "kind": c.kind, "unsaved": c.unsaved} for c in changes.changes]
        data["kept"] = [{"path": kept.path, "reason": kept.reason} for kept in changes.kept]
        data["merged"] = list(changes.merged)
    return data


def summary(outcome: Outcome) -> str:
    """One sentence on what is about to be done."""
    parts = []
    if outcome.changes is not None:
        removed = len(outcome.changes.removed)
        parts.append(f"change {counted(len(outcome.changes) - removed, 'file')}")
        parts += [f"remove {counted(removed, 'file')}"] if removed else []
        parts += [f"keep {len(outcome.changes.kept):,}"] if outcome.changes.kept else []
    if outcome.action == "rewind":
        return f"go back to before turn {outcome.turn} of {outcome.session.thread_id}: {', '.join(parts) or 'no files'}"
    what = f"turn {outcome.turn} of {outcome.session.thread_id}" if outcome.action == "revert" else outcome.session.cwd
    return f"{outcome.action} {what}: {', '.join(parts) or 'no files'}"


def _headline(outcome: Outcome) -> str:
    would = "would " if outcome.dry_run else ""
    files = " (files stay)" if outcome.changes is None else "" if outcome.changes else " (no file differs)"
    session = outcome.session.thread_id
    if outcome.action == "rewind":
        return f"{would or 'went back: now before'}{'go back to before' if would else ''} turn {outcome.turn}{files}"
    if outcome.action == "revert":
        return _revert_headline(outcome)
    way = "back" if outcome.action == "undo" else "forward"
    return f"{f'would go {way}' if would else f'went {way}'} to {session} and its files{files}"


def _revert_headline(outcome: Outcome) -> str:
    turn = f"turn {outcome.turn} of {outcome.session.thread_id}"
    changes = outcome.changes
    if changes is None or not (changes or changes.kept):
        return f"there is nothing to take back: {turn} changed no file, or all are again as they were before it"
    if not changes:
        return f"nothing of what {turn} did to the files can be taken back"
    verb = "would take back" if outcome.dry_run else "took back"
    kept = f", but for {counted(len(changes.kept), 'file')} that cannot go back" if changes.kept else ""
    return f"{verb} what {turn} did to the files{kept}"


def _indented(text: str) -> Sequence[str]:
    return [f"  {line}" for line in text.splitlines()]
