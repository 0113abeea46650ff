"""Commands that a person types into the agent: `backtrail log` as a prompt is answered by the hook, without a model.

Only a line that is exactly such a command is one: a prompt that merely speaks of backtrail goes to the agent.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from backtrail.errors import BacktrailError

if TYPE_CHECKING:
    from backtrail.agents.events import Event
    from backtrail.agents.sessions import AgentSession, Turn
    from backtrail.store import Store

_COMMAND = re.compile(
    r"/?backtrail\s+(?P<verb>log|diff|undo|redo|rewind|revert)(?:\s+(?P<turn>[0-9]{1,6}))?(?P<flags>(?:\s+--?[a-z-]{1,20})*)",
    re.ASCII,
)
_FLAGS = {
    "log": frozenset[str](),
    "diff": frozenset[str](),
    "undo": frozenset({"--dry-run", "-n"}),
    "redo": frozenset({"--dry-run", "-n"}),
    "revert": frozenset({"--dry-run", "-n"}),
    "rewind": frozenset({"--dry-run", "-n", "--files", "--files-only", "--conversation", "--keep-untracked"}),
}
_MAX_LINES = 200  # of one answer
_SHOWN_TURNS = 30


class Command(msgspec.Struct, frozen=True):
    """One command that was typed as a prompt."""

    verb: str
    turn: int | None
    flags: frozenset[str]

    @property
    def dry_run(self) -> bool:
        """True if nothing is to be done."""
        return not self.flags.isdisjoint({"--dry-run", "-n"})


def parse(prompt: str | None) -> Command | None:
    """The command that a prompt is; None if it is none."""
    if prompt is None or len(prompt) > 200:
        return None
    line = prompt.strip()
    if line.startswith('"') and line.endswith('"'):  # as `opencode run` writes an argument with spaces
        line = line[1:-1]
    found = _COMMAND.fullmatch(line)
    if found is None or not _FLAGS[found["verb"]].issuperset(flags := found["flags"].split()):
        return None
    turn = None if found["turn"] is None else int(found["turn"])
    return (
        None
        if found["verb"] in ("undo", "redo") and turn is not None
        else Command(found["verb"], turn, frozenset(flags))
    )


def answer(store: Store, event: Event, command: Command) -> str:
    """Do what a command says; returns what the hook prints, so that no model is asked."""
    from backtrail.agents.sessions import AgentSession

    session = AgentSession(store, event.agent, event.session_id)
    try:
        text = _carry_out(store, session, command)
    except BacktrailError as error:
        text = str(error)
    return decision(event, text)


def _carry_out(store: Store, session: AgentSession, command: Command) -> str:
    if command.verb == "log":
        return _log(session)
    if command.verb == "diff":
        return _diff(session, command.turn)
    from backtrail.agents import going_back
    from backtrail.agents.going_back_text import outcome_lines

    if command.verb in ("undo", "redo"):
        take_back = going_back.undo if command.verb == "undo" else going_back.redo
        return "\n".join(outcome_lines(take_back(store, session.cwd, dry_run=command.dry_run)))
    if command.turn is None:
        return f"say which turn: backtrail {command.verb} 3, for example\n{_log(session)}"
    if command.verb == "revert":
        outcome = going_back.revert(store, session, command.turn, dry_run=command.dry_run)
    else:
        outcome = going_back.rewind(
            store,
            session,
            command.turn,
            conversation="--files-only" not in command.flags,
            files="--conversation" not in command.flags,
            keep_untracked="--keep-untracked" in command.flags,
            dry_run=command.dry_run,
        )
    nothing_done = command.dry_run or (command.verb == "revert" and not outcome.changes)
    again = [] if nothing_done else ["type `backtrail undo` to take it back"]
    return "\n".join([*outcome_lines(outcome), *again])


def decision(event: Event, text: str) -> str:
    """An answer in the form that the agent takes."""
    from backtrail.render.visible_text import safe

    lines = safe(text).splitlines()
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"… {len(lines) - _MAX_LINES:,} more lines: type the same in a terminal"]
    reason = "\n".join(lines)
    if event.agent == "opencode":  # our plugin takes the text itself
        return reason
    return json.dumps({"decision": "deny" if event.agent == "gemini" else "block", "reason": reason}) + "\n"


def _log(session: AgentSession) -> str:
    turns = session.turns()
    lines = [f"{session.thread_id} in {session.cwd}"] if turns else ["no turn was captured yet"]
    if len(turns) > _SHOWN_TURNS:
        lines.append(f"… {len(turns) - _SHOWN_TURNS} earlier turns")
    lines += [_line(turn) for turn in turns[-_SHOWN_TURNS:]]
    return "\n".join(lines)


def _line(turn: Turn) -> str:
    moment = turn.before or turn.after
    when = "" if moment is None else f"{moment.created_at.astimezone():%H:%M}  "
    end = "" if turn.after is None or not turn.interrupted else "  (interrupted)"
    return f"{turn.number:>4}  {when}{turn.prompt or '(no prompt)'}{end}"


def _diff(session: AgentSession, number: int | None) -> str:
    turns = session.turns()
    if not turns:
        return "no turn was captured yet"
    turn = turns[-1] if number is None else session.turn(number)
    if turn.before is None or turn.before.files is None:
        return f"the files at the beginning of turn {turn.number} were not captured"
    after = turn.after
    if after is not None and after.files is None:
        return f"the files at the end of turn {turn.number} were not captured"
    found = session.workspace().diff(turn.before, after)
    return f"turn {turn.number}: {turn.prompt}\n{found}"
