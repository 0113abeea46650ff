"""The async front door: `backtrail.aio.open(url)`, with the same names as `backtrail.open`, to be awaited. What gives a
list may also be gone through with `async for`.

Over a blocking engine each call runs whole in one thread, so the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from backtrail import factory
from backtrail.autosave import EveryNth
from backtrail.engines.base import Engine, Taken
from backtrail.history import keyring
from backtrail.history.context import Context
from backtrail.history.lock import POLL
from backtrail.history.lock import Lock as CoreLock
from backtrail.history.outline import outline
from backtrail.history.relatives import forks
from backtrail.history.store import Upkeep
from backtrail.history.sweep import Progress
from backtrail.history.thread import Thread as CoreThread
from backtrail.janitor import AsyncJanitor
from backtrail.model import At, Checkpoint, Copied, Retention
from backtrail.run import RunCore, RunInfo, list_runs
from backtrail.run.aio import AsyncRun
from backtrail.runner import AsyncRunner, Listed, awaitable, listing, sharing
from backtrail.session import AsyncSession, SessionCore, SessionInfo, list_sessions

if TYPE_CHECKING:
    from backtrail.importers import Report
    from backtrail.replicate.report import Progress as SyncProgress
    from backtrail.replicate.report import Report as Synced
    from backtrail.workspace import AsyncWorkspace

S = TypeVar("S")
T = TypeVar("T")
_Raised = type[BaseException] | None


@overload
async def open(target: str | PathLike[str] | Engine, **options: Unpack[factory.Options]) -> AsyncStore: ...
@overload
async def open(target: str | PathLike[str] | Engine, **options: Any) -> AsyncStore: ...
async def open(target: Any, **options: Any) -> AsyncStore:
    """Open a store; see `backtrail.open` for URLs and options.

    store = await backtrail.aio.open("agents.db")
    """
    context = await asyncio.to_thread(factory.open_context, target, options, asynchronous=True)
    store = AsyncStore(context)
    try:
        if context.mirror is not None:
            from backtrail.history import replication

            await store.hop(replication.check_rings(context))
        await store.hop(keyring.unlock(context))
    except BaseException:
        if not isinstance(target, Engine):
            await store.hop(context.engine.close())
        raise
    return store


class AsyncStore:
    """One engine, one codec, one retention policy, for one event loop; also an async context manager."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.core = Upkeep(context)
        self.hop = AsyncRunner(context.engine)

    threads = listing(Upkeep.threads)
    count = awaitable(Upkeep.count)
    stats = awaitable(Upkeep.stats)
    ping = awaitable(Upkeep.ping)
    status = awaitable(Upkeep.status)
    catch_up = awaitable(Upkeep.catch_up)
    prune = awaitable(Upkeep.prune)
    compact = awaitable(Upkeep.compact)
    verify = awaitable(Upkeep.verify)
    rekey = awaitable(Upkeep.rekey)
    namespaces = listing(Upkeep.namespaces)

    @overload
    def thread(self, id: str, type: None = None) -> AsyncThread[dict[str, Any]]: ...
    @overload
    def thread(self, id: str, type: type[S]) -> AsyncThread[S]: ...
    def thread(self, id: str, type: Any = None) -> AsyncThread[Any]:
        """The thread of this name, which need not exist yet. With `type`, states are saved and loaded as that type."""
        self._context.check_open()
        return AsyncThread(CoreThread(self._context, id, type), self.hop)

    def session(self, id: str, errors: Literal["raise", "log"] = "raise") -> AsyncSession:
        """A thread seen as messages. With errors="log", a write that fails is logged and counted, not raised."""
        self._context.check_open()
        core = SessionCore(self._context, id, errors)
        return AsyncSession(core, AsyncThread(core.thread, self.hop), self.hop)

    def sessions(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> Listed[SessionInfo]:
        """Sessions whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
        return Listed(self.hop(list_sessions(self._context, prefix, limit, after)))

    def run(self, id: str, task: str = "", timeout: float = 0.0) -> AsyncRun:
        """A thread seen as a resumable job, for an `async with` block. If another process has it, wait for `timeout`
        seconds before saying so."""
        self._context.check_open()
        core = RunCore(self._context, id, task)
        return AsyncRun(core, AsyncThread(core.thread, self.hop), self.hop, timeout)

    def runs(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> Listed[RunInfo]:
        """Runs that have not finished, newest first; `after` is the last id of the page before."""
        return Listed(self.hop(list_runs(self._context, prefix, limit, after)))

    def workspace(self, root: Any, name: str | None = None, **options: Any) -> AsyncWorkspace:
        """A directory seen as file snapshots. A restore that died in it is finished, or taken back, on first use."""
        from backtrail.workspace import AsyncWorkspace as Door
        from backtrail.workspace import WorkspaceCore

        return Door(WorkspaceCore(self._context, root, name, work=self.hop.work, **options), self.hop)

    async def import_(
        self, target: Any, format: str | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        """Import sessions and runs that other programs kept: a file, a directory, or a list of them. What is there
        already is not imported again, and nothing newer is overwritten; bad files are in the report."""
        from backtrail.importers import import_async

        return await import_async(self._context, self.hop, target, format, progress)

    async def export(self, id: str, to: Any = None, format: str | None = None, at: Any = None) -> str:
        """A session or a run as text, "jsonl" or "markdown"; with `to`, written to that file as well."""
        from backtrail import export

        checked = export.check_format(format, to)
        text = export.render(await self.hop(export.read_document(self._context, id, at)), checked)
        if to is not None:
            await asyncio.to_thread(export.write_file, text, to)
        return text

    async def sync_to(self, other: Any, progress: SyncProgress | None = None, **options: Any) -> Synced:
        """Make another store (an AsyncStore, or what `open` takes) equal to this one by exchanging only what is
        missing; this one is right about heads."""
        from backtrail.history import replication

        if not isinstance(other, AsyncStore):
            async with await open(other, **options) as target:
                return await self.sync_to(target, progress)
        work = replication.sync(self._context, other.core.context, progress)
        blocking = self._context.engine.properties.blocking and other.core.context.engine.properties.blocking
        return await (self.hop(work) if blocking else work)

    def janitor(self, every: float = 3600.0, retention: Any = None) -> AsyncJanitor:
        """Someone who prunes every so many seconds, once started: `await store.janitor(every=600).start()`."""
        return AsyncJanitor(self._context, self.hop, every, retention)

    async def copy_to(self, other: Any, progress: Progress | None = None, **options: Any) -> Copied:
        """Bring everything into another store (an AsyncStore, or what `open` takes) that it lacks. Interrupted, or
        repeated later, it goes on where it stopped; writers may go on meanwhile."""
        if not isinstance(other, AsyncStore):
            async with await open(other, **options) as target:
                return await self.copy_to(target, progress)
        call = self.core.copy_to(other.core.context, progress)
        # A call may run in a thread only if it never has to wait for the loop.
        threaded = other.core.context.engine.properties.blocking
        return await self.hop(call) if threaded else await call

    async def close(self) -> None:
        """Close the engine; twice is no error."""
        await self.hop(self.core.close())

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, kind: _Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return (
            f"<backtrail.AsyncStore {self._context.engine.properties.name}{' closed' if self._context.closed else ''}>"
        )


class AsyncThread(Generic[S]):
    """One conversation or run, with a head and a history.

    await thread.append("messages", [{"role": "user", "content": "hello"}])
    """

    def __init__(self, core: CoreThread[S], hop: AsyncRunner) -> None:
        self.core = core
        self.hop = hop

    @property
    def id(self) -> str:
        """The name of the thread."""
        return self.core.id

    @property
    async def head(self) -> Checkpoint | None:
        """The checkpoint the thread stands at: `await thread.head`."""
        return await self.hop(self.core.head())

    @property
    async def step(self) -> int:
        """The number of the head's step, 0 when there is none: `await thread.step`."""
        return await self.hop(self.core.step())

    @property
    async def retention(self) -> Retention | None:
        """The thread's own policy, None where the store's counts: `await thread.retention`; set it with `retain`."""
        return await self.hop(self.core.retention())

    save = sharing(CoreThread.save)
    append = sharing(CoreThread.append)
    update = sharing(CoreThread.update)
    pick = awaitable(CoreThread.pick)
    tail = listing(CoreThread.tail)
    exists = awaitable(CoreThread.exists)
    get = awaitable(CoreThread.get)
    history = listing(CoreThread.history)
    find = listing(CoreThread.find)
    diff = awaitable(CoreThread.diff)
    outline = awaitable(outline)
    forks = listing(forks)
    undo = awaitable(CoreThread.undo)
    annotate = awaitable(CoreThread.annotate)
    retain = awaitable(CoreThread.retain)
    delete = awaitable(CoreThread.delete)

    @overload
    async def load(self, at: At | None = None, as_: None = None) -> S: ...
    @overload
    async def load(self, at: At | None = None, *, as_: type[T]) -> T: ...
    @overload
    async def load(self, at: At | None, as_: type[T]) -> T: ...
    async def load(self, at: At | None = None, as_: Any = None) -> Any:
        """The state at the head, or at `at`: a Checkpoint, an id, a unique prefix of one, or a step number. With `as_`,
        it is validated and given as that type."""
        return await self.hop(self.core.load(at, as_))

    async def fork(self, to: str | None = None, at: At | None = None) -> AsyncThread[S]:
        """A new thread that stands where this one does, or at `at`; it shares all that was saved so far."""
        name = await self.hop(self.core.fork(to, at))
        return AsyncThread(type(self.core)(self.core.context, name, self.core.type, self.core.kind), self.hop)

    async def rewind(self, at: At, files: bool = False, prune: bool = False) -> Checkpoint:
        """Move the head back (or anywhere else) to `at`. With `files`, the directory goes along, or nothing moves."""
        if not files:
            return await self.hop(self.core.rewind(at, prune=prune))
        from backtrail.workspace import rewind_together

        return await self.hop(rewind_together(self.core, at, prune=prune, work=self.hop.work))

    async def workspace(self, at: At | None = None) -> AsyncWorkspace:
        """The directory whose snapshot was saved with the head, or with `at`."""
        from backtrail.workspace import AsyncWorkspace as Door
        from backtrail.workspace import workspace_of

        return Door(await self.hop(workspace_of(self.core, at, work=self.hop.work)), self.hop)

    def lock(self, timeout: float = 10.0, ttl: float = 30.0) -> AsyncLock:
        """Hold the thread: `async with thread.lock(): …`."""
        return AsyncLock(CoreLock(self.core, timeout, ttl), self.hop)

    def autosave(self, every: int = 1) -> AsyncAutosave:
        """Save every n-th state: await the result with each one; `flush()` (or leaving the block) saves the last."""
        return AsyncAutosave(self, every)

    def __repr__(self) -> str:
        return f"<backtrail.AsyncThread {self.id!r}>"


class AsyncLock:
    """A thread's lock, held inside `async with`."""

    def __init__(self, core: CoreLock, hop: AsyncRunner) -> None:
        self.core = core
        self.hop = hop

    renew = awaitable(CoreLock.renew)
    release = awaitable(CoreLock.release)

    async def acquire(self) -> AsyncLock:
        """Wait for the lock, at most `timeout` seconds."""
        start = time.monotonic()
        while (taken := await self._attempt()) is not None:
            waited = time.monotonic() - start
            if waited >= self.core.timeout:
                raise self.core.refused(waited, taken)
            await asyncio.sleep(min(POLL, self.core.timeout - waited))
        return self

    async def _attempt(self) -> Taken | None:
        """One try. A caller that is cancelled in it must not leave the lock to nobody until it expires."""
        going = asyncio.ensure_future(self.hop(self.core.attempt()))
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            await asyncio.wait([going])
            if not going.cancelled() and going.exception() is None and going.result() is None:
                await self.hop(self.core.release())
            raise

    async def __aenter__(self) -> AsyncLock:
        return await self.acquire()

    async def __aexit__(self, kind: _Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.release()


class AsyncAutosave:
    """Saves every n-th state that it is called with."""

    def __init__(self, thread: AsyncThread[Any], every: int) -> None:
        self._thread = thread
        self._every = EveryNth(every)

    async def __call__(self, state: Any, **facts: Any) -> Checkpoint | None:
        """Note a state; the checkpoint, if this was one to save."""
        if not self._every.due(state, facts):
            return None
        saved = await self._thread.save(state, **facts)
        self._every.saved()
        return saved

    async def flush(self) -> Checkpoint | None:
        """Save the newest state, if it was not saved yet."""
        if not self._every.waiting:
            return None
        saved = await self._thread.save(self._every.pending, **self._every.facts)
        self._every.saved()
        return saved

    async def __aenter__(self) -> AsyncAutosave:
        return self

    async def __aexit__(self, kind: _Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.flush()
