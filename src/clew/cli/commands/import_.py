"""`clew import`: sessions and runs that other programs kept."""

from __future__ import annotations

import click

from clew.cli.frame import FAILED, Command, Frame, pass_frame


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  clew import ~/.picoclaw/sessions\n  clew import talk.jsonl other.json --format openai",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--format", "form", help="Read every file as this format, instead of looking what it is.")
@pass_frame
def command(frame: Frame, paths: tuple[str, ...], form: str | None) -> None:
    """Import files and directories: what is in the store already stays as it is, and nothing is imported twice.

    Makes the store if it is not there. Leaves with 1 if a file could not be read.
    """
    from clew.cli.screen import progress, safe

    with frame.store(create=True) as store, progress("importing") as step:
        report = store.import_(list(paths), form, step)
    if frame.json:
        import msgspec

        frame.answer(msgspec.to_builtins(report))
    else:
        click.echo(safe(str(report)))
    if report.failed:
        raise click.exceptions.Exit(FAILED)
