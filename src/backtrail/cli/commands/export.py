"""`backtrail export`: a thread as a file that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, at_argument, pass_frame, place, say, thread_argument

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
    "form",
    type=click.Choice(["jsonl", "markdown", "json"]),
    help="One message per line, for `backtrail import` (the default); the conversation to read; the whole state.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file instead of stdout.")
@pass_frame
def command(frame: CommandContext, thread: str, at: str, form: str | None, output: Path | None) -> None:
    """Write THREAD at AT (default: the head). The ending of the file tells the format where none is given."""
    from backtrail.export import put
    from backtrail.render import checkpoint_text

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = place(handle, at)
        form = form or checkpoint_text.form_of(output)
        text = checkpoint_text.write(store, handle, checkpoint, form)
    if output is not None:
        put(text, output)
        if frame.json:
            frame.answer({"output": str(output), "bytes": len(text.encode()), "checkpoint": checkpoint.id})
        else:
            say(f"wrote {output}")
    elif frame.json:
        frame.answer({"format": form, "checkpoint": checkpoint.id, "text": text})
    else:
        click.echo(text, nl=False)
