"""`backtrail diff`: what changed between two checkpoints, in the state and in the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, pass_frame, place, thread_argument

if TYPE_CHECKING:
    from rich.text import Text

    from backtrail import Change, Diff, Thread
    from backtrail.workspace import Change as FileChange


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail diff support-42         the last step\n"
    "  backtrail diff support-42 12 @    since step 12",
)
@thread_argument
@click.argument("a", default="@~1")
@click.argument("b", default="@")
@click.option("--full", is_flag=True, help="Values whole.")
@click.option("--exit-code", is_flag=True, help="Leave with 1 if anything changed.")
@pass_frame
def command(frame: CommandContext, thread: str, a: str, b: str, full: bool, exit_code: bool) -> None:
    """Show what changed in THREAD from A (default: the checkpoint before the head) to B (default: the head).

    Where files were saved with both, the files as well.
    """
    with frame.store() as store:
        handle: Thread[Any] = store.thread(thread)
        found = handle.diff(place(handle, a), place(handle, b))
        files = handle.workspace(found.b).diff(found.a, found.b).changes if found.a.files and found.b.files else ()
    if frame.json:
        from backtrail.cli.diff_output import plain
        from backtrail.render.json_records import diff_json

        frame.answer({**diff_json(found), "files": plain(files)})
    else:
        _show(found, files, full)
    if exit_code and (found or files):
        raise click.exceptions.Exit(1)


def _show(found: Diff, files: tuple[FileChange, ...], full: bool) -> None:
    from rich.text import Text

    from backtrail.cli.diff_output import lines
    from backtrail.cli.output import paged

    with paged() as out:
        title = Text().append(f"step {found.a.step} → step {found.b.step}", "bold")
        out.print(title.append(_count(len(found.changes)), "dim"))
        for change in found.changes:
            out.print(_change(change, full))
        for line in lines(files):
            out.print(line)


def _count(count: int) -> str:
    from backtrail.model import counted

    return "  nothing changed" if not count else f"  {counted(count, 'change')}"


def _change(change: Change, full: bool) -> Text:
    from rich.text import Text

    from backtrail.cli.output import line

    sign = {"added": "+", "removed": "−", "changed": "~"}[change.kind]
    text = Text().append(f"{sign} {line(change.path)}", change.kind)
    both = isinstance(change.old, str) and isinstance(change.new, str)
    if change.kind == "changed" and both and "\n" in change.old + change.new:
        return text.append(_lines(change.old, change.new))
    if change.kind != "added":
        text.append("\n  − ", "removed").append(_value(change.old, full), "removed")
    if change.kind != "removed":
        text.append("\n  + ", "added").append(_value(change.new, full), "added")
    return text


def _lines(old: str, new: str) -> Text:
    import difflib

    from rich.text import Text

    from backtrail.cli.output import safe

    text = Text()
    for entry in list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]:
        style = {"+": "added", "-": "removed", "@": "dim"}.get(entry[:1], "")
        text.append(f"\n  {safe(entry)}", style)
    return text


def _value(value: Any, full: bool) -> str:
    from backtrail.cli.output import line, safe
    from backtrail.render.change_summary import preview_of
    from backtrail.render.conversation import read
    from backtrail.render.jsonable import brief

    if full:
        return safe(value) if isinstance(value, str) else line(brief(value, 1_000_000))
    if isinstance(value, dict) and "role" in value:
        message = read(value)
        return line(f"{message.role}: {preview_of(message)}")
    return line(brief(value, 160))
