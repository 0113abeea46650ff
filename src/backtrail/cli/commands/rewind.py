"""`backtrail rewind`: move a thread's head, after printing what that leaves behind."""

from __future__ import annotations

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    confirm,
    dry_run_option,
    print_line,
    thread_argument,
    with_context,
    yes_option,
)


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail rewind support-42 @~2\n  backtrail rewind support-42 before-deploy --dry-run",
)
@thread_argument
@at_argument(required=True)
@click.option("--files", is_flag=True, help="Restore the directory to the snapshot saved with AT as well.")
@click.option("--prune", is_flag=True, help="Delete what came after AT, instead of leaving it behind.")
@dry_run_option
@yes_option
@with_context
def command(context: CommandContext, thread: str, at: str, files: bool, prune: bool, dry_run: bool, yes: bool) -> None:
    """Move the head of THREAD to AT. The checkpoints left behind stay in `backtrail log`, and `backtrail undo` takes
    the rewind back."""
    from backtrail.model import counted
    from backtrail.render.head_moves import left_behind
    from backtrail.render.json_records import checkpoint_json

    with context.thread(thread) as handle:
        target = handle.get(at)
        head = handle.head
        left = left_behind(handle.history(all=True), head.id if head is not None else None, target)[::-1]
        fate = "delete" if prune else "leave behind"
        what = f"rewind {thread} to step {target.step}: {fate} {counted(len(left), 'checkpoint')}"
        changed = handle.workspace(target).restore(target, dry_run=True).changes if files else ()
        if files:
            what += f", and change {counted(len(changed), 'file')} in {handle.workspace(target).root}"
        if not dry_run:
            confirm(context, what, yes=yes)
            handle.rewind(target, files=files, prune=prune)
    if context.json:
        context.print_json(
            {"thread": thread, "head": checkpoint_json(target), "left": [c.id for c in left], "done": not dry_run}
            | ({"files": [{"path": c.path, "kind": c.kind, "unsaved": c.unsaved} for c in changed]} if files else {})
        )
    else:
        for change in changed:
            print_line(str(change))
        print_line(
            f"would {what}" if dry_run else f"{thread} stands at step {target.step} now; `backtrail undo` goes back"
        )
