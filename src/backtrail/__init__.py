"""backtrail keeps the state of AI agents: every step saved, at the cost of what changed.

    import backtrail

    store = backtrail.open("backtrail.db")  # or "memory:", "jsonl:DIR", "redis://…", "postgresql://…"
    thread = store.thread("support-42")
    thread.append("messages", [{"role": "user", "content": "hello"}])
    thread.load()

`store.session(id)` is a thread seen as messages, `store.run(id)` one seen as a job that resumes, and
`store.workspace(directory)` a directory seen as snapshots. `backtrail.aio.open(url)` gives the same names to be
awaited, `backtrail.errors` has every error, `backtrail.typing` the types of arguments, and `backtrail.adapters` the
adapters for frameworks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from backtrail.errors import (
    AlreadyAnswered,
    AmbiguousCheckpoint,
    BacktrailError,
    CheckpointNotFound,
    Closed,
    Conflict,
    Corrupt,
    EncodeError,
    FilesError,
    InvalidAnswer,
    InvalidInput,
    LockLost,
    LockTimeout,
    MissingExtra,
    NoCheckpoint,
    NoDirectory,
    NotFound,
    OverBudget,
    QuestionChanged,
    QuestionExpired,
    QuestionNotFound,
    RunFinished,
    StepAmbiguous,
    StepChanged,
    StepError,
    StepFailed,
    StepMisused,
    StepUncertain,
    Suspended,
    ThreadNotFound,
    Unavailable,
    UnsafePath,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from backtrail import aio as aio
    from backtrail import typing as typing
    from backtrail.encode.record_types import Unregistered
    from backtrail.janitor import Janitor, JanitorStatus
    from backtrail.message_shapes import Problem
    from backtrail.model import (
        Budget,
        Change,
        Checkpoint,
        Copied,
        Damage,
        Diff,
        Fork,
        Hole,
        Outline,
        Part,
        Pruned,
        Retention,
        ThreadInfo,
        Verified,
    )
    from backtrail.retrying import retry
    from backtrail.run import (
        Divergence,
        Done,
        Failure,
        Outcome,
        Pending,
        Replayed,
        Retry,
        Run,
        RunInfo,
        StepInfo,
        step_key,
    )
    from backtrail.session import Session, SessionInfo
    from backtrail.store import Store, open
    from backtrail.thread import Autosave, Lock, Thread
    from backtrail.workspace import Limits, Snapshot, Workspace

__all__ = [
    "AlreadyAnswered",
    "AmbiguousCheckpoint",
    "Autosave",
    "BacktrailError",
    "Budget",
    "Change",
    "Checkpoint",
    "CheckpointNotFound",
    "Closed",
    "Conflict",
    "Copied",
    "Corrupt",
    "Damage",
    "Diff",
    "Divergence",
    "Done",
    "EncodeError",
    "Failure",
    "FilesError",
    "Fork",
    "Hole",
    "InvalidAnswer",
    "InvalidInput",
    "Janitor",
    "JanitorStatus",
    "Limits",
    "Lock",
    "LockLost",
    "LockTimeout",
    "MissingExtra",
    "NoCheckpoint",
    "NoDirectory",
    "NotFound",
    "Outcome",
    "Outline",
    "OverBudget",
    "Part",
    "Pending",
    "Problem",
    "Pruned",
    "QuestionChanged",
    "QuestionExpired",
    "QuestionNotFound",
    "Replayed",
    "Retention",
    "Retry",
    "Run",
    "RunFinished",
    "RunInfo",
    "Session",
    "SessionInfo",
    "Snapshot",
    "StepAmbiguous",
    "StepChanged",
    "StepError",
    "StepFailed",
    "StepInfo",
    "StepMisused",
    "StepUncertain",
    "Store",
    "Suspended",
    "Thread",
    "ThreadInfo",
    "ThreadNotFound",
    "Unavailable",
    "Unregistered",
    "UnsafePath",
    "UnsupportedFormat",
    "Verified",
    "Workspace",
    "open",
    "retry",
    "step_key",
]
__version__ = "0.1.0"

# Imported when they are first used: `backtrail --help` and an import of `backtrail.errors` need none of it.
_HOMES = {
    "backtrail.encode.record_types": ("Unregistered",),
    "backtrail.model": (
        *("Budget", "Change", "Checkpoint", "Copied", "Damage", "Diff", "Fork", "Hole"),
        *("Outline", "Part", "Pruned", "Retention", "ThreadInfo", "Verified"),
    ),
    "backtrail.retrying": ("retry",),
    "backtrail.run": (
        *("Divergence", "Done", "Failure", "Outcome", "Pending", "Replayed", "Retry", "Run", "RunInfo", "StepInfo"),
        "step_key",
    ),
    "backtrail.session": ("Session", "SessionInfo"),
    "backtrail.janitor": ("Janitor", "JanitorStatus"),
    "backtrail.store": ("Store", "open"),
    "backtrail.thread": ("Autosave", "Lock", "Thread"),
    "backtrail.message_shapes": ("Problem",),
    "backtrail.workspace": ("Limits", "Snapshot", "Workspace"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in ("aio", "typing"):
            return import_module(f"backtrail.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'backtrail' has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, for interactive shells: without the imports of this file."""
    return sorted({*__all__, "aio", "errors", "typing", *(name for name in globals() if name.startswith("__"))})
