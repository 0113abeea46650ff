"""The reasons for which an engine refuses a commit or a drop, in one wording for all engines.

An engine knows branches, steps and threads, not checkpoint ids. So it raises `Refused`, and the layers above read again
and retry, or give up with the public `Conflict`, which names the checkpoint that was expected and the one that is
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backtrail.engines.base import Fence
from backtrail.errors import Closed, Conflict, LockLost


class Refused(Exception):
    """An engine refused a commit or a drop because of what is there now, and changed nothing.

    It never reaches a user, so it is not a `BacktrailError`. `name` is the thread or lineage it concerns."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name

    def as_conflict(self) -> Conflict:
        """The public error, for a change that is not retried any more."""
        return Conflict(self.name, message=str(self))


class Deferred(Refused):
    """A drop that is refused for now: the follower of a mirror cannot take it, so nothing was deleted."""

    def __init__(self, lineage: str) -> None:
        super().__init__(lineage, f"{lineage!r} is freed later, when both sides of the mirror are reachable and equal")


@contextmanager
def refusals_as_conflicts() -> Iterator[None]:
    """Turn a refusal inside the block into the public `Conflict`, for changes that are not retried."""
    try:
        yield
    except Refused as refused:
        raise refused.as_conflict() from refused


def moved(thread: str) -> Refused:
    """A swap's `expect` is not the current head."""
    return Refused(thread, f"thread {thread!r} moved: its head is not the one this commit was built on")


def step_taken(lineage: str, branch: bytes, step: int) -> Refused:
    """Another writer has written this step of the branch."""
    return Refused(lineage, f"step {step} of branch {branch.hex()} in {lineage!r} is taken")


def branch_taken(lineage: str, branch: bytes) -> Refused:
    """A branch with this id exists."""
    return Refused(lineage, f"branch {branch.hex()} exists already (wanted in {lineage!r})")


def branch_gone(lineage: str, branch: bytes) -> Refused:
    """A row's branch exists neither in the store nor in the commit."""
    return Refused(lineage, f"branch {branch.hex()} is not in {lineage!r}: a sweep removed it")


def fence_stale(fence: Fence) -> LockLost:
    """The lease that the commit relies on has had another owner since.

    A retry cannot help, so this is a public error from the start."""
    return LockLost(
        fence.name, message=f"the lock {fence.name!r} was lost: token {fence.token} is not its newest; take it anew"
    )


def swept_meanwhile(lineage: str) -> Refused:
    """A head of the lineage moved, appeared or disappeared during a sweep."""
    return Refused(lineage, f"the heads of {lineage!r} changed during the sweep: sweep it again")


def closed(name: str) -> Closed:
    """The engine was closed."""
    return Closed(f"this {name} store was closed: open it again with backtrail.open()")
