"""Capabilities that only some engines have: small base classes for such engines, and one function that finds them.

`capability(engine, SharesCommits)` returns the engine that has the capability, or None: the engine itself or, through
`Engine.unwrap`, one that it wraps. A mirror does not unwrap: it combines two engines, and a capability of one of them
is not a capability of both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from backtrail.engines.base import Engine, Head, Row

T = TypeVar("T")


def capability(engine: Engine, kind: type[T]) -> T | None:
    """`engine`, or the outermost of the engines that it wraps, if it is a `kind`; else None."""
    found: Engine | None = engine
    while found is not None:
        if isinstance(found, kind):
            return found
        found = found.unwrap()
    return None


class WritesInGenerations(ABC):
    """An engine whose writes belong to generations (a mirror): each change of its active side begins a new one.

    A head that is changed gets a version of the current generation. A save continues a branch only if its id has the
    current prefix, and starts a new one otherwise: no writer adds to the branches of an earlier generation."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """The current generation. It may change at any time."""

    @property
    @abstractmethod
    def branch_prefix(self) -> bytes:
        """The first bytes of the ids of branches that may be written to. It may change at any time."""

    @property
    @abstractmethod
    def may_drop(self) -> bool:
        """True if both sides can free what a sweep finds. While it is false, a drop is `Deferred`."""


class SavesAdrift(ABC):
    """An engine that accepts saves even while earlier ones cannot be read (a mirror with a spool)."""

    adrift: bool  #: saves go to the spool for now, and only the spool can be read

    @abstractmethod
    async def base(self, thread: str) -> tuple[Head, Row | None] | None:
        """The head and row that the thread's next save follows: its tip or, adrift, the newest one that this process
        knows. Never returned to a user as the thread's state, because it may be old."""


class FailsFast:
    """An engine over a network. Normally it waits for a server that may just be starting."""

    #: If set and true, a refused connection is final: a healthy peer can answer. A mirror sets it.
    fail_fast: Callable[[], bool] | None = None


class SharesCommits:
    """A blocking engine with group commit: coroutines that `finish_all` runs share one transaction."""


class StoredLocally(ABC):
    """An engine whose data is a file or a directory on this machine."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file or directory. Workspaces exclude it from snapshots, and a spool must not be inside it."""
