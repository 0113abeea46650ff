"""Changes for a terminal: of a state, value by value, and of files, as unified diffs in colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from backtrail.cli.formatting import one_line, safe
from backtrail.model import counted
from backtrail.render.change_summary import message_preview
from backtrail.render.jsonable import short_text
from backtrail.render.message_parser import parse_message
from backtrail.sequence_diff import unified

if TYPE_CHECKING:
    from backtrail import Change
    from backtrail.workspace import Change as FileChange
    from backtrail.workspace import Changes as FileChanges

_SHOWN_KEPT = 20
_SIGNS = {"added": "+", "removed": "−", "changed": "~"}
_LINE_STYLES = {"+": "added", "-": "removed", "@": "dim", "~": "changed"}


def state_change(change: Change, *, full: bool) -> Text:
    """One change of a state: its path, and the old and the new value."""
    text = Text().append(f"{_SIGNS[change.kind]} {one_line(change.path)}", change.kind)
    both = isinstance(change.old, str) and isinstance(change.new, str)
    if change.kind == "changed" and both and "\n" in change.old + change.new:
        return text.append(_line_diff(change.old, change.new))
    if change.kind != "added":
        text.append("\n  − ", "removed").append(_value(change.old, full), "removed")
    if change.kind != "removed":
        text.append("\n  + ", "added").append(_value(change.new, full), "added")
    return text


def _line_diff(old: str, new: str) -> Text:
    text = Text()
    for line in unified(old.splitlines(), new.splitlines(), context=2):
        text.append(f"\n  {safe(line)}", _LINE_STYLES.get(line[:1], ""))
    return text


def _value(value: Any, full: bool) -> str:
    if full:
        return safe(value) if isinstance(value, str) else one_line(short_text(value, 1_000_000))
    if isinstance(value, dict) and "role" in value:
        message = parse_message(value)
        return one_line(f"{message.role}: {message_preview(message)}")
    return one_line(short_text(value, 160))


def file_change_lines(changes: Iterable[FileChange]) -> Iterable[Text]:
    """Changed files as coloured lines: a unified diff, or one line for a file that is not text."""
    for change in changes:
        for line in (change.text or str(change)).splitlines():
            yield Text(safe(line), _LINE_STYLES.get(line[:1], ""))


def restore_lines(changes: FileChanges) -> Iterable[Text]:
    """What a restore changes and removes, and then what it keeps, and why."""
    yield from file_change_lines(changes.changes)
    for kept in changes.kept[:_SHOWN_KEPT]:
        yield Text(safe(f"= {kept.path}   (kept: {kept.reason})"), "dim")
    if len(changes.kept) > _SHOWN_KEPT:
        yield Text(f"= {len(changes.kept) - _SHOWN_KEPT:,} more are kept; --json lists them all", "dim")


def restore_summary(changes: FileChanges) -> str:
    """The same in a few words: "change 2 files, remove 1 file, keep 3", or "changed …" after it was done."""
    change, remove, keep = ("change", "remove", "keep") if changes.dry_run else ("changed", "removed", "kept")
    removed = len(changes.removed)
    counts = [f"{change} {counted(len(changes) - removed, 'file')}"]
    if removed:
        counts.append(f"{remove} {counted(removed, 'file')}")
    if changes.kept:
        counts.append(f"{keep} {len(changes.kept):,}")
    return ", ".join(counts)


def restore_json(changes: FileChanges) -> dict[str, Any]:
    """The same for `--json`: `files` and `kept`."""
    return {
        "files": [{"path": c.path, "kind": c.kind, "unsaved": c.unsaved} for c in changes.changes],
        "kept": [{"path": kept.path, "reason": kept.reason} for kept in changes.kept],
    }


def file_changes_json(changes: Iterable[FileChange]) -> list[dict[str, Any]]:
    """Changed files for `--json`."""
    return [msgspec.to_builtins(change) for change in changes]
