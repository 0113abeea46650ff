"""Conversation and files, moved together: the head's half of a rewind that also restores a directory."""

from __future__ import annotations

from typing import Any, Literal

from backtrail.history.ancestry import Ancestry, resolve
from backtrail.history.context import Context
from backtrail.history.records import open_note, uuid_text
from backtrail.history.thread import Thread


class HeadMove:
    """A rewind of one thread from exactly one place, as plain data that survives the process."""

    def __init__(self, context: Context, intent: dict[str, Any], thread: Thread[Any] | None = None) -> None:
        self._context = context
        self._thread: Thread[Any] = Thread(context, intent["thread"]) if thread is None else thread
        self.intent = intent

    @classmethod
    async def plan(cls, thread: Thread[Any], at: Any) -> HeadMove:
        """The move of `thread` from where it stands to the checkpoint `at`."""
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
        """Whether the head is still where the move starts, has been moved by it, or went elsewhere."""
        head = await self._context.engine.head(self.intent["thread"])
        if head is None:
            return "lost"
        start = (self.intent["branch"], self.intent["step"])
        if head.key == (*start, self.intent["version"]):
            return "ready"
        stands = uuid_text(open_note(self._context.frames, head).checkpoint)
        if head.version == self.intent["version"] + 1 and stands == self.intent["to"]:
            return "done"
        trail = await Ancestry.of(self._context, head)
        # After a rewind the place it left is off the trail; after a move forward the place it went to is on it.
        goal = (self.intent["to_branch"], self.intent["to_step"])
        done = start not in trail if self.intent["back"] else goal in trail
        return "done" if done else "lost"

    async def make(self) -> bool:
        """Move the head; False if it is no longer where it was."""
        head = await self._context.engine.head(self.intent["thread"])
        if head is None or head.key != (self.intent["branch"], self.intent["step"], self.intent["version"]):
            return False
        return await self._thread.rewind_from(head, self.intent["to"])
