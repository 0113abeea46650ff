"""clew keeps the state of AI agents: every step saved, at the cost of what changed.

import clew

store = clew.open("agents.db")
thread = store.thread("support-42")
thread.append("messages", [{"role": "user", "content": "hello"}])
"""

from clew.encode.types import Unregistered
from clew.errors import (
    AmbiguousCheckpoint,
    CheckpointNotFound,
    ClewError,
    Conflict,
    Corrupt,
    EncodeError,
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
from clew.model import Change, Checkpoint, Diff, Fork, Outline, Part, Retention, ThreadInfo
from clew.store import Store, Thread, open

__all__ = [
    "AmbiguousCheckpoint",
    "Change",
    "Checkpoint",
    "CheckpointNotFound",
    "ClewError",
    "Conflict",
    "Corrupt",
    "Diff",
    "EncodeError",
    "Fork",
    "InvalidInput",
    "LockLost",
    "LockTimeout",
    "MissingExtra",
    "NoCheckpoint",
    "NotFound",
    "Outline",
    "Part",
    "Retention",
    "Store",
    "Thread",
    "ThreadInfo",
    "ThreadNotFound",
    "Unavailable",
    "Unregistered",
    "UnsafePath",
    "UnsupportedFormat",
    "open",
]
__version__ = "0.1.0"
