"""`backtrail sync`: make two stores equal."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, same_store, with_context
from backtrail.engines.server_url import public_url


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail sync agents.db replica.db\n  backtrail sync redis://cache.example postgresql://db.example/agents",
)
@click.argument("one")
@click.argument("other")
@with_context
def command(context: CommandContext, one: str, other: str) -> None:
    """Make the stores ONE and OTHER equal by exchanging only what is missing. Creates OTHER if it does not exist.

    The store that has more of a branch wins. If both went on independently, the head of ONE wins and the other becomes
    a thread name#diverged-1. An interrupted sync goes on where it stopped, and agents may go on working meanwhile. Both
    stores must have the same key, or none.
    """
    from backtrail.cli.formatting import size
    from backtrail.cli.output import progress
    from backtrail.model import counted

    if same_store(one, other):
        raise click.UsageError(f"{public_url(one)} and {public_url(other)} are one store: name two.")
    with (
        context.store(target=one) as first,
        context.store(target=other, create=True) as second,
        progress("syncing") as step,
    ):
        report = first.sync_to(second, lambda records, _: step(records, None))
    if context.json:
        context.print_json({"records": report.records, "bytes": report.bytes, "diverged": dict(report.diverged)})
        return
    print_line(f"exchanged {counted(report.records, 'record')}, {size(report.bytes)}; both stores are equal")
    for thread, name in report.diverged:
        print_line(f"{thread} was written to in both: what the other store had is kept as {name}")
