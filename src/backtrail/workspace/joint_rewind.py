"""Joint rewind: the move of a thread's head that belongs to the restore of a directory."""

from __future__ import annotations

from typing import Any, Literal

from backtrail.engines.base import changes_of
from backtrail.history.ancestry import Ancestry
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.records import open_note
from backtrail.history.resolve import resolve
from backtrail.history.thread_core import ThreadCore


class HeadMove:
    """A rewind of one thread from exactly one position, as plain data that survives the process."""

    def __init__(self, context: Context, data: dict[str, Any], thread: ThreadCore[Any] | None = None) -> None:
        self._context = context
        self._thread: ThreadCore[Any] = ThreadCore(context, data["thread"]) if thread is None else thread
        self.data = data

    @classmethod
    async def plan(cls, thread: ThreadCore[Any], at: Any) -> HeadMove:
        """The move of `thread` from its head to the checkpoint `at`."""
        context = thread.context
        head = await thread.require_head()
        seen = await resolve(context, head, at)
        trail = await Ancestry.of(context, head)
        return cls(
            context,
            {
                "thread": thread.id,
                "branch": head.branch,
                "step": head.step,
                "version": head.version,
                "to": uuid_text(seen.step.id),
                "to_branch": seen.branch.id,
                "to_step": seen.step.step,
                "back": seen.position in trail,
            },
            thread,
        )

    async def state(self) -> Literal["ready", "done", "lost"]:
        """ "ready" if the head is still where the move starts, "done" if the move was made, "lost" if the head went
        elsewhere."""
        head = await self._context.engine.head(self.data["thread"])
        if head is None:
            return "lost"
        start = (self.data["branch"], self.data["step"])
        if head.key == (*start, self.data["version"]):
            return "ready"
        checkpoint = uuid_text(open_note(self._context.frames, head).checkpoint)
        if changes_of(head.version) == changes_of(self.data["version"]) + 1 and checkpoint == self.data["to"]:
            return "done"
        trail = await Ancestry.of(self._context, head)
        # After a rewind, the position it left is not in the history any more; after a move forward, its target is.
        target = (self.data["to_branch"], self.data["to_step"])
        done = start not in trail if self.data["back"] else target in trail
        return "done" if done else "lost"

    async def make(self) -> bool:
        """Move the head; False if it is no longer where the move starts."""
        head = await self._context.engine.head(self.data["thread"])
        if head is None or head.key != (self.data["branch"], self.data["step"], self.data["version"]):
            return False
        return await self._thread.rewind_from(head, self.data["to"])
