"""`clew export`: a thread as a file that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.frame import Command, Frame, at_argument, pass_frame, place, thread_argument

if TYPE_CHECKING:
    from clew import Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  clew export support-42 > state.json\n"
    "  clew export support-42 --format markdown -o talk.md\n  clew export support-42 --format messages",
)
@thread_argument
@at_argument()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "messages", "markdown"]),
    default="json",
    show_default=True,
    help="The whole state; the messages, one JSON line each; or the conversation to read.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file instead of stdout.")
@pass_frame
def command(frame: Frame, thread: str, at: str, form: str, output: Path | None) -> None:
    """Write the state of THREAD at AT (default: the head)."""
    from clew.present import export

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        checkpoint = place(handle, at)
        text = export.write(handle, checkpoint, form)
    if output is not None:
        output.write_text(text)
        if frame.json:
            frame.answer({"output": str(output), "bytes": len(text.encode()), "checkpoint": checkpoint.id})
        else:
            click.echo(f"wrote {output}", err=True)
    elif frame.json:
        frame.answer({"format": form, "checkpoint": checkpoint.id, "text": text})
    else:
        click.echo(text, nl=False)
