"""Joint rewind: what happens to a thread together with the restore of a directory, both or neither.

`HeadMove` rewinds a thread's head; `SaveMove` saves a checkpoint that tells of the restore. Both are plain data in the
restore's intent, so that whoever finds the intent after a crash can finish them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from backtrail.engines.base import changes_of
from backtrail.errors import CheckpointNotFound, Conflict, NotFound
from backtrail.history.ancestry import Ancestry
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.records import open_note
from backtrail.history.resolve import resolve
from backtrail.history.thread_core import ThreadCore
from backtrail.workspace.model import JointSave


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


class SaveMove:
    """The save of one checkpoint, as plain data that survives the process."""

    def __init__(self, context: Context, data: dict[str, Any]) -> None:
        self._thread: ThreadCore[Any] = ThreadCore(context, data["thread"])
        self._context = context
        self._save = msgspec.convert(data["save"], JointSave)
        self.data = data

    @classmethod
    def plan(cls, context: Context, save: JointSave, files: str | None) -> SaveMove:
        """The save of `save`, whose files are those of the snapshot reference `files`."""
        return cls(context, {"thread": save.thread, "save": msgspec.to_builtins(save), "files": files})

    async def state(self) -> Literal["ready", "done", "lost"]:
        """ "ready" if the thread still stands where the save follows, "done" if it was made, "lost" otherwise."""
        head = await self._thread.head()
        if head is None:
            return "ready" if self._save.fork_of is not None else "lost"
        try:
            await self._thread.get(self._save.id)
        except CheckpointNotFound:
            return "ready" if head.id == self._save.after else "lost"
        return "done"

    async def make(self) -> bool:
        """Save the checkpoint; False if the thread no longer stands where it follows."""
        save = self._save
        try:
            if save.fork_of is not None and not await self._thread.exists():
                await ThreadCore(self._context, save.fork_of).fork(save.thread, save.after)
            files = None if self.data["files"] is None else _FileReference(self.data["files"])
            await self._thread.update(
                {}, label=save.label, custom=save.custom, files=files, expect=save.after, id=save.id
            )
        except (Conflict, NotFound):
            return await self.state() == "done"
        return True


class _FileReference:
    """A snapshot that a checkpoint is saved with, by its reference."""

    def __init__(self, reference: str) -> None:
        self._reference = reference

    async def __file_reference__(self) -> str:
        return self._reference


def move_from(context: Context, data: dict[str, Any]) -> HeadMove | SaveMove:
    """What a restore's intent says of a thread."""
    return SaveMove(context, data) if "save" in data else HeadMove(context, data)
