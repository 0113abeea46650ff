"""`backtrail fork`: a new thread from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, at_argument, pass_frame, place, say, thread_argument

if TYPE_CHECKING:
    from backtrail import Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail fork support-42\n  backtrail fork support-42 @~3 --to support-42-again",
)
@thread_argument
@at_argument()
@click.option("--to", metavar="NAME", help="The new thread's name; without it one is made.")
@pass_frame
def command(frame: CommandContext, thread: str, at: str, to: str | None) -> None:
    """Start a new thread that stands where THREAD does at AT. It shares all that was saved so far."""
    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = place(handle, at)
        made = handle.fork(to, at=checkpoint)
    if frame.json:
        frame.answer({"thread": made.id, "at": checkpoint.id, "step": checkpoint.step})
    else:
        say(f"forked {thread} at step {checkpoint.step} to {made.id}")
