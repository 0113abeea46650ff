"""Moves of a thread's head for the command line and the inspector: what a rewind leaves behind, undo and redo with
files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from backtrail import Checkpoint, Thread
from backtrail.render.graph import ancestry

if TYPE_CHECKING:
    from backtrail.workspace import Changes


def left_behind(checkpoints: Iterable[Checkpoint], head: str | None, target: Checkpoint) -> list[Checkpoint]:
    """The ancestors of `head` that a rewind to `target` leaves behind, newest first; `checkpoints` is the whole
    history."""
    known = {checkpoint.id: checkpoint for checkpoint in checkpoints}
    kept = {checkpoint.id for checkpoint in ancestry(known, target.id)}
    return [checkpoint for checkpoint in ancestry(known, head) if checkpoint.id not in kept]


def undo(
    thread: Thread[Any],
    *,
    files: bool,
    root: str | None = None,
    keep_untracked: bool = False,
    dry_run: bool = False,
) -> tuple[Checkpoint, Changes | None]:
    """Take back the last move of the head and, with `files`, the newest restore of its directory: both or neither.
    Returns the new head, and the changes in the directory.

    If there is no restore to take back, the head stays; if the head cannot go back, no file is touched. `dry_run`: only
    find out what would happen.
    """
    if not files:
        return thread.undo(dry_run), None
    workspace = thread.workspace(root=root)
    workspace.recover()
    preview = workspace.undo(dry_run=True, keep_untracked=keep_untracked)
    if dry_run:
        return thread.undo(dry_run=True), preview
    return thread.undo(), workspace.undo(keep_untracked=keep_untracked)


def redo(
    thread: Thread[Any],
    *,
    files: bool,
    root: str | None = None,
    keep_untracked: bool = False,
    dry_run: bool = False,
) -> tuple[Checkpoint, Changes | None]:
    """Do again what the last undo took back and, with `files`, restore the directory to the snapshot that was saved
    with that checkpoint: both or neither. Returns the new head, and the changes in the directory. `dry_run`: only find
    out what would happen."""
    head = thread.redo(dry_run)
    if not files:
        return head, None
    if dry_run:
        return head, thread.workspace(head, root).restore(head, dry_run=True, keep_untracked=keep_untracked)
    try:
        return head, thread.workspace(head, root).restore(head, keep_untracked=keep_untracked)
    except BaseException:
        thread.undo()
        raise
