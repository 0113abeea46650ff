"""Moves of a thread's head for the command line and the inspector: what a rewind leaves behind, undo and redo with
files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backtrail import Checkpoint, Thread
from backtrail.render.graph import ancestry


def left_behind(checkpoints: Iterable[Checkpoint], head: str | None, target: Checkpoint) -> list[Checkpoint]:
    """The ancestors of `head` that a rewind to `target` leaves behind, newest first; `checkpoints` is the whole
    history."""
    known = {checkpoint.id: checkpoint for checkpoint in checkpoints}
    kept = {checkpoint.id for checkpoint in ancestry(known, target.id)}
    return [checkpoint for checkpoint in ancestry(known, head) if checkpoint.id not in kept]


def undo(thread: Thread[Any], *, files: bool) -> Checkpoint:
    """Take back the last move of the head and, with `files`, the newest restore of its directory: both or neither.

    If there is no restore to take back, the head stays; if the head cannot go back, no file is touched.
    """
    if not files:
        return thread.undo()
    workspace = thread.workspace()
    workspace.undo(dry_run=True)
    head = thread.undo()
    workspace.undo()
    return head


def redo(thread: Thread[Any], *, files: bool) -> Checkpoint:
    """Do again what the last undo took back and, with `files`, restore the directory to the snapshot that was saved
    with that checkpoint: both or neither."""
    head = thread.redo()
    if files:
        try:
            thread.workspace(head).restore(head)
        except BaseException:
            thread.undo()
            raise
    return head
