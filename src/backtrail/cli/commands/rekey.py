"""`backtrail rekey`: another key for an encrypted store."""

from __future__ import annotations

from pathlib import Path

import click

from backtrail.cli.context import Command, CommandContext, confirm, pass_frame, read_key, say, yes_option


@click.command(
    cls=Command, epilog="\b\nExample:\n  openssl rand -hex 32 > new.key && BACKTRAIL_KEY=… backtrail rekey new.key"
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@yes_option
@pass_frame
def command(frame: CommandContext, file: Path, yes: bool) -> None:
    """Lock an encrypted store with the key in FILE (32 bytes in hex or base64). BACKTRAIL_KEY holds the key it has
    now."""
    from backtrail.model import counted

    key = read_key(file)
    with frame.store() as store:
        confirm(frame, "replace the key of the store", yes=yes)
        count = store.rekey(key)
    if frame.json:
        frame.answer({"data_keys": count})
    else:
        say(f"the store opens with the new key now; it holds {counted(count, 'data key')}")
