"""The records of a store as JSON: the one shape that `clew --json` and the HTTP API give."""

from __future__ import annotations

from typing import Any

from clew import Change, Checkpoint, Diff, Fork, ThreadInfo
from clew.present.plain import to_json

Json = dict[str, Any]


def thread_json(info: ThreadInfo) -> Json:
    """A line of a listing."""
    return {
        "id": info.id,
        "kind": info.kind,
        "head": info.head,
        "step": info.step,
        "count": info.count,
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
        "size": info.size,
    }


def checkpoint_json(checkpoint: Checkpoint) -> Json:
    """A checkpoint, without its state."""
    return {
        "id": checkpoint.id,
        "thread_id": checkpoint.thread_id,
        "parent_id": checkpoint.parent_id,
        "step": checkpoint.step,
        "created_at": checkpoint.created_at.isoformat(),
        "label": checkpoint.label,
        "tags": list(checkpoint.tags),
        "custom": to_json(checkpoint.custom),
        "size": checkpoint.size,
        "written": checkpoint.written,
        "files": checkpoint.files,
    }


def change_json(change: Change) -> Json:
    """One difference; `old` and `new` only where there is one."""
    result: Json = {"path": change.path, "kind": change.kind}
    if change.kind != "added":
        result["old"] = to_json(change.old)
    if change.kind != "removed":
        result["new"] = to_json(change.new)
    return result


def diff_json(diff: Diff) -> Json:
    """Two checkpoints and what changed between them."""
    return {
        "a": checkpoint_json(diff.a),
        "b": checkpoint_json(diff.b),
        "changes": [change_json(change) for change in diff.changes],
    }


def fork_json(fork: Fork) -> Json:
    """A relative of a thread."""
    return {"thread_id": fork.thread_id, "at": fork.at, "step": fork.step, "relation": fork.relation}
