"""`backtrail files`: snapshots of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import (
    Command,
    CommandContext,
    confirm,
    dry_run_option,
    keep_untracked_option,
    print_line,
    with_context,
    yes_option,
)

if TYPE_CHECKING:
    from backtrail.workspace import Change, Changes, Workspace

dir_option = click.option(
    "-C",
    "--dir",
    "root",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False),
    help="The directory.",
)
_MIN_ID_PREFIX = 4  # characters
name_option = click.option("--name", help="Name of the workspace (default: the directory's path).")


@click.group(
    no_args_is_help=False,
    invoke_without_command=True,
    epilog="\b\nExamples:\n  backtrail files snapshot --label before\n  backtrail files diff\n"
    "  backtrail files restore before -n",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Snapshots of a directory: take, compare, restore. Respects `.gitignore` and `.backtrailignore`."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _workspace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return dir_option(name_option(with_context(function)))


@contextmanager
def _open_workspace(
    context: CommandContext, root: str, name: str | None, *, create: bool = False, recover: bool = False
) -> Iterator[Workspace]:
    """`recover`: first finish a restore that was interrupted. A command that only looks changes nothing."""
    with context.store(create=create) as store:
        yield store.workspace(root, name, recover=recover)


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail files snapshot -C project --label before")
@click.option("--label", help="Name of the snapshot.")
@_workspace_options
def snapshot(context: CommandContext, root: str, name: str | None, label: str | None) -> None:
    """Take a snapshot. Only files that changed since the last one are read."""
    from backtrail.cli.formatting import size
    from backtrail.cli.output import progress
    from backtrail.model import counted

    with _open_workspace(context, root, name, create=True) as workspace, progress("reading") as step:
        taken = workspace.snapshot(label, step)
    if context.json:
        context.print_json(_to_json(taken))
        return
    print_line(f"snapshot {taken.id}: {counted(taken.files, 'file')}, {size(taken.bytes)}")
    for skipped in taken.flagged:
        print_line(f"! {skipped}")


@command.command("list", cls=Command, epilog="\b\nExample:\n  backtrail files list")
@_workspace_options
def list_(context: CommandContext, root: str, name: str | None) -> None:
    """List the snapshots, newest first."""
    from backtrail.cli.formatting import age, size

    with _open_workspace(context, root, name) as workspace:
        found = workspace.snapshots()[::-1]
    if context.json:
        context.print_json({"snapshots": [_to_json(one) for one in found]})
        return
    if not found:
        print_line("no snapshots of this directory yet: `backtrail files snapshot` takes one")
    for one in found:
        label = f" [{one.label}]" if one.label else ""
        kind = "" if one.reason == "snapshot" else f" ({one.reason})"
        print_line(f"{one.id}  {age(one.created_at):>8}  {one.files:>6,} files  {size(one.bytes):>9}{label}{kind}")


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail files status -C project")
@_workspace_options
def status(context: CommandContext, root: str, name: str | None) -> None:
    """Print how the directory differs from its last snapshot, and which files snapshots leave out, and why."""
    with _open_workspace(context, root, name) as workspace:
        found = workspace.status()
    if context.json:
        context.print_json(_to_json(found))
        return
    from backtrail.cli.formatting import safe
    from backtrail.cli.output import paged

    with paged() as out:
        out.print(safe(str(found)), markup=False)


@command.command(cls=Command, epilog="\b\nExamples:\n  backtrail files diff\n  backtrail files diff before after")
@click.argument("a", default="@")
@click.argument("b", required=False)
@_workspace_options
def diff(context: CommandContext, root: str, name: str | None, a: str, b: str | None) -> None:
    """Show what changed from snapshot A (default: the last one) to snapshot B (default: the directory now)."""
    with _open_workspace(context, root, name) as workspace:
        found = workspace.diff(_find_snapshot(workspace, a), None if b is None else _find_snapshot(workspace, b))
    if context.json:
        context.print_json(_to_json(found))
    else:
        _print_changes(found.changes)


@command.command(
    cls=Command, epilog="\b\nExamples:\n  backtrail files restore before --dry-run\n  backtrail files restore @~1"
)
@click.argument("to")
@keep_untracked_option
@dry_run_option
@yes_option
@_workspace_options
def restore(
    context: CommandContext, root: str, name: str | None, to: str, keep_untracked: bool, dry_run: bool, yes: bool
) -> None:
    """Restore the directory to snapshot TO. Files that appeared since are removed, ignored ones are kept. The present
    content is kept in a safety snapshot: `backtrail files undo` goes back."""
    with _open_workspace(context, root, name, recover=not dry_run) as workspace:
        target = _find_snapshot(workspace, to)
        act = partial(workspace.restore, target, keep_untracked=keep_untracked)
        _apply(context, act, "restore", dry_run=dry_run, yes=yes)


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail files undo")
@keep_untracked_option
@dry_run_option
@yes_option
@_workspace_options
def undo(context: CommandContext, root: str, name: str | None, keep_untracked: bool, dry_run: bool, yes: bool) -> None:
    """Take back the newest restore: the directory is again as it was before it."""
    with _open_workspace(context, root, name, recover=not dry_run) as workspace:
        act = partial(workspace.undo, keep_untracked=keep_untracked)
        _apply(context, act, "undo the restore", dry_run=dry_run, yes=yes)


def _apply(context: CommandContext, act: Callable[..., Changes], verb: str, *, dry_run: bool, yes: bool) -> None:
    from backtrail.cli.diff_output import restore_lines, restore_summary
    from backtrail.cli.output import print_lines

    planned: Changes | None = None
    if not dry_run and not yes:
        planned = act(dry_run=True)
        if not context.json:
            print_lines(restore_lines(planned))
        confirm(context, f"{verb}: {restore_summary(planned)}", yes=False)
    done = act(dry_run=dry_run)
    if context.json:
        context.print_json(_to_json(done))
        return
    if planned is None or (planned.changes, planned.kept) != (done.changes, done.kept):
        print_lines(restore_lines(done))
    print_line(f"{'would ' if dry_run else ''}{restore_summary(done)}")


def _find_snapshot(workspace: Workspace, text: str) -> Any:
    """A snapshot by `@`, `@~2`, its label, or the start of its id."""
    import re

    from backtrail import NoCheckpoint
    from backtrail.model import counted

    found = [one for one in workspace.snapshots() if one.reason == "snapshot"]
    before = re.fullmatch(r"@(?:~(\d{0,6}))?", text)
    if before is not None:
        back = 0 if before[1] is None else int(before[1] or 1)
        if back >= len(found):
            raise NoCheckpoint(
                f"{workspace.root} has only {counted(len(found), 'snapshot')}: take one with `backtrail files snapshot`"
            )
        return found[-1 - back]
    labelled = [one for one in found if one.label == text]
    if labelled:
        return labelled[-1]
    started = [one for one in workspace.snapshots() if len(text) >= _MIN_ID_PREFIX and one.id.startswith(text.lower())]
    if len(started) != 1:
        what = f"is the start of {len(started)} snapshots" if started else "names no snapshot"
        use = "use @, @~2, a label or the start of an id; `backtrail files list` lists them"
        raise NoCheckpoint(f"{text!r} {what} of {workspace.root}: {use}")
    return started[0]


def _print_changes(changes: tuple[Change, ...]) -> None:
    from backtrail.cli.diff_output import file_change_lines
    from backtrail.cli.output import print_lines

    print_lines(file_change_lines(changes))


def _to_json(value: Any) -> Any:
    import msgspec

    data = msgspec.to_builtins(value)
    if "created_at" in data:
        data["created_at"] = value.created_at.isoformat()  # the form that all other commands print
    return data
