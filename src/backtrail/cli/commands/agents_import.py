"""`backtrail agents import`: bring the sessions that coding agents have left on disk into the store."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, with_context


@click.command(
    "import",
    cls=Command,
    epilog="\b\nExamples:\n  backtrail agents import\n  backtrail agents import claude codex\n"
    "  backtrail agents import claude --dir /backup/home/.claude/projects",
)
@click.argument("agents", nargs=-1)
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False),
    help="Look there instead of in the agent's own directory; name one agent with it.",
)
@with_context
def command(context: CommandContext, agents: tuple[str, ...], directory: str | None) -> None:
    """Import old sessions of AGENTS (default: all of claude, codex, gemini and opencode).

    Each becomes a thread with its own times and a checkpoint for each turn, as if it had been captured, but without
    files. The agents' files are only read. Nothing is imported twice: a session that went on since is continued. Exits
    with 1 if something could not be read.
    """
    from pathlib import Path

    from backtrail.agents.events import AGENTS, check_agent
    from backtrail.agents.import_sessions import import_sessions
    from backtrail.cli.import_report import print_report
    from backtrail.cli.output import progress

    chosen = [check_agent(name) for name in agents] or list(AGENTS)
    if directory is not None and len(chosen) != 1:
        raise click.UsageError("--dir is the directory of one agent: name it.")
    with context.agents_store(create=True) as store, progress("importing") as step:
        report = import_sessions(store, chosen, None if directory is None else Path(directory), step)
    print_report(context, report)
