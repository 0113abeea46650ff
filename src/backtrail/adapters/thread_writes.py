"""Writes that several adapters need: a retried compare-and-swap, and deleting a thread that may not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from backtrail.adapters.sync_bridge import maybe_await
from backtrail.errors import Conflict, NotFound

T = TypeVar("T")

_ATTEMPTS = 256  # in each round at least one of the writers that compete gets through


async def retry_on_conflict(thread_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Call `attempt`, which reads the head and writes on top of it, until no other writer came in between."""
    for _ in range(_ATTEMPTS):
        try:
            return await attempt()
        except Conflict:
            continue
    raise Conflict(thread_id)


async def delete_if_present(thread: Any, at: str | None = None) -> None:
    """Delete a thread, or one of its checkpoints; a missing one is not an error."""
    try:
        await maybe_await(thread.delete(at))
    except NotFound:
        return  # already deleted
