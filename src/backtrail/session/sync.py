"""The two doors of a session: `Session` blocks, `AsyncSession` is awaited. The names are the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from backtrail.engines.drive import finish
from backtrail.errors import InvalidInput
from backtrail.message_shapes import Message
from backtrail.model import Checkpoint
from backtrail.runner import AsyncRunner, awaitable, blocking, listing, sharing
from backtrail.session.core import SessionCore

if TYPE_CHECKING:
    from backtrail.aio import AsyncThread
    from backtrail.store import Thread


class Session:
    """A thread seen as messages. Each write is one commit, whatever the length.

    session = store.session("support-42")
    session.add("user", "hello")
    session.messages(last=50)
    """

    def __init__(self, core: SessionCore, thread: Thread[Any]) -> None:
        self.core = core
        self.thread = thread  #: the same session, as checkpoints

    @property
    def id(self) -> str:
        """The name of the session."""
        return self.core.id

    @property
    def summary(self) -> str:
        """The summary of what was cut away, "" if there is none."""
        return finish(self.core.summary())

    @property
    def user_turns(self) -> int:
        """How often the user spoke, truncated turns included."""
        return finish(self.core.user_turns())

    add = blocking(SessionCore.add)
    append = blocking(SessionCore.append)
    extend = blocking(SessionCore.extend)
    messages = blocking(SessionCore.messages)
    ids = blocking(SessionCore.ids)
    count = blocking(SessionCore.count)
    exists = blocking(SessionCore.exists)
    info = blocking(SessionCore.info)
    stats = blocking(SessionCore.stats)
    pop = blocking(SessionCore.pop)
    clear = blocking(SessionCore.clear)
    replace = blocking(SessionCore.replace)
    truncate = blocking(SessionCore.truncate)
    set_summary = blocking(SessionCore.set_summary)
    save = blocking(SessionCore.save)
    repair = blocking(SessionCore.repair)
    snapshot = blocking(SessionCore.snapshot)
    delete = blocking(SessionCore.delete)

    def compact(self, summarize: Callable[[list[Message]], str], keep_last: int = 20) -> Checkpoint | None:
        """Put a summary in the place of all but the last few messages. `summarize` may take its time: nothing is
        locked while it runs, and messages added meanwhile stay. None if there was nothing to summarise."""
        _check_callable(summarize)
        part = finish(self.core.part(keep_last))
        return None if part is None else finish(self.core.apply(part, summarize(part.messages)))

    def rewind(self, message_id: str, files: bool = False) -> Checkpoint:
        """Go back to the snapshot of a message, turns and summary included. What came after it stays in the history,
        and `session.thread.undo()` brings it back. With `files`, the directory goes back along, or nothing does."""
        at = finish(self.core.find_snapshot(message_id))
        return self.thread.rewind(at, files=files)

    def fork(self, to: str | None = None, at: Any = None) -> Session:
        """A new session that stands where this one does; a name is made if none is given."""
        core = SessionCore(self.core.thread.context, finish(self.core.fork(to, at)), self.core.errors)
        return Session(core, type(self.thread)(core.thread))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an empty session is a session

    def __repr__(self) -> str:
        return f"<backtrail.Session {self.id!r}>"


class AsyncSession:
    """A thread seen as messages. Each write is one commit, whatever the length.

    session = store.session("support-42")
    await session.add("user", "hello")
    """

    def __init__(self, core: SessionCore, thread: AsyncThread[Any], hop: AsyncRunner) -> None:
        self.core = core
        self.thread = thread  #: the same session, as checkpoints
        self.hop = hop

    @property
    def id(self) -> str:
        """The name of the session."""
        return self.core.id

    @property
    async def summary(self) -> str:
        """The summary of what was cut away, "" if there is none: `await session.summary`."""
        return await self.hop(self.core.summary())

    @property
    async def user_turns(self) -> int:
        """How often the user spoke, truncated turns included: `await session.user_turns`."""
        return await self.hop(self.core.user_turns())

    add = sharing(SessionCore.add)
    append = sharing(SessionCore.append)
    extend = sharing(SessionCore.extend)
    messages = listing(SessionCore.messages)
    ids = listing(SessionCore.ids)
    count = awaitable(SessionCore.count)
    exists = awaitable(SessionCore.exists)
    info = awaitable(SessionCore.info)
    stats = awaitable(SessionCore.stats)
    pop = awaitable(SessionCore.pop)
    clear = awaitable(SessionCore.clear)
    replace = awaitable(SessionCore.replace)
    truncate = awaitable(SessionCore.truncate)
    set_summary = awaitable(SessionCore.set_summary)
    save = awaitable(SessionCore.save)
    repair = awaitable(SessionCore.repair)
    snapshot = awaitable(SessionCore.snapshot)
    delete = awaitable(SessionCore.delete)

    async def compact(
        self, summarize: Callable[[list[Message]], str | Awaitable[str]], keep_last: int = 20
    ) -> Checkpoint | None:
        """Put a summary in the place of all but the last few messages. `summarize` may be async and take its time:
        nothing is locked while it runs, and messages added meanwhile stay. None if there was nothing to summarise."""
        _check_callable(summarize)
        part = await self.hop(self.core.part(keep_last))
        if part is None:
            return None
        text = summarize(part.messages)
        return await self.hop(self.core.apply(part, await text if isinstance(text, Awaitable) else text))

    async def rewind(self, message_id: str, files: bool = False) -> Checkpoint:
        """Go back to the snapshot of a message, turns and summary included. What came after it stays in the history,
        and `session.thread.undo()` brings it back. With `files`, the directory goes back along, or nothing does."""
        at = await self.hop(self.core.find_snapshot(message_id))
        return await self.thread.rewind(at, files=files)

    async def fork(self, to: str | None = None, at: Any = None) -> AsyncSession:
        """A new session that stands where this one does; a name is made if none is given."""
        core = SessionCore(self.core.thread.context, await self.hop(self.core.fork(to, at)), self.core.errors)
        return AsyncSession(core, type(self.thread)(core.thread, self.hop), self.hop)

    def __repr__(self) -> str:
        return f"<backtrail.AsyncSession {self.id!r}>"


def _check_callable(summarize: object) -> None:
    if not callable(summarize):
        raise InvalidInput(f"summarize must be a callable that takes messages, not {type(summarize).__qualname__}")
