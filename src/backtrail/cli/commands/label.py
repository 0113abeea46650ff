"""`backtrail label`: name a checkpoint."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, thread_argument, with_context


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail label support-42 before-deploy\n  backtrail label support-42 good --at @~2\n"
    "  backtrail label support-42 --remove",
)
@thread_argument
@click.argument("name", required=False)
@click.option("--at", default="@", show_default=True, help="The checkpoint.")
@click.option("--remove", is_flag=True, help="Remove the label.")
@with_context
def command(context: CommandContext, thread: str, name: str | None, at: str, remove: bool) -> None:
    """Give a checkpoint of THREAD the label NAME. Every command takes a label as the checkpoint's name."""
    from backtrail.history.resolve import never_means_a_label
    from backtrail.render.json_records import checkpoint_json

    if (name is None) != remove:
        raise click.UsageError("give a NAME, or --remove.")
    if name is not None and never_means_a_label(name):
        raise click.UsageError(f"{name!r} already means a checkpoint (@, @~2, a step): choose another label.")
    with context.thread(thread) as handle:
        checkpoint = handle.annotate(at, label=name)
    if context.json:
        context.print_json({"checkpoint": checkpoint_json(checkpoint)})
    else:
        print_line(f"step {checkpoint.step} is called {name}" if name else f"step {checkpoint.step} has no label now")
