"""A coding agent's session for the terminal: its turns, and the files that they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backtrail.cli.context import CommandContext, print_line
from backtrail.cli.diff_output import file_change_lines, file_changes_json
from backtrail.cli.formatting import age, one_line
from backtrail.cli.output import print_lines
from backtrail.cli.turn_output import log_details, log_json
from backtrail.errors import NoCheckpoint

if TYPE_CHECKING:
    from backtrail.agents.sessions import AgentSession


def print_turns(context: CommandContext, session: AgentSession, limit: int) -> None:
    """The turns, newest first: their numbers are what `backtrail rewind` takes."""
    turns = session.turns()
    shown = turns[-limit:][::-1]
    if context.json:
        data = {"session": session.thread_id, "directory": session.cwd, "more": len(turns) > limit}
        places = range(len(turns) - 1, max(-1, len(turns) - 1 - limit), -1)
        context.print_json({**data, "turns": [log_json(session, turns, place) for place in places]})
        return
    print_line(f"{session.thread_id} in {session.cwd}")
    for turn in shown:
        moment = turn.before or turn.after
        when = "" if moment is None else age(moment.created_at)
        state = " (interrupted)" if turn.interrupted else "" if turn.after is not None else " (goes on)"
        click.echo(f"{turn.number:>4}  {when:>8}  {one_line(turn.prompt) or '(no prompt)'}{state}")
        if details := log_details(session, turns, turns.index(turn)):
            click.echo(f"{'':16}{details}")
    if not turns:
        print_line("no turn was captured yet")
    elif len(turns) > limit:
        print_line("… older turns: raise --limit")


def print_turn_diff(context: CommandContext, session: AgentSession, words: list[str]) -> bool:
    """The files that turns changed; returns whether there are any."""
    numbers = [_number(word) for word in words]
    turns = session.turns()
    if not numbers and not turns:
        raise NoCheckpoint(f"no turn of {session.thread_id} was captured yet")
    first = session.turn(numbers[0]) if numbers else turns[-1]
    last = session.turn(numbers[-1]) if numbers else turns[-1]
    before, after = first.before, last.after
    if before is None or before.files is None or (after is not None and after.files is None):
        which = f"turns {first.number} to {last.number} of {session.thread_id}"
        raise NoCheckpoint(f"the files of {which} were not captured")
    found = session.workspace().diff(before, after)
    if context.json:
        data = {"session": session.thread_id, "turns": [first.number, last.number]}
        context.print_json({**data, "files": file_changes_json(found.changes)})
    else:
        print_lines(file_change_lines(found.changes))
    return bool(found)


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise click.UsageError(f"{word!r} is not the number of a turn: `backtrail log` lists them.")
    return int(word)
