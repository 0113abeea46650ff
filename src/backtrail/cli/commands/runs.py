"""`backtrail runs`: runs by their status."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.cli.thread_listing import empty_message, page_limit_option, prefix_argument, print_page
from backtrail.history.run_status import STATUSES


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail runs\n  backtrail runs --status failed\n  backtrail runs nightly- --all --json",
)
@prefix_argument
@click.option("--all", "everything", is_flag=True, help="Finished runs too.")
@click.option("--status", type=click.Choice(STATUSES), multiple=True, help="Only runs of this status; may be repeated.")
@page_limit_option
@with_context
def command(context: CommandContext, prefix: str, everything: bool, status: tuple[str, ...], limit: int) -> None:
    """List runs whose name starts with PREFIX that have not finished, newest first."""
    wanted = "all" if everything and not status else status or None
    with context.store() as store:
        found = store.runs(prefix, limit=limit + 1, status=wanted)  # type: ignore[arg-type]  # click checked them
    print_page(
        context,
        "run",
        found,
        limit,
        columns={
            "status": lambda info: info.status,
            "task": lambda info: info.task,
            "steps": lambda info: info.steps,
            "iteration": lambda info: info.iteration,
            "tokens in/out": lambda info: f"{info.input_tokens:,} / {info.output_tokens:,}",
        },
        kept=("status", "task", "iteration", "tokens in/out"),
        fields=("status", "task", "steps", "iteration", "input_tokens", "output_tokens"),
        empty=empty_message("run", prefix) if prefix else f"no run is {' or '.join(status) or 'waiting to be resumed'}",
    )
