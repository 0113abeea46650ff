"""`backtrail files`: a directory seen as snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, confirm, dry_run_option, pass_frame, say, yes_option

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
_SHORTEST = 4  # characters of an id
name_option = click.option("--name", help="The workspace's name; without it, the directory's path.")


@click.group(
    epilog="\b\nExamples:\n  backtrail files snapshot --label before\n  backtrail files diff\n"
    "  backtrail files restore before -n"
)
def command() -> None:
    """Snapshots of a directory: take one, compare, go back. `.gitignore` and `.backtrailignore` are heeded."""


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    return dir_option(name_option(pass_frame(function)))


@contextmanager
def _workspace(frame: CommandContext, root: str, name: str | None, *, create: bool = False) -> Iterator[Workspace]:
    with frame.store(create=create) as store:
        yield store.workspace(root, name)


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail files snapshot -C project --label before")
@click.option("--label", help="A name for it.")
@_common
def snapshot(frame: CommandContext, root: str, name: str | None, label: str | None) -> None:
    """Take a snapshot. Only what changed since the last one is read."""
    from backtrail.cli.output import progress, size
    from backtrail.model import counted

    with _workspace(frame, root, name, create=True) as workspace, progress("reading") as step:
        taken = workspace.snapshot(label, step)
    if frame.json:
        frame.answer(_plain(taken))
        return
    say(f"snapshot {taken.id}: {counted(taken.files, 'file')}, {size(taken.bytes)}")
    for skipped in taken.flagged:
        say(f"! {skipped}")


@command.command("list", cls=Command, epilog="\b\nExample:\n  backtrail files list")
@_common
def list_(frame: CommandContext, root: str, name: str | None) -> None:
    """List the snapshots, newest first."""
    from backtrail.cli.output import age, size

    with _workspace(frame, root, name) as workspace:
        found = workspace.snapshots()[::-1]
    if frame.json:
        frame.answer({"snapshots": [_plain(one) for one in found]})
        return
    if not found:
        say("no snapshots of this directory yet: `backtrail files snapshot` takes one")
    for one in found:
        label = f" [{one.label}]" if one.label else ""
        kind = "" if one.reason == "snapshot" else f" ({one.reason})"
        say(f"{one.id}  {age(one.created_at):>8}  {one.files:>6,} files  {size(one.bytes):>9}{label}{kind}")


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail files status -C project")
@_common
def status(frame: CommandContext, root: str, name: str | None) -> None:
    """Say how the directory differs from its last snapshot, and what is left out of snapshots, and why."""
    with _workspace(frame, root, name) as workspace:
        found = workspace.status()
    if frame.json:
        frame.answer(_plain(found))
        return
    from backtrail.cli.output import paged, safe

    with paged() as out:
        out.print(safe(str(found)), markup=False)


@command.command(cls=Command, epilog="\b\nExamples:\n  backtrail files diff\n  backtrail files diff before after")
@click.argument("a", default="@")
@click.argument("b", required=False)
@_common
def diff(frame: CommandContext, root: str, name: str | None, a: str, b: str | None) -> None:
    """Show what changed from snapshot A (default: the last one) to snapshot B (default: the directory now)."""
    with _workspace(frame, root, name) as workspace:
        found = workspace.diff(_find(workspace, a), None if b is None else _find(workspace, b))
    if frame.json:
        frame.answer(_plain(found))
    else:
        _show(found.changes)


@command.command(
    cls=Command, epilog="\b\nExamples:\n  backtrail files restore before --dry-run\n  backtrail files restore @~1"
)
@click.argument("to")
@dry_run_option
@yes_option
@_common
def restore(frame: CommandContext, root: str, name: str | None, to: str, dry_run: bool, yes: bool) -> None:
    """Bring the directory back to snapshot TO. What it holds now is kept in a safety snapshot: `backtrail files
    undo`."""
    with _workspace(frame, root, name) as workspace:
        target = _find(workspace, to)
        _carry_out(frame, lambda dry: workspace.restore(target, dry_run=dry), "restore", dry_run=dry_run, yes=yes)


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail files undo")
@dry_run_option
@yes_option
@_common
def undo(frame: CommandContext, root: str, name: str | None, dry_run: bool, yes: bool) -> None:
    """Take back the newest restore."""
    with _workspace(frame, root, name) as workspace:
        _carry_out(frame, lambda dry: workspace.undo(dry_run=dry), "undo the restore", dry_run=dry_run, yes=yes)


def _carry_out(frame: CommandContext, act: Callable[[bool], Changes], verb: str, *, dry_run: bool, yes: bool) -> None:
    from backtrail.model import counted

    if not dry_run and not yes:
        planned = act(True)
        if not frame.json:
            _show(planned.changes)
        confirm(frame, f"{verb}: change {counted(len(planned), 'file')}", yes=False)
    done = act(dry_run)
    if frame.json:
        frame.answer(_plain(done))
        return
    if dry_run:
        _show(done.changes)
    for kept in done.kept:
        say(f"= {kept.path} (kept: {kept.reason})")
    say(f"{'would change' if dry_run else 'changed'} {counted(len(done), 'file')}")


def _find(workspace: Workspace, text: str) -> Any:
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
    started = [one for one in workspace.snapshots() if len(text) >= _SHORTEST and one.id.startswith(text.lower())]
    if len(started) != 1:
        what = f"is the start of {len(started)} snapshots" if started else "names no snapshot"
        use = "use @, @~2, a label or the start of an id; `backtrail files list` lists them"
        raise NoCheckpoint(f"{text!r} {what} of {workspace.root}: {use}")
    return started[0]


def _show(changes: tuple[Change, ...]) -> None:
    from backtrail.cli.diff_output import lines
    from backtrail.cli.output import paged

    with paged() as out:
        for text in lines(changes):
            out.print(text)
        if not changes:
            out.print("nothing differs", style="dim")


def _plain(value: Any) -> Any:
    import msgspec

    told = msgspec.to_builtins(value)
    if "created_at" in told:
        told["created_at"] = value.created_at.isoformat()  # as in all other answers
    return told
