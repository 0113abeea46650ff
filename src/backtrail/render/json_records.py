"""The records of a store as JSON, in the shape that both `backtrail --json` and the HTTP API use."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal, NotRequired, TypedDict

from backtrail import Change, Checkpoint, Diff, Failure, Fork, Outcome, Pending, StepInfo, ThreadInfo
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


class FailureJson(TypedDict):
    """An exception, as it is recorded."""

    type: str
    message: str


class PendingJson(TypedDict):
    """A question that waits for an answer."""

    run_id: str
    task: str
    name: str
    question: Any
    about: Any
    schema: dict[str, Any] | None
    digest: str
    asked_at: str
    expires_at: str | None


class TokensJson(TypedDict):
    """Tokens that the model read, of which `cached` came from a cache, and tokens that it wrote."""

    input: int
    cached: int
    output: int


class RunStepJson(TypedDict):
    """A recorded step of a run. `model`, `tokens` and `cost` are those of a result that says what the model used; null
    for any other."""

    kind: str
    name: str
    key: str | int | None
    occurrence: int
    status: str
    started_at: str
    seconds: float
    attempts: int
    result: Any
    error: FailureJson | None
    by: str | None
    model: str | None
    tokens: TokensJson | None
    cost: float | None


class OutcomeJson(TypedDict):
    """How a run stands, or how it ended."""

    status: str
    result: Any
    error: FailureJson | None
    iteration: int
    input_tokens: int
    output_tokens: int
    created_at: str
    ended_at: str | None
    due_at: str | None


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


def pending_json(pending: Pending) -> PendingJson:
    """A question that waits for an answer, as JSON."""
    return {
        "run_id": pending.run_id,
        "task": pending.task,
        "name": pending.name,
        "question": to_json(pending.question),
        "about": to_json(pending.about),
        "schema": pending.schema,
        "digest": pending.digest,
        "asked_at": pending.asked_at.isoformat(),
        "expires_at": time_json(pending.expires_at),
    }


def step_json(step: StepInfo) -> RunStepJson:
    """A recorded step of a run, as JSON."""
    from backtrail.render.message_facts import facts_of  # imported here: most commands do not need it

    result = to_json(step.result)
    used = facts_of(result)
    tokens = used.tokens
    called = tokens is not None  # else a "cost" in the result is that of something else
    return {
        "kind": step.kind,
        "name": step.name,
        "key": step.key,
        "occurrence": step.occurrence,
        "status": step.status,
        "started_at": step.started_at.isoformat(),
        "seconds": step.seconds,
        "attempts": step.attempts,
        "result": result,
        "error": failure_json(step.error),
        "by": step.by,
        "model": used.model if called else None,
        "tokens": None if tokens is None else {"input": tokens.input, "cached": tokens.cached, "output": tokens.output},
        "cost": used.cost if called else None,
    }


def outcome_json(outcome: Outcome) -> OutcomeJson:
    """How a run stands, or how it ended, as JSON."""
    return {
        "status": outcome.status,
        "result": to_json(outcome.result),
        "error": failure_json(outcome.error),
        "iteration": outcome.iteration,
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
        "created_at": outcome.created_at.isoformat(),
        "ended_at": time_json(outcome.ended_at),
        "due_at": time_json(outcome.due_at),
    }


def time_json(moment: dt.datetime | None) -> str | None:
    """A time that may be missing."""
    return None if moment is None else moment.isoformat()


def failure_json(failure: Failure | None) -> FailureJson | None:
    """An exception that may not have happened."""
    return None if failure is None else {"type": failure.type, "message": failure.message}
