"""Capabilities that only some engines have: small classes that such an engine inherits, and one way to find them.

`capability(engine, SharesCommits)` gives the engine that has the capability, or None. It looks at the engine itself and
then, through `Engine.unwrap`, at the one that it wraps. A mirror wraps nothing in that sense: it stands before two
engines, and what one of them can do alone is not what both can do.
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


class PrefixesBranches(ABC):
    """An engine that says how the ids of branches begin (a mirror).

    A save goes on with a branch only while its id begins like that, and begins a new one otherwise. So when the prefix
    changes, nobody writes to the branches of before."""

    @property
    @abstractmethod
    def branch_prefix(self) -> bytes:
        """The first bytes of the ids of branches that may be written to now. It may change at any time."""


class SavesAdrift(ABC):
    """An engine that still takes saves when what was saved before cannot be read (a mirror with a spool)."""

    adrift: bool  #: saves go to the spool for now, and only the spool can be read

    @abstractmethod
    async def base(self, thread: str) -> tuple[Head, Row | None] | None:
        """Where the next save of a thread builds on: its tip, or, adrift, the newest that this process knows of it. Not
        to be given out as the thread's state, because it may be old."""


class FailsFast:
    """An engine over a network, which waits for a server that may be just starting."""

    #: If set and true, a refused connection is final: a healthy peer can answer. A mirror sets it.
    fail_fast: Callable[[], bool] | None = None


class SharesCommits:
    """A blocking engine that commits for many at once: coroutines that `finish_all` runs share one transaction."""


class StoredLocally(ABC):
    """An engine whose data is a file or a directory of this machine."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file or directory: no workspace takes it up, and no spool may lie in it."""
