"""`backtrail prune`: remove old checkpoints."""

from __future__ import annotations

import datetime as dt
import re

import click

from backtrail.cli.context import Command, CommandContext, confirm, dry_run_option, print_line, with_context, yes_option

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> dt.timedelta:
    """A duration: 90s, 30m, 12h, 7d, 4w."""
    matched = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if matched is None:
        raise click.BadParameter(f"{text!r} is no span: write 90s, 30m, 12h, 7d or 4w")
    return dt.timedelta(**{_UNITS[matched[2]]: int(matched[1])})


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail prune --dry-run\n  backtrail prune --keep-last 100 --dry-run\n"
    "  backtrail prune --max-age 30d --keep-tag release",
)
@click.option("--keep-last", metavar="N", type=click.IntRange(1), help="Keep the newest N checkpoints of each thread.")
@click.option(
    "--max-age", type=parse_duration, metavar="SPAN", help="Delete checkpoints older than this: 12h, 30d, 8w."
)
@click.option("--ttl", type=parse_duration, metavar="SPAN", help="Delete threads that have been idle for this long.")
@click.option("--keep-tag", metavar="TAG", multiple=True, help="Keep checkpoints with this tag.")
@click.option("--drop-labelled", is_flag=True, help="Delete labelled checkpoints as well.")
@click.option(
    "--undo-window",
    type=parse_duration,
    metavar="SPAN",
    default="7d",
    show_default=True,
    help="Keep what rewinds left behind for this long.",
)
@dry_run_option
@yes_option
@with_context
def command(
    context: CommandContext,
    keep_last: int | None,
    max_age: dt.timedelta | None,
    ttl: dt.timedelta | None,
    keep_tag: tuple[str, ...],
    drop_labelled: bool,
    undo_window: dt.timedelta,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete the checkpoints that the policy does not keep, and free what no checkpoint needs any more. Without
    options, the policies of the store (?retention=… in its URL) and of its threads apply.

    Heads are never removed and forks never broken; labelled checkpoints stay unless --drop-labelled. The space goes
    back to the disk with `backtrail compact`.
    """
    from backtrail import Retention
    from backtrail.cli.output import progress
    from backtrail.model import counted

    policy: Retention | None = Retention(
        keep_last=keep_last,
        max_age=max_age,
        ttl=ttl,
        keep_labelled=not drop_labelled,
        keep_tags=tuple(keep_tag),
        undo_window=undo_window,
    )
    if policy == Retention():
        policy = None  # the policies of the store and its threads
    with context.store() as store:
        if not dry_run and not yes:
            with progress("planning") as step:
                planned = store.prune(policy, dry_run=True, progress=step)
            both = f"{counted(planned.threads, 'thread')} and {counted(planned.checkpoints, 'checkpoint')}"
            confirm(context, f"remove {both}", yes=False)
        with progress("pruning") as step:
            report = store.prune(policy, dry_run=dry_run, progress=step)
    if context.json:
        import msgspec

        context.print_json(msgspec.to_builtins(report))
    else:
        print_line(str(report))
