"""`backtrail rewind`: move a head, after saying what that leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    at_argument,
    confirm,
    dry_run_option,
    pass_frame,
    place,
    say,
    thread_argument,
    yes_option,
)

if TYPE_CHECKING:
    from backtrail import Checkpoint, Thread


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail rewind support-42 @~2\n  backtrail rewind support-42 before-deploy --dry-run",
)
@thread_argument
@at_argument(required=True)
@click.option("--files", is_flag=True, help="The directory goes back to the snapshot saved with AT as well.")
@click.option("--prune", is_flag=True, help="Delete what came after AT, instead of leaving it behind.")
@dry_run_option
@yes_option
@pass_frame
def command(frame: CommandContext, thread: str, at: str, files: bool, prune: bool, dry_run: bool, yes: bool) -> None:
    """Move the head of THREAD to AT. What is left behind stays in `backtrail log`, and `backtrail undo` goes back."""
    from backtrail.model import counted
    from backtrail.render.json_records import checkpoint_json

    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        target = place(handle, at)
        left = _left(handle, target)
        fate = "delete" if prune else "leave behind"
        what = f"rewind {thread} to step {target.step}: {fate} {counted(len(left), 'checkpoint')}"
        changed = handle.workspace(target).restore(target, dry_run=True).changes if files else ()
        if files:
            what += f", and change {counted(len(changed), 'file')} in {handle.workspace(target).root}"
        if not dry_run:
            confirm(frame, what, yes=yes)
            handle.rewind(target, files=files, prune=prune)
    if frame.json:
        frame.answer(
            {"thread": thread, "head": checkpoint_json(target), "left": [c.id for c in left], "done": not dry_run}
            | ({"files": [{"path": c.path, "kind": c.kind, "unsaved": c.unsaved} for c in changed]} if files else {})
        )
    else:
        for change in changed:
            say(str(change))
        say(f"would {what}" if dry_run else f"{thread} stands at step {target.step} now; `backtrail undo` goes back")


def _left(thread: Thread[Any], target: Checkpoint) -> list[Checkpoint]:
    """What is on the way to the head now and would not be after."""
    keep = {c.id for c in _trail(thread, target)}
    return [c for c in thread.history() if c.id not in keep]


def _trail(thread: Thread[Any], target: Checkpoint) -> list[Checkpoint]:
    known = {c.id: c for c in thread.history(all=True)}
    trail, at = [], known.get(target.id)
    while at is not None:
        trail.append(at)
        at = known.get(at.parent_id or "")
    return trail
