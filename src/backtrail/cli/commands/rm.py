"""`backtrail rm`: delete threads, or one checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    confirm,
    dry_run_option,
    is_agent_thread,
    print_line,
    with_context,
    yes_option,
)

if TYPE_CHECKING:
    from backtrail import Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail rm support-42\n  backtrail rm support-42 --at 3 --yes\n"
    "  backtrail rm old-1 old-2 --dry-run",
)
@click.argument("threads", nargs=-1, required=True)
@click.option("--at", help="Delete only this checkpoint.")
@dry_run_option
@yes_option
@with_context
def command(context: CommandContext, threads: tuple[str, ...], at: str | None, dry_run: bool, yes: bool) -> None:
    """Delete THREADS with all their checkpoints, or one checkpoint. Forks and later checkpoints stay."""
    from backtrail import ThreadNotFound
    from backtrail.model import counted

    if at is not None and len(threads) > 1:
        raise click.UsageError("--at takes one thread.")
    if len({is_agent_thread(name) for name in threads}) > 1 and not context.named_target:
        raise click.UsageError("sessions of coding agents are in a store of their own: delete them by themselves.")
    with context.store_of(threads[0]) as store:
        handles: list[Thread[Any]] = [store.thread(name) for name in threads]
        for handle in handles:
            if not handle.exists():
                raise ThreadNotFound(handle.id)
        if at is not None:
            checkpoint = handles[0].get(at)
            what = f"delete step {checkpoint.step} of {threads[0]}"
        else:
            # Its own: a fork's history has those of other threads, too, which stay. The name itself is listed first.
            count = sum(info.count for name in threads for info in store.threads(prefix=name, limit=1))
            what = f"delete {', '.join(threads)}: {counted(count, 'checkpoint')}"
        if not dry_run:
            confirm(context, what, yes=yes)
            for handle in handles:
                handle.delete(checkpoint if at is not None else None)
    if context.json:
        context.print_json(
            {"threads": list(threads), "at": checkpoint.id if at is not None else None, "done": not dry_run}
        )
    else:
        print_line(f"would {what}" if dry_run else f"{what}: done")
