"""`backtrail import`: import sessions and runs of other programs."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from backtrail.cli.context import Command, CommandContext, ExitCode, with_context
from backtrail.engines.server_url import public_url
from backtrail.errors import MissingExtra

_DATABASES = ("langgraph-sqlite", "langgraph-postgres")


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail import ~/.picoclaw/sessions\n"
    "  backtrail import talk.jsonl other.json --format openai\n"
    "  backtrail import langgraph-sqlite checkpoints.db\n  backtrail import langgraph-postgres postgresql://localhost/agents",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--format", help="Read every file as this format, instead of detecting it.")
@with_context
def command(context: CommandContext, paths: tuple[str, ...], format: str | None) -> None:
    """Import files and directories. Nothing is imported twice, and nothing in the store is overwritten.

    `langgraph-sqlite FILE` and `langgraph-postgres URL` import the checkpoint database of LangGraph's own saver; it is
    only read, and nothing in it is run. Creates the store if it does not exist. Exits with 1 if something could not be
    read.
    """
    from backtrail.cli.import_report import print_report
    from backtrail.cli.output import progress

    if paths[0] in _DATABASES:
        return _import_database(context, paths[0], paths[1:])
    for path in paths:
        if not Path(path).exists():
            raise click.BadParameter(f"Path {public_url(path)!r} does not exist.", param_hint="'PATHS...'")
    with context.store(create=True) as store, progress("importing") as step:
        report = store.import_(list(paths), format, step)
    print_report(context, report)
    return None


def _import_database(context: CommandContext, kind: str, addresses: tuple[str, ...]) -> None:
    """Import the checkpoints of another checkpointer's database."""
    from backtrail.cli.formatting import safe
    from backtrail.cli.output import progress

    if len(addresses) != 1:
        raise click.UsageError(f"{kind} takes one database: a file or a URL")
    try:  # the adapter can only be imported where its framework is installed
        adapter = importlib.import_module("backtrail.adapters.langgraph.migrate")
    except ImportError as error:
        raise MissingExtra(f"importing from {kind}", "langgraph") from error
    with context.store(create=True) as store, progress("importing") as step:
        migration = adapter.migrate_database(kind, addresses[0], store, step)
    if context.json:
        import msgspec

        context.print_json(msgspec.to_builtins(migration))
    else:
        click.echo(safe(str(migration)))
    if migration.skipped:
        raise click.exceptions.Exit(ExitCode.FAILED)
