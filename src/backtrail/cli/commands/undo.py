"""`backtrail undo`: take back the last move of a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, say, thread_argument

if TYPE_CHECKING:
    pass


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail undo support-42")
@thread_argument
@click.option("--files", is_flag=True, help="Take back the restore of the directory as well.")
@pass_frame
def command(frame: CommandContext, thread: str, files: bool) -> None:
    """Take back the last move of THREAD's head: a rewind, or a save. Nothing is deleted."""
    from backtrail.render.json_records import checkpoint_json
    from backtrail.render.undo import take_back

    with frame.store() as store:
        head = take_back(store.thread(thread), files=files)
    if frame.json:
        frame.answer({"thread": thread, "head": checkpoint_json(head)})
    else:
        say(f"{thread} stands at step {head.step} now")
