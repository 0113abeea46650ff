"""`backtrail redo`: do again what undo took back, of a thread's head, or of a coding agent."""

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
    epilog="\b\nExamples:\n  backtrail redo support-42\n"
    "  backtrail redo      what the last undo of a coding agent here took back",
)
@optional_thread_argument
@click.option("--files", is_flag=True, help="Restore the directory to the snapshot saved with that checkpoint as well.")
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
    """Do again what the last `backtrail undo` took back. As often as there were undos, until a new save or rewind.

    Without THREAD: what the last undo of a coding agent in this directory took back, files and conversation; until the
    next rewind or revert.
    """
    from backtrail.cli.going_back import Choice, redo_session
    from backtrail.cli.head_moves import print_head_move
    from backtrail.render.head_moves import redo

    with context.named(thread) as named:
        if named.session is not None:
            redo_session(context, named, Choice(keep_untracked=keep_untracked, dry_run=dry_run, yes=yes))
            return
        if dry_run:
            raise click.UsageError("--dry-run is for sessions of coding agents.")
        head, changes = redo(named.thread, files=files, root=root, keep_untracked=keep_untracked)
        print_head_move(context, named.thread.id, head, changes)
