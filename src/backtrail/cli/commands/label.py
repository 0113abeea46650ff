"""`backtrail label`: a name for a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, place, say, thread_argument

if TYPE_CHECKING:
    from backtrail import Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail label support-42 before-deploy\n  backtrail label support-42 good --at @~2\n"
    "  backtrail label support-42 --remove",
)
@thread_argument
@click.argument("name", required=False)
@click.option("--at", default="@", show_default=True, help="The checkpoint.")
@click.option("--remove", is_flag=True, help="Take the label away.")
@pass_frame
def command(frame: CommandContext, thread: str, name: str | None, at: str, remove: bool) -> None:
    """Give a checkpoint of THREAD the label NAME. A label works as the checkpoint's name in every command."""
    from backtrail.render.json_records import checkpoint_json
    from backtrail.render.refs import means_a_place

    if (name is None) != remove:
        raise click.UsageError("give a NAME, or --remove.")
    if name is not None and means_a_place(name):
        raise click.UsageError(f"{name!r} already means a checkpoint (@, @~2, a step): choose another label.")
    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = handle.annotate(place(handle, at), label=name)
    if frame.json:
        frame.answer({"checkpoint": checkpoint_json(checkpoint)})
    else:
        say(f"step {checkpoint.step} is called {name}" if name else f"step {checkpoint.step} has no label now")
