"""`backtrail runs`: runs that have not finished."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.cli.thread_listing import empty_message, page_limit_option, prefix_argument, print_page


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail runs\n  backtrail runs nightly- --json")
@prefix_argument
@page_limit_option
@with_context
def command(context: CommandContext, prefix: str, limit: int) -> None:
    """List runs whose name starts with PREFIX that have not finished, newest first: these can be resumed."""
    with context.store() as store:
        found = store.runs(prefix, limit=limit + 1)
    print_page(
        context,
        "run",
        found,
        limit,
        columns={
            "task": lambda info: info.task,
            "iteration": lambda info: info.iteration,
            "tokens in/out": lambda info: f"{info.input_tokens:,} / {info.output_tokens:,}",
        },
        kept=("task", "iteration", "tokens in/out"),
        fields=("task", "iteration", "input_tokens", "output_tokens"),
        empty=empty_message("run", prefix) if prefix else "no run is waiting to be resumed",
    )
