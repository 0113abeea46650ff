"""`backtrail rekey`: replace the key of an encrypted store."""

from __future__ import annotations

from pathlib import Path

import click

from backtrail.cli.context import Command, CommandContext, confirm, print_line, read_key, with_context, yes_option


@click.command(
    cls=Command, epilog="\b\nExample:\n  openssl rand -hex 32 > new.key && BACKTRAIL_KEY=… backtrail rekey new.key"
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@yes_option
@with_context
def command(context: CommandContext, file: Path, yes: bool) -> None:
    """Replace the key of an encrypted store by the one in FILE (32 bytes in hex or base64). BACKTRAIL_KEY holds the
    present key."""
    from backtrail.model import counted

    key = read_key(file)
    with context.store() as store:
        confirm(context, "replace the key of the store", yes=yes)
        count = store.rekey(key)
    if context.json:
        context.print_json({"data_keys": count})
    else:
        print_line(f"the store opens with the new key now; it holds {counted(count, 'data key')}")
