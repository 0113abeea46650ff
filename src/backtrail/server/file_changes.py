"""Changed files as the API shows them: a unified diff each, cut if it is long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backtrail.render.jsonable import truncate
from backtrail.server import responses

if TYPE_CHECKING:
    from backtrail.workspace import Change, Changes

_SHOWN_TEXT = 20_000
_SHOWN_FILES = 200


def file_changes_json(changes: Sequence[Change]) -> list[responses.FileChangeJson]:
    """Changes of files."""
    return [
        {
            "path": change.path,
            "kind": change.kind,
            "unsaved": change.unsaved,
            "text": truncate(change.text, _SHOWN_TEXT) if change.text else None,
        }
        for change in changes
    ]


def restore_json(changes: Changes | None) -> responses.RestoreJson:
    """What a restore changes, removes and keeps; nothing if no directory is restored."""
    if changes is None:
        return {"files": [], "files_total": 0, "removed_total": 0, "kept": [], "kept_total": 0}
    return {
        "files": file_changes_json(changes.changes[:_SHOWN_FILES]),
        "files_total": len(changes),
        "removed_total": len(changes.removed),
        "kept": [{"path": kept.path, "reason": kept.reason} for kept in changes.kept[:_SHOWN_FILES]],
        "kept_total": len(changes.kept),
    }
