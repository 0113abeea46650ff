"""`backtrail undo`: take back the last move of a thread's head."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, thread_argument, with_context


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail undo support-42")
@thread_argument
@click.option("--files", is_flag=True, help="Take back the restore of the directory as well.")
@with_context
def command(context: CommandContext, thread: str, files: bool) -> None:
    """Take back the last move of THREAD's head: a rewind, or a save. Nothing is deleted."""
    from backtrail.render.head_moves import undo
    from backtrail.render.json_records import checkpoint_json

    with context.thread(thread) as handle:
        head = undo(handle, files=files)
    if context.json:
        context.print_json({"thread": thread, "head": checkpoint_json(head)})
    else:
        print_line(f"{thread} stands at step {head.step} now")
