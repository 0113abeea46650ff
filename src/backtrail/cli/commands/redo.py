"""`backtrail redo`: do again what undo took back."""

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


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail redo support-42")
@thread_argument
@click.option("--files", is_flag=True, help="Restore the directory to the snapshot saved with that checkpoint as well.")
@root_option
@keep_untracked_option
@with_context
def command(context: CommandContext, thread: str, files: bool, root: str | None, keep_untracked: bool) -> None:
    """Do again what the last `backtrail undo` took back. As often as there were undos, until a new save or rewind."""
    from backtrail.cli.head_moves import print_head_move
    from backtrail.render.head_moves import redo

    with context.thread(thread) as handle:
        head, changes = redo(handle, files=files, root=root, keep_untracked=keep_untracked)
    print_head_move(context, thread, head, changes)
