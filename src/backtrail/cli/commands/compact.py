"""`backtrail compact`: give freed space back."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, say


@click.command(cls=Command, epilog="\b\nExample:\n  backtrail compact -s agents.db")
@pass_frame
def command(frame: CommandContext) -> None:
    """Free everything that nobody needs, and give the space back to the disk or the server. No checkpoint goes."""
    from backtrail.cli.output import progress, size
    from backtrail.model import counted

    with frame.store() as store:
        before = store.stats(survey=False)["bytes"]
        with progress("compacting") as step:
            report = store.compact(step)
        after = store.stats(survey=False)["bytes"]
    if frame.json:
        import msgspec

        frame.answer({"report": msgspec.to_builtins(report), "bytes_before": before, "bytes_after": after})
    else:
        say(f"{size(before)} → {size(after)}: {counted(report.rows, 'row')} and {counted(report.blobs, 'blob')} freed")
