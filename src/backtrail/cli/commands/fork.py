"""`backtrail fork`: start a new thread at a checkpoint."""

from __future__ import annotations

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    print_line,
    thread_argument,
    with_context,
)


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail fork support-42\n  backtrail fork support-42 @~3 --to support-42-again",
)
@thread_argument
@at_argument()
@click.option("--to", metavar="NAME", help="Name of the new thread (default: a generated one).")
@with_context
def command(context: CommandContext, thread: str, at: str, to: str | None) -> None:
    """Start a new thread at checkpoint AT of THREAD (default: the head). It shares everything that was saved up to
    there."""
    with context.thread(thread) as handle:
        checkpoint = handle.get(at)
        made = handle.fork(to, at=checkpoint)
    if context.json:
        context.print_json({"thread": made.id, "at": checkpoint.id, "step": checkpoint.step})
    else:
        print_line(f"forked {thread} at step {checkpoint.step} to {made.id}")
