"""`clew copy`: everything into another store."""

from __future__ import annotations

import click

from clew.cli.frame import Command, Frame, pass_frame, say


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  clew copy backup.db\n  clew -s agents.db copy postgresql://db.example/agents",
)
@click.argument("target")
@pass_frame
def command(frame: Frame, target: str) -> None:
    """Bring into the store TARGET all that it lacks, on whatever engine either is.

    What is there already is not copied again: an interrupted copy goes on where it stopped, and a second one brings
    only what is new. Agents may go on working meanwhile.
    """
    from clew.cli.screen import progress, size

    with frame.store() as store, progress("copying") as step:
        copied = store.copy_to(target, step)
    if frame.json:
        frame.answer({"threads": copied.threads, "rows": copied.rows, "blobs": copied.blobs, "bytes": copied.bytes})
    else:
        say(f"copied {copied.threads:,} threads: {copied.rows:,} steps, {copied.blobs:,} blobs, {size(copied.bytes)}")
