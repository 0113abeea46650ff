"""What every part of a thread stands on: its name, its codec, its writer, and the one way to change its head.

A change of a head other than a save looks first, then swaps; if another writer was faster it looks again. That loop is
here, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from backtrail.encode.values import Values
from backtrail.engines.base import Commit, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import Conflict, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.records import open_note
from backtrail.history.retry import tries
from backtrail.history.save import Saver
from backtrail.history.validation import check_name

S = TypeVar("S")
T = TypeVar("T")


class Handle(Generic[S]):
    """One thread of a store. Cheap to make; nothing is read before it is used."""

    def __init__(self, context: Context, id: str, type: type[S] | None = None, kind: str = "thread") -> None:
        self.context = context
        self.id = check_name(id, "thread id")
        self.type = type
        self.kind = kind
        self.values = context.values if type is None else Values(context.values.types.with_type(type))
        self.writer = Saver(context, self.id, kind, self.values)

    async def standing(self) -> Head:
        """The head as the engine keeps it; `ThreadNotFound` if there is none."""
        self.context.check_open()
        head = await self.context.engine.head(self.id)
        if head is None:
            raise ThreadNotFound(self.id)
        open_note(self.context.frames, head)  # nothing relies on a damaged head
        return head

    async def insist(self, what: str, attempt: Callable[[Head], Awaitable[T | None]]) -> T:
        """Look at the head and try, again and again, until the attempt does not answer None."""
        for _ in tries():
            result = await attempt(await self.standing())
            if result is not None:
                return result
        raise Conflict(self.id, message=f"thread {self.id!r} kept moving: {what} it when its writers rest")

    async def swap(self, head: Head, new: Head | None, marks: Sequence[Mark] = (), also: Sequence[Swap] = ()) -> bool:
        """Put `new` in the place of `head`, with what belongs to it; False if another writer was faster."""
        self.context.tips.take(self.id)
        swaps = (Swap(self.id, head.key, new), *also)
        try:
            await self.context.engine.commit(Commit(head.lineage, swaps, marks=marks, fence=self.writer.fence))
        except Refused:
            return False
        return True
