"""`backtrail redo`: do again what undo took back."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, thread_argument, with_context


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail redo support-42")
@thread_argument
@click.option("--files", is_flag=True, help="Restore the directory to the snapshot saved with that checkpoint as well.")
@with_context
def command(context: CommandContext, thread: str, files: bool) -> None:
    """Do again what the last `backtrail undo` took back. As often as there were undos, until a new save or rewind."""
    from backtrail.render.head_moves import redo
    from backtrail.render.json_records import checkpoint_json

    with context.thread(thread) as handle:
        head = redo(handle, files=files)
    if context.json:
        context.print_json({"thread": thread, "head": checkpoint_json(head)})
    else:
        print_line(f"{thread} stands at step {head.step} now")
