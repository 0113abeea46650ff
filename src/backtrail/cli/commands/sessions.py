"""`backtrail sessions`: conversations, newest first."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.cli.thread_listing import empty_message, page_limit_option, prefix_argument, print_page


@click.command(
    cls=Command, epilog="\b\nExamples:\n  backtrail sessions\n  backtrail sessions telegram: --limit 20 --json"
)
@prefix_argument
@page_limit_option
@with_context
def command(context: CommandContext, prefix: str, limit: int) -> None:
    """List sessions whose name starts with PREFIX, newest first, with their messages and user turns."""
    with context.store() as store:
        found = store.sessions(prefix, limit=limit + 1)
    print_page(
        context,
        "session",
        found,
        limit,
        columns={"messages": lambda info: f"{info.messages:,}", "turns": lambda info: f"{info.user_turns:,}"},
        fields=("messages", "user_turns"),
        empty=empty_message("session", prefix),
    )
