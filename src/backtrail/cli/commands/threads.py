"""`backtrail threads`: the threads of the store, newest first."""

from __future__ import annotations

from typing import get_args

import click

from backtrail.cli.context import Command, CommandContext, namespaces_of, with_context
from backtrail.cli.thread_listing import empty_message, page_limit_option, prefix_argument, print_page
from backtrail.model import Kind


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail threads\n  backtrail threads support- --limit 20\n"
    "  backtrail threads --kind session --json\n  backtrail threads claude/      sessions of a coding agent",
)
@prefix_argument
@page_limit_option
@click.option("--kind", type=click.Choice(get_args(Kind)), help="Only this kind.")
@click.option("--by-name", is_flag=True, help="Sort by name instead of newest first.")
@with_context
def command(context: CommandContext, prefix: str, limit: int, kind: Kind | None, by_name: bool) -> None:
    """List threads whose name starts with PREFIX, newest first."""
    with context.store_of(prefix) as store:
        found = store.threads(prefix, limit=limit + 1, kind=kind, newest_first=not by_name)
        namespaces = [] if found or prefix or kind else namespaces_of(store)
    print_page(
        context,
        "thread",
        found,
        limit,
        columns={"kind": lambda info: info.kind, "saved": lambda info: info.count},
        empty=empty_message("thread", prefix, kind, namespaces),
    )
