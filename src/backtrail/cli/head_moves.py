"""The end of `backtrail undo` and `backtrail redo`: where the head is now, and what became of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backtrail.cli.context import CommandContext, print_line
from backtrail.cli.diff_output import restore_json, restore_lines, restore_summary
from backtrail.cli.output import print_lines
from backtrail.render.json_records import checkpoint_json

if TYPE_CHECKING:
    from backtrail import Checkpoint
    from backtrail.workspace import Changes


def print_head_move(context: CommandContext, thread: str, head: Checkpoint, changes: Changes | None) -> None:
    """Print the outcome; `changes` are those in the directory, if it was restored."""
    if context.json:
        restored = {} if changes is None else restore_json(changes)
        context.print_json({"thread": thread, "head": checkpoint_json(head)} | restored)
        return
    if changes is not None:
        print_lines(restore_lines(changes))
    done = "" if changes is None else f", {restore_summary(changes)}"
    print_line(f"{thread} stands at step {head.step} now{done}")
