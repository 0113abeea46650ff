"""`backtrail export`: write a thread to a file for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    print_line,
    thread_argument,
    with_context,
)

if TYPE_CHECKING:
    from backtrail import Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail export support-42 > talk.jsonl\n  backtrail export support-42 -o talk.md\n"
    "  backtrail export support-42 @~2 --format json",
)
@thread_argument
@at_argument()
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "markdown", "json"]),
    help="One message per line, for `backtrail import` (the default); a readable transcript; the whole state.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
@with_context
def command(context: CommandContext, thread: str, at: str, format: str | None, output: Path | None) -> None:
    """Write THREAD at AT (default: the head). Without --format, the suffix of the output file selects the
    format."""
    from backtrail.export import write_file
    from backtrail.render.checkpoint_export import export_checkpoint, format_of

    with context.store_of(thread) as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = handle.get(at)
        format = format or format_of(output)
        text = export_checkpoint(store, handle, checkpoint, format)
    if output is not None:
        write_file(text, output)
        if context.json:
            context.print_json({"output": str(output), "bytes": len(text.encode()), "checkpoint": checkpoint.id})
        else:
            print_line(f"wrote {output}")
    elif context.json:
        context.print_json({"format": format, "checkpoint": checkpoint.id, "text": text})
    else:
        # A pipe or a file gets every byte; a terminal gets nothing that steers it.
        click.echo(_for_terminal(text, format) if sys.stdout.isatty() else text, nl=False)


def _for_terminal(text: str, format: str) -> str:
    from backtrail.cli.formatting import safe, safe_json

    return safe(text) if format == "markdown" else safe_json(text)
