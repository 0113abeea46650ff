"""`backtrail diff`: changes between two checkpoints, in the state and in the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backtrail.cli.context import Command, CommandContext, thread_argument, with_context

if TYPE_CHECKING:
    from backtrail import Diff
    from backtrail.workspace import Change as FileChange


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail diff support-42         the last step\n"
    "  backtrail diff support-42 12 @    since step 12",
)
@thread_argument
@click.argument("a", default="@~1")
@click.argument("b", default="@")
@click.option("--full", is_flag=True, help="Do not shorten values.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything changed.")
@with_context
def command(context: CommandContext, thread: str, a: str, b: str, full: bool, exit_code: bool) -> None:
    """Show what changed in THREAD from A (default: the checkpoint before the head) to B (default: the head).

    Includes the files if both were saved with files.
    """
    with context.thread(thread) as handle:
        found = handle.diff(a, b)
        files = handle.workspace(found.b).diff(found.a, found.b).changes if found.a.files and found.b.files else ()
    if context.json:
        from backtrail.cli.diff_output import file_changes_json
        from backtrail.render.json_records import diff_json

        context.print_json({**diff_json(found), "files": file_changes_json(files)})
    else:
        _print_diff(found, files, full)
    if exit_code and (found or files):
        raise click.exceptions.Exit(1)


def _print_diff(found: Diff, files: tuple[FileChange, ...], full: bool) -> None:
    from rich.text import Text

    from backtrail.cli.diff_output import file_change_lines, state_change
    from backtrail.cli.output import paged
    from backtrail.model import counted

    count = f"  {counted(len(found.changes), 'change')}" if found.changes else "  nothing changed"
    with paged() as out:
        out.print(Text().append(f"step {found.a.step} → step {found.b.step}", "bold").append(count, "dim"))
        for change in found.changes:
            out.print(state_change(change, full=full))
        for line in file_change_lines(files):
            out.print(line)
