"""What sessions and runs have in common with threads: their checkpoints, and going back and forth between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from backtrail.async_runner import AwaitableList
from backtrail.model import At, Checkpoint, Diff

if TYPE_CHECKING:
    from backtrail.thread.async_api import AsyncThread
    from backtrail.thread.sync_api import Thread


class ThreadView:
    """The calls of a thread that every view of it has too."""

    thread: Thread[dict[str, Any]]

    def load(self, at: At | None = None) -> dict[str, Any]:
        """Load the whole state at the head, or at `at`."""
        return self.thread.load(at)

    def get(self, at: At) -> Checkpoint:
        """Get the checkpoint that `at` names."""
        return self.thread.get(at)

    def history(self, limit: int | None = None, newest_first: bool = False, all: bool = False) -> list[Checkpoint]:
        """List the checkpoints from the first to the head, oldest first; `all` adds the abandoned ones."""
        return self.thread.history(limit, newest_first, all)

    def diff(self, a: At = "@~1", b: At | None = None, since_fork: bool = False) -> Diff:
        """Compare the states at `a` and at `b`, by default the last two."""
        return self.thread.diff(a, b, since_fork)

    def annotate(
        self,
        at: At,
        label: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType | None = UNSET,
        custom: Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> Checkpoint:
        """Change the label, tags or custom fields of a checkpoint; those that are not given stay."""
        return self.thread.annotate(at, label, tags, custom)

    def undo(self) -> Checkpoint:
        """Take back the last move of the head: a rewind, or a save."""
        return self.thread.undo()

    def redo(self) -> Checkpoint:
        """Do again what the last `undo` took back."""
        return self.thread.redo()


class AsyncThreadView:
    """The names of `ThreadView`, to be awaited."""

    thread: AsyncThread[dict[str, Any]]

    async def load(self, at: At | None = None) -> dict[str, Any]:
        """Load the whole state at the head, or at `at`."""
        return await self.thread.load(at)

    async def get(self, at: At) -> Checkpoint:
        """Get the checkpoint that `at` names."""
        return await self.thread.get(at)

    def history(
        self, limit: int | None = None, newest_first: bool = False, all: bool = False
    ) -> AwaitableList[Checkpoint]:
        """List the checkpoints from the first to the head, oldest first; `all` adds the abandoned ones."""
        return self.thread.history(limit, newest_first, all)

    async def diff(self, a: At = "@~1", b: At | None = None, since_fork: bool = False) -> Diff:
        """Compare the states at `a` and at `b`, by default the last two."""
        return await self.thread.diff(a, b, since_fork)

    async def annotate(
        self,
        at: At,
        label: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType | None = UNSET,
        custom: Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> Checkpoint:
        """Change the label, tags or custom fields of a checkpoint; those that are not given stay."""
        return await self.thread.annotate(at, label, tags, custom)

    async def undo(self) -> Checkpoint:
        """Take back the last move of the head: a rewind, or a save."""
        return await self.thread.undo()

    async def redo(self) -> Checkpoint:
        """Do again what the last `undo` took back."""
        return await self.thread.redo()
