"""`backtrail compact`: return freed space to the disk."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, with_context


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail compact -s agents.db")
@with_context
def command(context: CommandContext) -> None:
    """Free everything that no checkpoint needs, and return the space to the disk or the server. No checkpoint is
    deleted."""
    from backtrail.cli.formatting import size
    from backtrail.cli.output import progress
    from backtrail.model import counted

    with context.store() as store:
        before = store.stats(survey=False)["bytes"]
        with progress("compacting") as step:
            report = store.compact(step)
        after = store.stats(survey=False)["bytes"]
    if context.json:
        import msgspec

        context.print_json({"report": msgspec.to_builtins(report), "bytes_before": before, "bytes_after": after})
    else:
        print_line(
            f"{size(before)} → {size(after)}: {counted(report.rows, 'row')} and {counted(report.blobs, 'blob')} freed"
        )
