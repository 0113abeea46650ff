"""`backtrail stats`: what the store holds and occupies."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, rooms

_SIZES = ("total", "live", "garbage")


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail stats\n  backtrail stats -s redis://localhost --json")
@click.option("--quick", is_flag=True, help="Do not work out how many bytes are live, and how many garbage.")
@pass_frame
def command(frame: CommandContext, quick: bool) -> None:
    """Say what the store holds and occupies, and how much of it is live or garbage."""
    with frame.store() as store:
        found = {**store.stats(survey=not quick), "namespaces": rooms(store)}
    if frame.json:
        frame.answer(found)
        return
    from rich.table import Table

    from backtrail.cli.output import console, line, size

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in found.items():
        if name == "bytes" or (name in ("failed_writes", "namespaces") and not value):
            continue  # `total` says it in words; and what there is none of need not be told
        shown = f"{value:,}" if isinstance(value, int) else ", ".join(value) if name == "namespaces" else str(value)
        table.add_row(name.replace("_", " "), size(value) if name in _SIZES else line(shown))
    console().print(table)
