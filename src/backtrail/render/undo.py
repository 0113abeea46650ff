"""Moves of a head as people ask for them, with the files where they say so: both go, or neither does."""

from __future__ import annotations

from typing import Any

from backtrail import Checkpoint, Thread


def take_back(thread: Thread[Any], *, files: bool) -> Checkpoint:
    """Take back the last move of the head, and with `files` the newest restore of its directory. Where there is none
    to take back, the head stays; where the head cannot go back, no file is touched."""
    if not files:
        return thread.undo()
    workspace = thread.workspace()
    workspace.undo(dry_run=True)
    head = thread.undo()
    workspace.undo()
    return head
