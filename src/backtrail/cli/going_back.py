"""Going back in a coding agent's session, for the commands rewind, revert, undo and redo: plan, ask, do, print."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from backtrail.agents import going_back
from backtrail.agents.going_back_text import outcome_json, outcome_lines, summary
from backtrail.cli.context import CommandContext, Named, confirm
from backtrail.cli.formatting import safe

if TYPE_CHECKING:
    from backtrail.agents.conversations import Fork
    from backtrail.agents.going_back_plan import Outcome


class Choice(NamedTuple):
    """The options of a command that goes back."""

    conversation: bool = True
    files: bool = True
    keep_untracked: bool = False
    dry_run: bool = False
    yes: bool = False
    go: bool = False


def rewind_session(
    context: CommandContext, named: Named, turn: int | None, choice: Choice
) -> Callable[[], None] | None:
    """Rewind a session; returns the start of the agent, if that was asked for."""
    assert named.session is not None
    act = partial(
        going_back.rewind,
        named.store,
        named.session,
        turn_number(named, turn),
        conversation=choice.conversation,
        files=choice.files,
        keep_untracked=choice.keep_untracked,
    )
    done = _carry_out(context, named, act, choice)
    if not choice.go or choice.dry_run or done.fork is None:
        return None
    return partial(_start, done.fork, done.session.cwd)


def revert_session(context: CommandContext, named: Named, turn: int | None, choice: Choice) -> None:
    """Take back what one turn did to the files."""
    assert named.session is not None
    _carry_out(context, named, partial(going_back.revert, named.store, named.session, turn_number(named, turn)), choice)


def undo_session(context: CommandContext, named: Named, choice: Choice) -> None:
    """Take back the newest rewind or revert."""
    _take_back(context, named, choice, going_back.undo)


def redo_session(context: CommandContext, named: Named, choice: Choice) -> None:
    """Take back the newest undo."""
    _take_back(context, named, choice, going_back.redo)


def _take_back(context: CommandContext, named: Named, choice: Choice, how: Callable[..., Outcome]) -> None:
    assert named.session is not None
    act = partial(how, named.store, named.session.cwd, keep_untracked=choice.keep_untracked)
    _carry_out(context, named, act, choice)


def turn_number(named: Named, turn: int | None) -> int:
    """The turn that was given, by option or as a word."""
    word = named.words[0] if named.words else None
    if turn is None and word is not None and word.isascii() and word.isdigit():
        return int(word)
    if turn is None or word is not None:
        raise click.UsageError("name one turn by its number: `backtrail log` lists them.")
    return turn


def _carry_out(context: CommandContext, named: Named, act: Callable[..., Outcome], choice: Choice) -> Outcome:
    """Show the plan and ask, unless that is not wanted; then do it, if it is still the same plan."""
    token = None
    if not choice.dry_run and not choice.yes:
        assert named.session is not None
        for note in going_back.recover(named.store, named.session.cwd):
            click.echo(safe(note), err=True)
        plan = act(dry_run=True)
        if not context.json:
            _print(plan)
        confirm(context, summary(plan), yes=False)
        token = plan.token
    done = act(dry_run=choice.dry_run, token=token)
    if context.json:
        context.print_json(outcome_json(done))
    else:
        _print(done)
    return done


def _print(outcome: Outcome) -> None:
    click.echo(safe("\n".join(outcome_lines(outcome))))


def _start(made: Fork, directory: str) -> None:
    """Become the agent, with the new session."""
    os.chdir(directory)
    try:
        os.execvp(made.resume[0], made.resume)  # noqa: S606  # the agent takes the place of this command
    except FileNotFoundError:
        raise click.ClickException(f"there is no program {made.resume[0]} on the path") from None
