"""The records of a store as JSON, in the shape that both `backtrail --json` and the HTTP API use."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from backtrail import Change, Checkpoint, Diff, Fork, ThreadInfo
from backtrail.render.jsonable import to_json


class ThreadJson(TypedDict):
    """A thread, as in a listing."""

    id: str
    kind: str
    head: str
    step: int
    count: int
    created_at: str
    updated_at: str
    size: int
    damage: str | None


class CheckpointJson(TypedDict):
    """A checkpoint, without its state."""

    id: str
    thread_id: str
    parent_id: str | None
    step: int
    created_at: str
    label: str | None
    tags: list[str]
    custom: dict[str, Any]
    size: int
    written: int
    files: str | None
    damage: str | None


class ChangeJson(TypedDict):
    """One difference between two states."""

    path: str
    kind: Literal["added", "removed", "changed"]
    old: NotRequired[Any]
    new: NotRequired[Any]


class DiffJson(TypedDict):
    """Two checkpoints and the changes between them."""

    a: CheckpointJson
    b: CheckpointJson
    changes: list[ChangeJson]


class ForkJson(TypedDict):
    """A related thread, and the last checkpoint that both have."""

    thread_id: str
    at: str
    step: int
    relation: Literal["child", "parent", "sibling"]


def thread_json(info: ThreadInfo) -> ThreadJson:
    """A thread, as in a listing."""
    return {
        "id": info.id,
        "kind": info.kind,
        "head": info.head,
        "step": info.step,
        "count": info.count,
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
        "size": info.size,
        "damage": info.damage,
    }


def checkpoint_json(checkpoint: Checkpoint) -> CheckpointJson:
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
        "damage": checkpoint.damage,
    }


def change_json(change: Change) -> ChangeJson:
    """One difference; `old` and `new` are left out where there is none."""
    result: ChangeJson = {"path": change.path, "kind": change.kind}
    if change.kind != "added":
        result["old"] = to_json(change.old)
    if change.kind != "removed":
        result["new"] = to_json(change.new)
    return result


def diff_json(diff: Diff) -> DiffJson:
    """Two checkpoints and the changes between them."""
    return {
        "a": checkpoint_json(diff.a),
        "b": checkpoint_json(diff.b),
        "changes": [change_json(change) for change in diff.changes],
    }


def fork_json(fork: Fork) -> ForkJson:
    """A related thread."""
    return {"thread_id": fork.thread_id, "at": fork.at, "step": fork.step, "relation": fork.relation}
