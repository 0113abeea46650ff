"""A handle to one thread: its name, its codec, the checkpoint its caller last saw, and the one way to change its head.

A change of a head other than a save reads it, then swaps it; if another writer was faster, it starts over. That loop is
here, once. The operations on a thread are functions on a handle, in `reads`, `save`, `moves` and others; `thread_core`
lists them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from backtrail.encode.row_format import Root
from backtrail.encode.values import Values
from backtrail.engines.base import Commit, Fence, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import Conflict, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.records import open_note
from backtrail.history.retry import attempts
from backtrail.history.validation import check_name

S = TypeVar("S")
T = TypeVar("T")


class ThreadHandle(Generic[S]):
    """One thread of a store, whose states are of type `S`. Cheap to make; it reads nothing until it is used."""

    def __init__(self, context: Context, id: str, type: type[S] | None = None, kind: str = "thread") -> None:
        self.context = context
        self.id = check_name(id, "thread id")
        self.type = type
        self.kind = kind
        self.values = context.values if type is None else Values(context.values.types.with_type(type))
        self.base_id: bytes | None = None  #: the checkpoint that the caller last loaded or saved: a save builds on it
        self.loaded_kind = kind  #: the kind of the head that was loaded last
        self.unsure_id: bytes | None = None  #: a save of this handle that may have been made, although it raised
        self.fence: Fence | None = None  #: the lease that commits of this handle rely on
        self.caption: Callable[[Root, bytes], bytes] | None = None  #: for views: makes the head's caption

    async def require_head(self) -> Head:
        """The head, read from the engine; `ThreadNotFound` if there is none."""
        self.context.check_open()
        head = await self.context.engine.head(self.id)
        if head is None:
            raise ThreadNotFound(self.id)
        open_note(self.context.frames, head)  # nothing relies on a damaged head
        return head

    async def retry_cas(self, verb: str, attempt: Callable[[Head], Awaitable[T | None]]) -> T:
        """Call `attempt` with the head until it does not return None, which means that another writer was faster."""
        for _ in attempts():
            result = await attempt(await self.require_head())
            if result is not None:
                return result
        raise Conflict(self.id, message=f"thread {self.id!r} kept moving: {verb} it when its writers rest")

    async def swap_head(
        self, head: Head, new: Head | None, marks: Sequence[Mark] = (), also: Sequence[Swap] = ()
    ) -> bool:
        """Replace `head` by `new`, in one commit with the rest; False if another writer was faster."""
        self.context.caches.tips.take(self.id)
        swaps = (Swap(self.id, head.key, new), *also)
        try:
            await self.context.engine.commit(Commit(head.lineage, swaps, marks=marks, fence=self.fence))
        except Refused:
            return False
        return True
