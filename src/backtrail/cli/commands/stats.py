"""`backtrail stats`: print what the store holds and how large it is."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, namespaces_of, with_context

_SIZES = ("total", "live", "garbage")


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail stats\n  backtrail stats -s redis://localhost --json")
@click.option("--quick", is_flag=True, help="Skip the scan for live and garbage bytes.")
@with_context
def command(context: CommandContext, quick: bool) -> None:
    """Print what the store holds, how large it is, and how much of it is live or garbage."""
    from backtrail.cli.output import progress

    with context.store() as store, progress("surveying") as step:
        found = {**store.stats(survey=not quick, progress=step), "namespaces": namespaces_of(store)}
    if context.json:
        context.print_json(found)
        return
    from rich.table import Table

    from backtrail.cli.formatting import one_line, size
    from backtrail.cli.output import console

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    sampled = found.get("surveyed", 0) < found.get("lineages", 0)
    for name, value in found.items():
        if name in ("surveyed", "lineages") and not sampled:
            continue  # nothing is estimated
        if name == "bytes" or (name in ("failed_writes", "namespaces") and not value):
            continue  # `total` shows the bytes; a count of zero is left out
        shown = f"{value:,}" if isinstance(value, int) else ", ".join(value) if name == "namespaces" else str(value)
        estimated = " (estimated)" if sampled and name in ("live", "garbage") else ""
        table.add_row(name.replace("_", " ") + estimated, size(value) if name in _SIZES else one_line(shown))
    console().print(table)
