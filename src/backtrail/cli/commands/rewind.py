"""`backtrail rewind`: move a thread's head, or go back in a coding agent's session, after printing what that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    confirm,
    dry_run_option,
    keep_untracked_option,
    optional_thread_argument,
    print_line,
    root_option,
    with_context,
    yes_option,
)

if TYPE_CHECKING:
    from backtrail import Thread
    from backtrail.workspace import Changes


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail rewind support-42 @~2\n  backtrail rewind support-42 before-deploy --dry-run\n"
    "  backtrail rewind 3                   the coding agent's session here, to before turn 3\n"
    "  backtrail rewind 3 --files-only      its files, and not the conversation",
)
@optional_thread_argument
@at_argument(default=None)
@click.option("--files", is_flag=True, help="Restore the directory to the snapshot saved with AT as well.")
@root_option
@keep_untracked_option
@click.option("--prune", is_flag=True, help="Delete what came after AT, instead of leaving it behind.")
@click.option("--turn", metavar="N", type=click.IntRange(1), help="Of an agent's session: the turn, instead of AT.")
@click.option("--conversation", is_flag=True, help="Of an agent's session: only the conversation goes back.")
@click.option("--files-only", is_flag=True, help="Of an agent's session: only the files go back.")
@click.option("--go", is_flag=True, help="Of an agent's session: start the agent with the new session.")
@dry_run_option
@yes_option
@with_context
def command(
    context: CommandContext,
    thread: str | None,
    at: str | None,
    files: bool,
    root: str | None,
    keep_untracked: bool,
    prune: bool,
    turn: int | None,
    conversation: bool,
    files_only: bool,
    go: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Move the head of THREAD to AT. The checkpoints left behind stay in `backtrail log`, and `backtrail undo` takes
    the rewind back.

    Without THREAD: go back to before turn AT of the newest session of a coding agent in this directory, with its files
    and its conversation. The conversation becomes a new session of the agent; the old one stays as it is.
    """
    from backtrail.cli.going_back import Choice, rewind_session

    with context.named(thread, at) as named:
        if named.session is not None:
            if prune or root is not None:
                raise click.UsageError("--prune and --root are not for sessions of coding agents.")
            choice = Choice(
                conversation=not files_only,
                files=not conversation,
                keep_untracked=keep_untracked,
                dry_run=dry_run,
                yes=yes,
                go=go,
            )
            if (files and conversation) or (files_only and conversation):
                raise click.UsageError("--conversation leaves the files as they are: leave out one of the two.")
            resume = rewind_session(context, named, turn, choice)
        else:
            if turn is not None or conversation or files_only or go:
                raise click.UsageError("--turn, --conversation, --files-only and --go are for coding agents' sessions.")
            if not named.words:
                raise click.UsageError("Missing argument 'AT'.")
            _rewind(context, named.thread, named.words[0], files, root, keep_untracked, prune, dry_run, yes)
            return
    if resume is not None:
        resume()


def _rewind(
    context: CommandContext,
    handle: Thread[Any],
    at: str,
    files: bool,
    root: str | None,
    keep_untracked: bool,
    prune: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    from backtrail.cli.diff_output import restore_json, restore_lines, restore_summary
    from backtrail.cli.output import print_lines
    from backtrail.model import counted
    from backtrail.render.head_moves import left_behind
    from backtrail.render.json_records import checkpoint_json

    target = handle.get(at)
    head = handle.head
    left = left_behind(handle.history(all=True), head.id if head is not None else None, target)[::-1]
    fate = "delete" if prune else "leave behind"
    what = f"rewind {handle.id} to step {target.step}: {fate} {counted(len(left), 'checkpoint')}"
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
            {"thread": handle.id, "head": checkpoint_json(target), "left": [c.id for c in left], "done": not dry_run}
            | ({} if changes is None else restore_json(changes))
        )
    elif dry_run:
        print_line(f"would {what}")
    else:
        done = "" if changes is None else f", {restore_summary(changes)}"
        print_line(f"{handle.id} stands at step {target.step} now{done}; `backtrail undo` goes back")
