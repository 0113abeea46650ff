"""Differences as text: a unified diff where both sides are text, one line for everything else."""

from __future__ import annotations

from collections.abc import Mapping

from backtrail.sequence_diff import unified
from backtrail.workspace.model import Change
from backtrail.workspace.paths import to_text, to_utf8
from backtrail.workspace.restore_plan import change_kind
from backtrail.workspace.trees import DIR, FILE, LINK, Op, TreeEntry

MAX_TEXT = 2**20  # bytes; a larger file is not compared line by line


def comparable(op: Op) -> list[TreeEntry]:
    """The sides of a difference whose contents are needed for its text."""
    sides = [side for side in (op.old, op.new) if side is not None]
    if any(side.kind not in (FILE, LINK) or side.size > MAX_TEXT for side in sides) or change_kind(op) == "mode":
        return []
    return [side for side in sides if side.kind == FILE]


def describe(op: Op, contents: Mapping[bytes, bytes]) -> Change:
    """One difference, with its text if there is one."""
    return Change(to_text(op.path), change_kind(op), text=_text(op, contents))


def _text(op: Op, contents: Mapping[bytes, bytes]) -> str | None:
    path = to_utf8(op.path)
    if change_kind(op) == "mode" and op.old is not None and op.new is not None:
        return f"mode {op.old.mode:o} -> {op.new.mode:o} {path}"
    old, new = _lines(op.old, contents), _lines(op.new, contents)
    if old is None or new is None:
        return None
    before = "/dev/null" if op.old is None else f"a/{path}"
    after = "/dev/null" if op.new is None else f"b/{path}"
    lines = list(unified(old, new))
    return "\n".join([f"--- {before}", f"+++ {after}", *lines]) if lines else None


def _lines(entry: TreeEntry | None, contents: Mapping[bytes, bytes]) -> list[str] | None:
    """The lines of one side; None if it is not text."""
    if entry is None:
        return []
    if entry.kind == LINK:
        return [f"-> {to_utf8(entry.ref)}"]
    if entry.kind == DIR or entry.ref not in contents or b"\0" in contents[entry.ref]:
        return None
    try:
        text = contents[entry.ref].decode()
    except UnicodeDecodeError:
        return None
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]
