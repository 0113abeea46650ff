"""`backtrail tag`: words to find checkpoints by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, place, say, thread_argument

if TYPE_CHECKING:
    from backtrail import Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail tag support-42 green reviewed\n"
    "  backtrail tag support-42 --at 12 --remove green",
)
@thread_argument
@click.argument("tags", nargs=-1, required=True)
@click.option("--at", default="@", show_default=True, help="The checkpoint.")
@click.option("--remove", is_flag=True, help="Take these tags away.")
@pass_frame
def command(frame: CommandContext, thread: str, tags: tuple[str, ...], at: str, remove: bool) -> None:
    """Add TAGS to a checkpoint of THREAD."""
    from backtrail.render.json_records import checkpoint_json

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = place(handle, at)
        kept = [tag for tag in checkpoint.tags if tag not in tags]
        checkpoint = handle.annotate(checkpoint, tags=kept if remove else [*kept, *tags])
    if frame.json:
        frame.answer({"checkpoint": checkpoint_json(checkpoint)})
    else:
        say(f"step {checkpoint.step}: {' '.join('#' + tag for tag in checkpoint.tags) or 'no tags'}")
