"""`backtrail import`: sessions and runs that other programs kept."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from backtrail.cli.context import FAILED, Command, CommandContext, pass_frame
from backtrail.errors import MissingExtra

DATABASES = ("langgraph-sqlite", "langgraph-postgres")


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail import ~/.picoclaw/sessions\n"
    "  backtrail import talk.jsonl other.json --format openai\n"
    "  backtrail import langgraph-sqlite checkpoints.db\n  backtrail import langgraph-postgres postgresql://localhost/agents",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--format", "form", help="Read every file as this format, instead of looking what it is.")
@pass_frame
def command(frame: CommandContext, paths: tuple[str, ...], form: str | None) -> None:
    """Import files and directories: what is in the store already stays as it is, and nothing is imported twice.

    After `langgraph-sqlite` or `langgraph-postgres`, the checkpoint database of LangGraph's own saver: a file, a URL.
    Makes the store if it is not there. Leaves with 1 if a file could not be read.
    """
    from backtrail.cli.output import progress, safe

    if paths[0] in DATABASES:
        return _bring(frame, paths[0], paths[1:])
    for path in paths:
        if not Path(path).exists():
            raise click.BadParameter(f"Path {path!r} does not exist.", param_hint="'PATHS...'")
    with frame.store(create=True) as store, progress("importing") as step:
        report = store.import_(list(paths), form, step)
    if frame.json:
        import msgspec

        frame.answer(msgspec.to_builtins(report))
    else:
        click.echo(safe(str(report)))
    if report.failed:
        raise click.exceptions.Exit(FAILED)
    return None


def _bring(frame: CommandContext, kind: str, addresses: tuple[str, ...]) -> None:
    """Checkpoints from another checkpointer's database."""
    from backtrail.cli.output import progress
    from backtrail.model import counted

    if len(addresses) != 1:
        raise click.UsageError(f"{kind} takes one database: a file or a URL")
    try:  # an adapter is a guest of the command line: it is there if its framework is
        adapter = importlib.import_module("backtrail.adapters.langgraph.migrate")
    except ImportError as error:
        raise MissingExtra(f"importing from {kind}", "langgraph") from error
    with frame.store(create=True) as store, progress("importing") as step:
        count = adapter.migrate_database(kind, addresses[0], store, step)
    if frame.json:
        frame.answer({"checkpoints": count})
    else:
        click.echo(f"{counted(count, 'checkpoint')} imported")
