"""`backtrail copy`: copy everything into another store."""

from __future__ import annotations

from pathlib import Path

import click

from backtrail.cli.context import Command, CommandContext, print_line, read_key, same_store, with_context
from backtrail.engines.server_url import public_url


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
@with_context
def command(context: CommandContext, target: str, key: Path | None, no_key: bool) -> None:
    """Copy everything that the store TARGET lacks into it, on any engine. Creates TARGET if it does not exist.

    What TARGET has already is not copied again: an interrupted copy goes on where it stopped, and a second one copies
    only what is new. Agents may go on working meanwhile.
    """
    from backtrail.cli.formatting import size
    from backtrail.cli.output import progress
    from backtrail.model import counted

    if key is not None and no_key:
        raise click.UsageError("--key and --no-key exclude each other.")
    if same_store(context.target, target):
        raise click.UsageError(f"{public_url(target)} is the store itself: name another one.")
    keys = [] if no_key else context.keys if key is None else [read_key(key)]
    with (
        context.store() as store,
        context.store(target=target, create=True, keys=keys) as other,
        progress("copying") as step,
    ):
        copied = store.copy_to(other, step)
    if context.json:
        context.print_json(
            {"threads": copied.threads, "rows": copied.rows, "blobs": copied.blobs, "bytes": copied.bytes}
        )
    else:
        parts = [counted(copied.rows, "step"), counted(copied.blobs, "blob"), size(copied.bytes)]
        print_line(f"copied {counted(copied.threads, 'thread')}: {', '.join(parts)}")
