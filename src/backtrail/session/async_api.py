"""`AsyncSession`: the names of `Session`, to be awaited. Lists may also be looped over with `async for`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic
from uuid import UUID

from backtrail.async_runner import AsyncRunner, AwaitableList
from backtrail.html_table import html_table
from backtrail.message_shapes import Message, Problem
from backtrail.model import At, Checkpoint
from backtrail.session.session_core import SessionCore
from backtrail.session.sync_api import check_callable
from backtrail.thread.async_api import AsyncThread
from backtrail.thread.views import AsyncThreadView
from backtrail.typing import F_co, Files

if TYPE_CHECKING:
    from backtrail.session.listing import SessionInfo


class AsyncSession(AsyncThreadView, Generic[F_co]):
    """A thread seen as messages. Each write is one commit, whatever the length.

    session = store.session("support-42")
    await session.add("user", "hello")
    await session.messages(last=50)

    `AsyncSession[None]` is one with errors="log": its writes return None where others raise.
    """

    def __init__(self, core: SessionCore, runner: AsyncRunner) -> None:
        self._core = core
        self._runner = runner
        self.thread: AsyncThread[dict[str, Any]] = AsyncThread(core.thread, runner)  #: the same, as checkpoints

    @property
    def id(self) -> str:
        """The name of the session."""
        return self._core.id

    @property
    async def summary(self) -> str:
        """The summary of the messages that were cut away, "" if there is none: `await session.summary`."""
        return await self._runner(self._core.summary())

    @property
    async def user_turns(self) -> int:
        """The number of user turns, truncated ones included: `await session.user_turns`."""
        return await self._runner(self._core.user_turns())

    # -- adding -------------------------------------------------------------------------------------------------------

    async def add(
        self,
        /,
        role: str,
        content: Any,
        *,
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        **fields: Any,
    ) -> Checkpoint | F_co:
        """Append the message `{"role": role, "content": content, **fields}`.

            await session.add("user", "hello", label="question")

        `label`, `tags`, `custom` and `files` belong to the checkpoint, as in `thread.save`; a message that has fields
        of these names goes through `append`.
        """
        work = self._core.add(role, content, label=label, tags=tags, custom=custom, files=files, **fields)
        return await self._write(work, files)

    async def append(
        self,
        message: Mapping[str, Any],
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        id: UUID | str | None = None,
    ) -> Checkpoint | F_co:
        """Append a message of any shape, kept as it is; the rest is as in `thread.append`.

        await session.append({"role": "user", "content": "hello"}, tags=["draft"])
        """
        write = self._core.append(message, label, tags, custom, files, id)  # type: ignore[arg-type]  # a TypedDict is a dict
        return await self._write(write, files)

    async def extend(
        self,
        messages: Iterable[Mapping[str, Any]],
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        id: UUID | str | None = None,
    ) -> Checkpoint | F_co:
        """Append several messages as one checkpoint; the rest is as in `thread.append`."""
        return await self._write(self._core.extend(messages, label, tags, custom, files, id), files)

    def _write(
        self, work: Coroutine[Any, Any, Checkpoint | None], files: Files | None
    ) -> Coroutine[Any, Any, Checkpoint | F_co]:
        """Add messages, in one commit with what other tasks save; a snapshot of files may take long, and runs alone."""
        return self._runner.together(self._narrow(work)) if files is None else self._runner(self._narrow(work))

    def _narrow(self, write: Coroutine[Any, Any, Checkpoint | None]) -> Coroutine[Any, Any, Checkpoint | F_co]:
        """Give a write its public type: it returns None only with errors="log", where F_co is None."""
        return write  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    # -- reading ------------------------------------------------------------------------------------------------------

    def messages(self, last: int | None = None, whole: bool = True, at: At | None = None) -> AwaitableList[Message]:
        """Read the messages, or the last few; the rest is not read.

            await session.messages(last=50)

        `whole` adds the messages before them that hold the calls of tool results, so `last=n` may return a few
        more than n.
        """
        return AwaitableList(self._runner(self._core.messages(last, whole, at)))

    def ids(self, last: int | None = None, whole: bool = True, at: At | None = None) -> AwaitableList[str]:
        """Read the ids of `messages(last, whole)`: the id a message carries, or `#<number>` if it carries none."""
        return AwaitableList(self._runner(self._core.ids(last, whole, at)))

    async def count(self) -> int:
        """Count the messages."""
        return await self._runner(self._core.count())

    async def exists(self) -> bool:
        """True if anything was saved under this id."""
        return await self._runner(self._core.exists())

    async def info(self) -> SessionInfo:
        """Get the session's entry in a listing."""
        return await self._runner(self._core.info())

    async def stats(self) -> dict[str, int]:
        """Count messages, user turns, and the writes of this handle that failed (errors="log")."""
        return await self._runner(self._core.stats())

    # -- changing -----------------------------------------------------------------------------------------------------

    async def pop(self) -> Message | None:
        """Remove the last message and return it; None if there is none."""
        return await self._runner(self._core.pop())

    async def clear(self) -> Checkpoint | None:
        """Remove messages, summary and turns; they stay in the history. None if there was no session."""
        return await self._runner(self._core.clear())

    async def replace(self, messages: Iterable[Mapping[str, Any]], user_turns: int | None = None) -> Checkpoint | F_co:
        """Replace all messages; unchanged ones are not written again.

        `Conflict` is raised if another writer has saved since this handle last read or wrote.
        """
        return await self._runner(self._narrow(self._core.replace(messages, user_turns)))

    async def truncate(
        self, keep_last: int | None = None, before: str | None = None, at: At | None = None
    ) -> Checkpoint | None:
        """Cut away old messages: all but the last few, those before a message, or those that checkpoint `at` had.

            await session.truncate(keep_last=100)

        A tool call is never separated from its result, so a few more messages may stay. None if there was nothing to
        cut.
        """
        return await self._runner(self._core.truncate(keep_last, before, at))

    async def set_summary(self, text: str) -> Checkpoint | F_co:
        """Store a summary with the messages; "" removes it."""
        return await self._runner(self._narrow(self._core.set_summary(text)))

    async def compact(
        self, summarize: Callable[[list[Message]], str | Awaitable[str]], keep_last: int = 20
    ) -> Checkpoint | None:
        """Replace all but the last few messages with a summary; None if there was nothing to summarise.

            await session.compact(lambda messages: llm("Summarise", messages), keep_last=20)

        `summarize` may be async and take its time: nothing is locked while it runs, and messages added meanwhile stay.
        """
        check_callable(summarize)
        compaction = await self._runner(self._core.plan_compaction(keep_last))
        if compaction is None:
            return None
        text = summarize(compaction.messages)
        summary = await text if isinstance(text, Awaitable) else text
        return await self._runner(self._core.apply_compaction(compaction, summary))

    async def repair(self, fix: bool = False, alternating: bool = False) -> list[Problem]:
        """List the problems for which a provider would refuse the messages: a tool call without a result, a result
        without a call, and, with
        `alternating`, two user turns in a row.

        With `fix`, they are repaired: a marked result is added, the orphan is removed, a marked reply is added. The
        original messages stay in the history.
        """
        return await self._runner(self._core.repair(fix, alternating))

    # -- checkpoints --------------------------------------------------------------------------------------------------

    async def save(
        self,
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
    ) -> Checkpoint | F_co:
        """Get the checkpoint that holds everything added so far: all of it is durable already.

        A missing session is created; a label, tags, custom fields or files make a checkpoint of their own.
        """
        return await self._runner(self._narrow(self._core.save(label, tags, custom, files)))

    async def snapshot(self, message_id: str, files: Files | None = None) -> Checkpoint | F_co:
        """Tie the session as it is now to a message id, so that `rewind(message_id)` returns to it.

        `files` is a workspace, of which a snapshot is taken, or one of its snapshots.
        """
        return await self._runner(self._narrow(self._core.snapshot(message_id, files)))

    async def rewind(
        self,
        message_id: str | None = None,
        files: bool = False,
        *,
        turn: int | None = None,
        at: At | None = None,
        keep_untracked: bool = False,
    ) -> Checkpoint:
        """Go back to the snapshot of a message, to before a user turn, or to any checkpoint, with turns and summary.

            await session.rewind("msg-17")
            await session.rewind(turn=-1)

        Turns are numbered from 1, and -1 is the last one: the session is as it was before that turn began. Later
        checkpoints are abandoned, and `undo` takes the rewind back. With `files`, the directory is restored as well:
        both move, or neither does; with `keep_untracked`, files that no snapshot holds stay.
        """
        point = await self._runner(self._core.rewind_point(message_id, turn, at))
        return await self.thread.rewind(point, files, keep_untracked=keep_untracked)

    async def fork(self, to: str | None = None, at: At | None = None) -> AsyncSession[F_co]:
        """Make a new session at the head of this one, or at `at`; without `to`, a name is generated."""
        core = self._core
        name = await self._runner(core.fork(to, at))
        return AsyncSession(SessionCore(core.thread.context, name, core.errors), self._runner)

    async def delete(self) -> None:
        """Delete the session and its history; a missing session is not an error."""
        await self._runner(self._core.delete())

    def _repr_html_(self) -> str:
        """For notebooks: what is known of it without reading."""
        return html_table(f"session {self.id}", [("its messages", "await session.messages(last=10)")])

    def __repr__(self) -> str:
        return f"<backtrail.AsyncSession {self.id!r}>"
