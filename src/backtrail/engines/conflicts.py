"""The reasons for which an engine refuses a commit, in one wording for all engines.

An engine knows branches, steps and threads, not checkpoint ids: the layers above catch these and say which checkpoint
was expected and which one is there.
"""

from __future__ import annotations

from backtrail.engines.base import Fence
from backtrail.errors import Conflict, LockLost, Unavailable


def moved(thread: str) -> Conflict:
    """A swap's `expect` is not what is there."""
    return Conflict(thread, None, None, f"thread {thread!r} moved: its head is not the one this commit was built on")


def step_taken(lineage: str, branch: bytes, step: int) -> Conflict:
    """Another writer has written this step of the branch."""
    return Conflict(lineage, None, None, f"step {step} of branch {branch.hex()} in {lineage!r} is taken")


def branch_taken(lineage: str, branch: bytes) -> Conflict:
    """A branch with this id exists."""
    return Conflict(lineage, None, None, f"branch {branch.hex()} exists already (wanted in {lineage!r})")


def branch_gone(lineage: str, branch: bytes) -> Conflict:
    """A row's branch exists neither in the store nor in the commit."""
    return Conflict(lineage, None, None, f"branch {branch.hex()} is not in {lineage!r}: a sweep removed it")


def fence_stale(fence: Fence) -> LockLost:
    """The lease that the commit relies on has had another owner since."""
    return LockLost(
        fence.name,
        None,
        None,
        f"the lock {fence.name!r} was lost: token {fence.token} is not its newest; take it anew",
    )


def swept_meanwhile(lineage: str) -> Conflict:
    """A head of the lineage moved, appeared or went while a sweep was looking."""
    return Conflict(lineage, None, None, f"the heads of {lineage!r} changed during the sweep: sweep it again")


def closed(name: str) -> Unavailable:
    """The engine was closed."""
    return Unavailable(f"this {name} store was closed: open it again with backtrail.open()")
