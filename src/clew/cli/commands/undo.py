"""`clew undo`: take back the last move of a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clew.cli.frame import Command, Frame, pass_frame, say, thread_argument

if TYPE_CHECKING:
    from clew import Thread


@click.command(cls=Command, epilog="\b\nExample:\n  clew undo support-42")
@thread_argument
@click.option("--files", is_flag=True, help="Take back the restore of the directory as well.")
@pass_frame
def command(frame: Frame, thread: str, files: bool) -> None:
    """Take back the last move of THREAD's head: a rewind, or a save. Nothing is deleted."""
    from clew.present.records import checkpoint_json

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        if files:
            handle.workspace().undo()
        head = handle.undo()
    if frame.json:
        frame.answer({"thread": thread, "head": checkpoint_json(head)})
    else:
        say(f"{thread} stands at step {head.step} now")
