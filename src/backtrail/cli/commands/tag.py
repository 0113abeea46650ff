"""`backtrail tag`: add tags to a checkpoint, or remove them."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, thread_argument, with_context


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail tag support-42 green reviewed\n"
    "  backtrail tag support-42 --at 12 --remove green",
)
@thread_argument
@click.argument("tags", nargs=-1, required=True)
@click.option("--at", default="@", show_default=True, help="The checkpoint.")
@click.option("--remove", is_flag=True, help="Remove these tags.")
@with_context
def command(context: CommandContext, thread: str, tags: tuple[str, ...], at: str, remove: bool) -> None:
    """Add TAGS to a checkpoint of THREAD."""
    from backtrail.render.json_records import checkpoint_json

    with context.thread(thread) as handle:
        checkpoint = handle.get(at)
        kept = [tag for tag in checkpoint.tags if tag not in tags]
        checkpoint = handle.annotate(checkpoint, tags=kept if remove else [*kept, *tags])
    if context.json:
        context.print_json({"checkpoint": checkpoint_json(checkpoint)})
    else:
        print_line(f"step {checkpoint.step}: {' '.join('#' + tag for tag in checkpoint.tags) or 'no tags'}")
