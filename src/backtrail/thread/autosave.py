"""Saving every n-th state of a thread. `EveryNth` counts and keeps the newest state until it is saved."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from backtrail.errors import InvalidInput
from backtrail.model import Checkpoint
from backtrail.typing import Facts, S, State

if TYPE_CHECKING:
    from backtrail.thread.async_api import AsyncThread
    from backtrail.thread.sync_api import Thread


class EveryNth:
    """Decides which states are saved."""

    def __init__(self, every: int) -> None:
        if type(every) is not int or every < 1:
            raise InvalidInput(f"every must be an int from 1 up, not {every!r}")
        self.every = every
        self.pending: Any = None
        self.facts = Facts()
        self.waiting = 0

    def due(self, state: Any, facts: Facts) -> bool:
        """Keep a state and its facts; True if it is one to save."""
        self.pending, self.facts = state, facts
        self.waiting += 1
        return self.waiting >= self.every

    def saved(self) -> None:
        """Begin to count anew."""
        self.pending, self.facts, self.waiting = None, Facts(), 0


class Autosave(Generic[S]):
    """Saves every n-th state that it is called with, and the last one at the end of the `with`.

    with thread.autosave(every=10) as save:
        for state in states:
            save(state)
    """

    def __init__(self, thread: Thread[S], every: int) -> None:
        self._thread = thread
        self._every = EveryNth(every)

    @overload
    def __call__(self: Autosave[dict[str, Any]], state: State, **facts: Unpack[Facts]) -> Checkpoint | None: ...
    @overload
    def __call__(self, state: S, **facts: Unpack[Facts]) -> Checkpoint | None: ...
    def __call__(self, state: Any, **facts: Unpack[Facts]) -> Checkpoint | None:
        """Take a state, with the keywords of `thread.save`; return the checkpoint if it was saved."""
        return self._save() if self._every.due(state, facts) else None

    def flush(self) -> Checkpoint | None:
        """Save the newest state, if it was not saved yet."""
        return self._save() if self._every.waiting else None

    def _save(self) -> Checkpoint:
        saved = self._thread.save(self._every.pending, **self._every.facts)
        self._every.saved()
        return saved

    def __enter__(self) -> Autosave[S]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


class AsyncAutosave(Generic[S]):
    """Saves every n-th state that it is called with, and the last one at the end of the `async with`.

    async with thread.autosave(every=10) as save:
        for state in states:
            await save(state)
    """

    def __init__(self, thread: AsyncThread[S], every: int) -> None:
        self._thread = thread
        self._every = EveryNth(every)

    @overload
    async def __call__(
        self: AsyncAutosave[dict[str, Any]], state: State, **facts: Unpack[Facts]
    ) -> Checkpoint | None: ...
    @overload
    async def __call__(self, state: S, **facts: Unpack[Facts]) -> Checkpoint | None: ...
    async def __call__(self, state: Any, **facts: Unpack[Facts]) -> Checkpoint | None:
        """Take a state, with the keywords of `thread.save`; return the checkpoint if it was saved."""
        return await self._save() if self._every.due(state, facts) else None

    async def flush(self) -> Checkpoint | None:
        """Save the newest state, if it was not saved yet."""
        return await self._save() if self._every.waiting else None

    async def _save(self) -> Checkpoint:
        saved = await self._thread.save(self._every.pending, **self._every.facts)
        self._every.saved()
        return saved

    async def __aenter__(self) -> AsyncAutosave[S]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.flush()
