"""`backtrail undo`: take back the last move of a thread's head."""

from __future__ import annotations

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    keep_untracked_option,
    root_option,
    thread_argument,
    with_context,
)


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail undo support-42")
@thread_argument
@click.option("--files", is_flag=True, help="Take back the restore of the directory as well.")
@root_option
@keep_untracked_option
@with_context
def command(context: CommandContext, thread: str, files: bool, root: str | None, keep_untracked: bool) -> None:
    """Take back the last move of THREAD's head: a rewind, or a save. Nothing is deleted."""
    from backtrail.cli.head_moves import print_head_move
    from backtrail.render.head_moves import undo

    with context.thread(thread) as handle:
        head, changes = undo(handle, files=files, root=root, keep_untracked=keep_untracked)
    print_head_move(context, thread, head, changes)
