"""`backtrail sync`: two stores made equal."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, same_place, say


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail sync agents.db replica.db\n  backtrail sync redis://cache.example postgresql://db.example/agents",
)
@click.argument("one")
@click.argument("other")
@pass_frame
def command(frame: CommandContext, one: str, other: str) -> None:
    """Make the stores ONE and OTHER equal by exchanging only what is missing. Makes OTHER if it is not there.

    Whichever is further on a branch is right about it; where both went on by themselves, the head of ONE counts and the
    other one is kept beside it, labelled. An interrupted sync goes on where it stopped, and agents may go on working
    meanwhile. Both stores must have the same key, or none.
    """
    from backtrail.cli.output import progress, size
    from backtrail.model import counted

    if same_place(one, other):
        raise click.UsageError(f"{one} and {other} are one store: name two.")
    with (
        frame.store(target=one) as here,
        frame.store(target=other, create=True) as there,
        progress("syncing") as step,
    ):
        report = here.sync_to(there, lambda records, _: step(records, None))
    kept = [found.head.thread for found in report.diverged if not found.known]
    if frame.json:
        frame.answer({"records": report.records, "bytes": report.bytes, "diverged": kept})
        return
    say(f"exchanged {counted(report.records, 'record')}, {size(report.bytes)}; both stores are equal")
    for thread in kept:
        say(f"{thread} was written to in both: the other store's head is kept beside it")
