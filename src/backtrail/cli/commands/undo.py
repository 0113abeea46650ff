"""`backtrail undo`: take back the last move of a thread's head, or the last time that a coding agent went back."""

from __future__ import annotations

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    dry_run_option,
    keep_untracked_option,
    optional_thread_argument,
    root_option,
    with_context,
    yes_option,
)


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail undo support-42\n"
    "  backtrail undo      the last rewind or revert of a coding agent here",
)
@optional_thread_argument
@click.option("--files", is_flag=True, help="Take back the restore of the directory as well.")
@root_option
@keep_untracked_option
@dry_run_option
@yes_option
@with_context
def command(
    context: CommandContext,
    thread: str | None,
    files: bool,
    root: str | None,
    keep_untracked: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Take back the last move of THREAD's head: a rewind, or a save. Nothing is deleted.

    Without THREAD: take back the newest `backtrail rewind` or `backtrail revert` of a coding agent in this directory,
    files and conversation.
    """
    from backtrail.cli.going_back import Choice, undo_session
    from backtrail.cli.head_moves import print_head_move
    from backtrail.render.head_moves import undo

    with context.named(thread) as named:
        if named.session is not None:
            undo_session(context, named, Choice(keep_untracked=keep_untracked, dry_run=dry_run, yes=yes))
            return
        if dry_run:
            raise click.UsageError("--dry-run is for sessions of coding agents.")
        head, changes = undo(named.thread, files=files, root=root, keep_untracked=keep_untracked)
        print_head_move(context, named.thread.id, head, changes)
