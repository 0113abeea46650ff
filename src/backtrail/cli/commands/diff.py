"""`backtrail diff`: changes between two checkpoints of a thread or of two threads, in the state and in the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backtrail.cli.context import Command, CommandContext, optional_thread_argument, with_context

if TYPE_CHECKING:
    from backtrail import Checkpoint, Diff, Store, Thread
    from backtrail.workspace import Change as FileChange


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail diff support-42         the last step\n"
    "  backtrail diff support-42 12 @    since step 12\n"
    "  backtrail diff main try-2         the heads of two threads\n"
    "  backtrail diff main try-2 --since-fork\n"
    "  backtrail diff main 3 try-2@~1    step 3 of one with a checkpoint of another\n"
    "  backtrail diff 3                  the files that turn 3 of the coding agent here changed",
)
@optional_thread_argument
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.option("--since-fork", is_flag=True, help="Compare B with the last checkpoint that A and B have in common.")
@click.option("--full", is_flag=True, help="Do not shorten values.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything changed.")
@with_context
def command(
    context: CommandContext,
    thread: str | None,
    a: str | None,
    b: str | None,
    since_fork: bool,
    full: bool,
    exit_code: bool,
) -> None:
    """Show what changed in THREAD from A (default: the checkpoint before the head) to B (default: the head).

    A and B may belong to another thread: `NAME` is its head, `NAME@~2` and `NAME@12` are others. If only another thread
    is given, THREAD is compared with it. Includes the files if both were saved with files.

    Of a session of a coding agent (default: the newest one in this directory) it shows the files that a turn changed,
    or that turns A to B did; without a turn, the last one.
    """
    with context.named(thread, a, b) as named:
        if named.session is not None:
            from backtrail.cli.agent_output import print_turn_diff

            changed = print_turn_diff(context, named.session, named.words)
            if exit_code and changed:
                raise click.exceptions.Exit(1)
            return
        store, handle = named.store, named.thread
        first = _checkpoint(store, handle, a or "@~1")
        second = _checkpoint(store, handle, b or "@")
        if a is not None and b is None and first.thread != handle.id:  # `diff THREAD OTHER`: from the one to the other
            first, second = second, first
        found = handle.diff(first.checkpoint, second.checkpoint, since_fork)
        files: tuple[FileChange, ...] = ()
        if found.a.files and found.b.files:
            files = store.thread(second.thread).workspace(found.b).diff(found.a, found.b).changes
    if context.json:
        from backtrail.cli.diff_output import file_changes_json
        from backtrail.render.json_records import diff_json

        context.print_json({**diff_json(found), "files": file_changes_json(files)})
    else:
        _print_diff(found, files, full)
    if exit_code and (found or files):
        raise click.exceptions.Exit(1)


class _Named(NamedTuple):
    """A checkpoint, and the thread that it was named as one of."""

    thread: str
    checkpoint: Checkpoint


def _checkpoint(store: Store, thread: Thread[Any], name: str) -> _Named:
    """The checkpoint of this thread that has the name, or else that of another thread."""
    from backtrail import AmbiguousCheckpoint, CheckpointNotFound

    try:
        return _Named(thread.id, thread.get(name))
    except AmbiguousCheckpoint:
        raise
    except CheckpointNotFound:
        other: Thread[Any] = store.thread(name)
        if other.exists():
            return _Named(name, other.get("@"))
        id, at, ref = name.rpartition("@")
        if not at or not id or not store.thread(id).exists():
            raise
        return _Named(id, store.thread(id).get(f"@{ref}" if ref.startswith("~") or not ref else ref))


def _print_diff(found: Diff, files: tuple[FileChange, ...], full: bool) -> None:
    from rich.text import Text

    from backtrail.cli.diff_output import file_change_lines, state_change
    from backtrail.cli.formatting import one_line
    from backtrail.cli.output import paged
    from backtrail.model import counted

    count = f"  {counted(len(found.changes), 'change')}" if found.changes else "  nothing changed"
    title = f"step {found.a.step} → step {found.b.step}"
    if found.a.thread_id != found.b.thread_id:
        title = one_line(f"{found.a.thread_id} step {found.a.step} → {found.b.thread_id} step {found.b.step}")
    with paged() as out:
        out.print(Text().append(title, "bold").append(count, "dim"))
        for change in found.changes:
            out.print(state_change(change, full=full))
        for line in file_change_lines(files):
            out.print(line)
