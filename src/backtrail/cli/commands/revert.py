"""`backtrail revert`: take back what one turn of a coding agent did to the files."""

from __future__ import annotations

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    dry_run_option,
    optional_thread_argument,
    with_context,
    yes_option,
)


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail revert --turn 3\n  backtrail revert 3 --dry-run")
@optional_thread_argument
@at_argument(default=None)
@click.option("--turn", metavar="N", type=click.IntRange(1), help="The turn, instead of AT.")
@dry_run_option
@yes_option
@with_context
def command(
    context: CommandContext, thread: str | None, at: str | None, turn: int | None, dry_run: bool, yes: bool
) -> None:
    """Take back what turn AT did to the files, and keep what was done since.

    THREAD is a session of a coding agent (default: the newest one in this directory). Text files are merged line by
    line. A file that was changed again in the same lines, or is not text, stays as it is, and is listed as kept.
    `backtrail undo` takes the revert back.
    """
    from backtrail.cli.going_back import Choice, revert_session

    with context.named(thread, at) as named:
        if named.session is None:
            raise click.UsageError(f"{named.thread.id} is not a session of a coding agent: only those have turns.")
        revert_session(context, named, turn, Choice(dry_run=dry_run, yes=yes))
