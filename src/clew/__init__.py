"""clew keeps the state of AI agents: every step saved, at the cost of what changed.

    import clew

    store = clew.open("agents.db")  # or "memory:", "jsonl:DIR", "redis://…", "postgresql://…"
    thread = store.thread("support-42")
    thread.append("messages", [{"role": "user", "content": "hello"}])
    thread.load()

`store.session(id)` is a thread seen as messages, `store.run(id)` one seen as a job that resumes, and
`store.workspace(directory)` a directory seen as snapshots. `clew.aio.open(url)` gives the same names to be awaited,
`clew.errors` has every error, and `clew.adapters` what frameworks plug in.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clew.errors import (
    AmbiguousCheckpoint,
    CheckpointNotFound,
    ClewError,
    Conflict,
    Corrupt,
    EncodeError,
    FilesError,
    InvalidInput,
    LockLost,
    LockTimeout,
    MissingExtra,
    NoCheckpoint,
    NotFound,
    ThreadNotFound,
    Unavailable,
    UnsafePath,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from clew import aio as aio
    from clew.encode.types import Unregistered
    from clew.model import (
        Change,
        Checkpoint,
        Copied,
        Damage,
        Diff,
        Fork,
        Outline,
        Part,
        Pruned,
        Retention,
        ThreadInfo,
        Verified,
    )
    from clew.run import Run, RunInfo
    from clew.session import Session, SessionInfo
    from clew.store import Store, Thread, open
    from clew.turns import Problem
    from clew.workspace import Limits, Snapshot, Workspace

__all__ = [
    "AmbiguousCheckpoint",
    "Change",
    "Checkpoint",
    "CheckpointNotFound",
    "ClewError",
    "Conflict",
    "Copied",
    "Corrupt",
    "Damage",
    "Diff",
    "EncodeError",
    "FilesError",
    "Fork",
    "InvalidInput",
    "Limits",
    "LockLost",
    "LockTimeout",
    "MissingExtra",
    "NoCheckpoint",
    "NotFound",
    "Outline",
    "Part",
    "Problem",
    "Pruned",
    "Retention",
    "Run",
    "RunInfo",
    "Session",
    "SessionInfo",
    "Snapshot",
    "Store",
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
]
__version__ = "0.1.0"

# Imported when they are first used: `clew --help` and an import of `clew.errors` need none of it.
_HOMES = {
    "clew.encode.types": ("Unregistered",),
    "clew.model": (
        *("Change", "Checkpoint", "Copied", "Damage", "Diff", "Fork", "Outline", "Part"),
        *("Pruned", "Retention", "ThreadInfo", "Verified"),
    ),
    "clew.run": ("Run", "RunInfo"),
    "clew.session": ("Session", "SessionInfo"),
    "clew.store": ("Store", "Thread", "open"),
    "clew.turns": ("Problem",),
    "clew.workspace": ("Limits", "Snapshot", "Workspace"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module("clew.aio")
    if name not in _HOME:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What an editor offers: the public names, without what this file or others needed for itself."""
    return sorted({*__all__, "aio", "errors", *(name for name in globals() if name.startswith("__"))})
