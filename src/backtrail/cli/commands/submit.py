"""`backtrail submit`: begin a run for a worker."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, with_context
from backtrail.cli.values import value_of


@click.command(
    cls=Command,
    epilog='\b\nExamples:\n  backtrail submit summarise \'{"url": "https://example.org"}\'\n'
    "  backtrail submit nightly --id nightly-7 --in 3600",
)
@click.argument("task")
@click.argument("input", default="null")
@click.option(
    "--id", metavar="RUN", help="Name of the run (default: a generated one). A run of that name is not begun twice."
)
@click.option(
    "--in", "seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin it after so many seconds."
)
@with_context
def command(context: CommandContext, task: str, input: str, id: str | None, seconds: float | None) -> None:
    """Begin a run of TASK with INPUT, which is JSON, or text if it is none. `backtrail work` does it."""
    with context.store(create=True) as store:
        run = store.submit(task, value_of(input), id, seconds)
    if context.json:
        context.print_json({"run": run.id, "status": run.status})
    else:
        print_line(f"{run.id} is {run.status}")
