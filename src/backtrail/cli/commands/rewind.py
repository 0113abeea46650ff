"""`backtrail rewind`: move a thread's head, after printing what that leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    confirm,
    dry_run_option,
    keep_untracked_option,
    print_line,
    root_option,
    thread_argument,
    with_context,
    yes_option,
)

if TYPE_CHECKING:
    from backtrail.workspace import Changes


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail rewind support-42 @~2\n  backtrail rewind support-42 before-deploy --dry-run",
)
@thread_argument
@at_argument(required=True)
@click.option("--files", is_flag=True, help="Restore the directory to the snapshot saved with AT as well.")
@root_option
@keep_untracked_option
@click.option("--prune", is_flag=True, help="Delete what came after AT, instead of leaving it behind.")
@dry_run_option
@yes_option
@with_context
def command(
    context: CommandContext,
    thread: str,
    at: str,
    files: bool,
    root: str | None,
    keep_untracked: bool,
    prune: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Move the head of THREAD to AT. The checkpoints left behind stay in `backtrail log`, and `backtrail undo` takes
    the rewind back."""
    from backtrail.cli.diff_output import restore_json, restore_lines, restore_summary
    from backtrail.cli.output import print_lines
    from backtrail.model import counted
    from backtrail.render.head_moves import left_behind
    from backtrail.render.json_records import checkpoint_json

    with context.thread(thread) as handle:
        target = handle.get(at)
        head = handle.head
        left = left_behind(handle.history(all=True), head.id if head is not None else None, target)[::-1]
        fate = "delete" if prune else "leave behind"
        what = f"rewind {thread} to step {target.step}: {fate} {counted(len(left), 'checkpoint')}"
        changes: Changes | None = None
        if files and prune:
            handle.rewind(target, files=True, prune=True)  # refuses it
        if files:
            workspace = handle.workspace(target, root)
            if not dry_run:
                workspace.recover()
            changes = handle.rewind_files(target, dry_run=True, keep_untracked=keep_untracked)
            what += f"; in {workspace.root}, {restore_summary(changes)}"
            if not context.json:
                print_lines(restore_lines(changes))
        if not dry_run:
            confirm(context, what, yes=yes)
            if files:
                changes = handle.rewind_files(target, keep_untracked=keep_untracked)
            else:
                handle.rewind(target, prune=prune)
    if context.json:
        context.print_json(
            {"thread": thread, "head": checkpoint_json(target), "left": [c.id for c in left], "done": not dry_run}
            | ({} if changes is None else restore_json(changes))
        )
    elif dry_run:
        print_line(f"would {what}")
    else:
        done = "" if changes is None else f", {restore_summary(changes)}"
        print_line(f"{thread} stands at step {target.step} now{done}; `backtrail undo` goes back")
