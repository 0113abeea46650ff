"""`backtrail copy`: everything into another store."""

from __future__ import annotations

from pathlib import Path

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, read_key, same_place, say


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail copy backup.db\n  backtrail -s agents.db copy postgresql://db.example/agents\n"
    "  backtrail copy sealed.db --key new.key",
)
@click.argument("target")
@click.option(
    "--key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The key of TARGET is in this file; without it, TARGET has the key in BACKTRAIL_KEY.",
)
@click.option("--no-key", is_flag=True, help="TARGET is not encrypted, although this store is.")
@pass_frame
def command(frame: CommandContext, target: str, key: Path | None, no_key: bool) -> None:
    """Bring into the store TARGET all that it lacks, on whatever engine either is. Makes TARGET if it is not there.

    What is there already is not copied again: an interrupted copy goes on where it stopped, and a second one brings
    only what is new. Agents may go on working meanwhile.
    """
    from backtrail.cli.output import progress, size
    from backtrail.model import counted

    if key is not None and no_key:
        raise click.UsageError("--key and --no-key exclude each other.")
    if same_place(frame.target, target):
        raise click.UsageError(f"{target} is the store itself: name another one.")
    keys = [] if no_key else frame.keys if key is None else [read_key(key)]
    with (
        frame.store() as store,
        frame.store(target=target, create=True, keys=keys) as other,
        progress("copying") as step,
    ):
        copied = store.copy_to(other, step)
    if frame.json:
        frame.answer({"threads": copied.threads, "rows": copied.rows, "blobs": copied.blobs, "bytes": copied.bytes})
    else:
        brought = [counted(copied.rows, "step"), counted(copied.blobs, "blob"), size(copied.bytes)]
        say(f"copied {counted(copied.threads, 'thread')}: {', '.join(brought)}")
