"""`backtrail tail`: the last messages of a thread, and new ones as they come."""

from __future__ import annotations

import contextlib

import click

from backtrail.cli.context import Command, CommandContext, thread_argument, with_context


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail tail support-42\n  backtrail tail -f support-42\n"
    "  backtrail tail -f support-42 -n 0 --json | jq .role",
)
@thread_argument
@click.option(
    "-n",
    "--messages",
    metavar="N",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Print the last N messages.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on, and print new messages as they are saved, until Ctrl-C.")
@click.option("--full", is_flag=True, help="Tool calls unfolded, values not shortened.")
@with_context
def command(context: CommandContext, thread: str, messages: int, follow: bool, full: bool) -> None:
    """Print the last messages of THREAD; with -f, also those that come.

    With --json, each message is one line of JSON, as it is stored.
    """
    from backtrail.cli.following import MessageFollower

    with context.thread(thread) as handle, contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to stop it
        head = handle.get("@", salvage=True)
        printer = MessageFollower(handle, full=full, as_json=context.json)
        printer.start(head, messages)
        if follow:
            printer.follow(head)
