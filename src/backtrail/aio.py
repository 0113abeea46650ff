"""Async stores: `backtrail.aio.open(url)`, with the same names as `backtrail.open`, to be awaited. Lists may also be
looped over with `async for`.

Over a blocking engine each call runs entirely in one thread, so the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from backtrail import factory
from backtrail.async_runner import AsyncRunner, AwaitableList, require_loop
from backtrail.engines.base import Engine
from backtrail.history import keyring
from backtrail.history.context import Context
from backtrail.history.store_core import StoreCore
from backtrail.history.thread_core import ThreadCore
from backtrail.html_table import html_table
from backtrail.janitor import AsyncJanitor, JanitorStatus, read_status
from backtrail.model import At, Copied, Kind, Progress, Pruned, ThreadInfo, Verified
from backtrail.retrying import retry_async as retry
from backtrail.run import RUNS, Pending, Replayed, RunCore, RunInfo, answer, submission
from backtrail.run.async_api import AsyncRun
from backtrail.run.replaying import ReplayCore
from backtrail.session import SESSIONS, SessionCore, SessionInfo
from backtrail.session.async_api import AsyncSession
from backtrail.thread.async_api import AsyncThread
from backtrail.thread.autosave import AsyncAutosave
from backtrail.thread.lock import AsyncLock

if TYPE_CHECKING:  # imported by the methods that need them
    from backtrail.history.replication import Synced
    from backtrail.importers import Report as Imported
    from backtrail.options import Options
    from backtrail.replicate.status import Status
    from backtrail.typing import Key, Policy, Statuses, Target
    from backtrail.workspace import AsyncWorkspace, Limits

T = TypeVar("T")
__all__ = [
    "AsyncAutosave",
    "AsyncJanitor",
    "AsyncLock",
    "AsyncRun",
    "AsyncSession",
    "AsyncStore",
    "AsyncThread",
    "open",
    "retry",
]


async def open(target: Target, **options: Unpack[Options]) -> AsyncStore:
    """Open a store; `backtrail.open` has the URLs and options.

    store = await backtrail.aio.open("agents.db")
    """
    require_loop()
    context = await asyncio.to_thread(factory.open_context, target, dict(options), asynchronous=True)
    runner = AsyncRunner(context.engine)
    try:
        if context.mirror is not None:
            from backtrail.history import replication

            await runner(replication.check_rings(context))
        await runner(keyring.unlock(context))
    except BaseException:
        if not isinstance(target, Engine):
            await runner(context.engine.close())
        raise
    return AsyncStore(context, runner)


class AsyncStore:
    """One engine, one codec, one retention policy, for one event loop; also an async context manager.

    async with await backtrail.aio.open("agents.db") as store:
        thread = store.thread("support-42")
    """

    def __init__(self, context: Context, runner: AsyncRunner) -> None:
        self._core = StoreCore(context)
        self._runner = runner

    # -- threads and views of them ------------------------------------------------------------------------------------

    @overload
    def thread(self, id: str, type: None = None) -> AsyncThread[dict[str, Any]]: ...
    @overload
    def thread(self, id: str, type: type[T]) -> AsyncThread[T]: ...
    def thread(self, id: str, type: type[Any] | None = None) -> AsyncThread[Any]:
        """Get the thread of this name, which need not exist yet; with `type`, its states are saved and loaded as that.

        thread = store.thread("support-42", type=Plan)
        """
        context = self._core.context
        context.check_open()
        return AsyncThread(ThreadCore(context, id, type), self._runner)

    def threads(
        self,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        kind: Kind | None = None,
        newest_first: bool = False,
    ) -> AwaitableList[ThreadInfo]:
        """List threads whose id starts with `prefix`, by id or newest first; `after` is the last id of the page before.

        `kind` is "thread", "session", "run" or "workspace".
        """
        return AwaitableList(self._runner(self._core.threads(prefix, limit, after, kind, newest_first)))

    @overload
    def session(self, id: str, errors: Literal["raise"] = "raise") -> AsyncSession: ...
    @overload
    def session(self, id: str, errors: Literal["log"]) -> AsyncSession[None]: ...
    def session(self, id: str, errors: Literal["raise", "log"] = "raise") -> AsyncSession[Any]:
        """Get a thread seen as messages; with errors="log", a write that fails is logged and counted, and returns None.

        await store.session("support-42").add("user", "hello")
        """
        self._core.context.check_open()
        return AsyncSession(SessionCore(self._core.context, id, errors), self._runner)

    def sessions(
        self, prefix: str = "", limit: int | None = None, after: str | None = None
    ) -> AwaitableList[SessionInfo]:
        """List sessions whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
        return AwaitableList(self._runner(SESSIONS.page(self._core.context, prefix, limit, after)))

    def run(self, id: str, task: str = "", timeout: float = 0.0) -> AsyncRun:
        """Get a thread seen as a resumable job; if another process is working on it, wait at most `timeout` seconds.

        async with store.run("run-7", task="nightly") as run:
            await run.checkpoint()
        """
        self._core.context.check_open()
        return AsyncRun(RunCore(self._core.context, id, task), self._runner, timeout)

    def runs(
        self,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        status: Statuses | None = None,
    ) -> AwaitableList[RunInfo]:
        """List runs, newest first: those that have not finished, or those of a status, of several, or of "all";
        `after` is the last id of the page before.

        The statuses are "running", "ready" (a worker may take it up), "waiting" (for an answer), "sleeping", "finished"
        and "failed".
        """
        return AwaitableList(self._runner(RUNS.of_status(self._core.context, prefix, limit, after, status)))

    def pending(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> AwaitableList[Pending]:
        """List the questions that wait for an answer, newest first; `after` is the id of the last run of the page
        before. The questions of one run are never on two pages: a page may have some more than `limit`."""
        return AwaitableList(self._runner(RUNS.pending(self._core.context, prefix, limit, after)))

    async def answer(self, run: str, name: str, value: Any, by: str | None = None, digest: str | None = None) -> None:
        """Answer a question of a run: `InvalidAnswer` if it does not fit the question's schema.

            await store.answer("run-7", "pay?", True, by="ada", digest=pending.digest)

        The first answer counts: another is `AlreadyAnswered`, one that comes too late `QuestionExpired`, and one with
        the digest of another question `QuestionChanged`. `by` says who answered.
        """
        await self._runner(answer(self._core.context, run, name, value, by, digest))

    def due(self, prefix: str = "", limit: int | None = None) -> AwaitableList[RunInfo]:
        """List runs whose time has come, the longest overdue first: they slept, or a question of theirs has expired."""
        return AwaitableList(self._runner(submission.due(self._core.context, prefix, limit)))

    async def submit(
        self, task: str, input: Any = None, id: str | None = None, at: float | dt.timedelta | dt.datetime | None = None
    ) -> AsyncRun:
        """Begin a run that `work` will do, now or at a time; if there is a run of this id, it is that one.

        run = await store.submit("summarise", {"url": url}, id=url)
        """
        core = await self._runner(submission.submit(self._core.context, task, input, id, at))
        return AsyncRun(core, self._runner)

    async def resubmit(self, run: str) -> AsyncRun:
        """Make a failed run ready again: the steps that it has done are kept, the one that failed is done again."""
        return AsyncRun(await self._runner(submission.resubmit(self._core.context, run)), self._runner)

    async def work(
        self,
        tasks: Mapping[str, Callable[[AsyncRun, Any], Any]],
        workers: int = 1,
        *,
        drain: bool = False,
        grace: float = 30.0,
        stop: asyncio.Event | None = None,
    ) -> int:
        """Do the runs that were submitted for these tasks, at most `workers` at a time, until SIGTERM or SIGINT.

            await store.work({"summarise": summarise}, workers=4)

        A function gets the run and its input, and returns the result. New, answered and due runs are taken up, and
        those that a worker left behind that died; any number of processes may work at once, and none does a run that
        another does. To stop (`stop` can be set instead of a signal), runs stop before their next step, ready for
        another worker; after `grace` seconds they are not waited for. With `drain`, it returns once nothing is ready or
        due. Returns how many runs were taken up.
        """
        from backtrail.run.async_worker import AsyncWorker
        from backtrail.run.work_core import WorkCore

        self._core.context.check_open()
        core = WorkCore(self._core.context, tasks, workers, grace)
        return await AsyncWorker(core, self._runner, drain, stop).run()

    async def replay(self, run: str, program: Callable[[AsyncRun, Any], Any]) -> Replayed:
        """Run a program against the recording of a run: no step is executed, and the first divergence is reported.

            assert (await store.replay("run-7", program)).ok

        The program gets a run and its input, as in `work`, and its steps get the recorded results.
        """
        core = await self._runner(ReplayCore.of(self._core.context, run))
        try:
            result = program(AsyncRun(core, self._runner), core.input)
            return core.report(await result if inspect.isawaitable(result) else result, None)
        except core.outcomes as error:
            return core.report(None, error)

    def workspace(
        self,
        root: str | PathLike[str],
        name: str | None = None,
        *,
        cache: str | PathLike[str] | Literal[False] | None = None,
        limits: Limits | None = None,
        unreadable: Literal["raise", "flag"] = "raise",
        timeout: float = 30.0,
        recover: bool = True,
    ) -> AsyncWorkspace:
        """Get a directory seen as file snapshots; a restore that was interrupted in it is finished, or taken back, on
        first use.

            workspace = store.workspace("project")

        `cache` is a directory for the index: None for the user's cache directory, False for no index. With
        unreadable="flag", files that cannot be read are left out, and listed. `timeout` is how many seconds to wait
        for another process that uses the directory. With recover=False, an interrupted restore is left for the first
        call that changes something.
        """
        from backtrail.workspace import AsyncWorkspace, WorkspaceCore

        core = WorkspaceCore(
            self._core.context,
            root,
            name,
            cache=cache,
            limits=limits,
            unreadable=unreadable,
            timeout=timeout,
            recover=recover,
            work=self._runner.work,
        )
        return AsyncWorkspace(core, self._runner)

    # -- figures and health -------------------------------------------------------------------------------------------

    async def count(self) -> int:
        """Count the threads."""
        return await self._runner(self._core.count())

    async def stats(self, survey: bool = True, progress: Progress | None = None) -> dict[str, Any]:
        """Measure the store: threads, branches, rows, blobs, bytes in all (`total`), reachable bytes (`live`) and bytes
        that a prune would free (`garbage`). Without `survey`, the last two are left out; in a store of more than 2,000
        lineages they are estimated from a sample (`surveyed` of all `lineages`). `progress` is called with (done,
        total)."""
        return await self._runner(self._core.stats(survey, progress))

    async def ping(self) -> None:
        """Return if the store answers; raise `Unavailable` if it does not."""
        await self._runner(self._core.ping())

    async def status(self) -> Status:
        """Describe both sides of a mirrored store: their health, which one is active, and how far the other is
        behind."""
        return await self._runner(self._core.status())

    async def catch_up(self) -> Status:
        """Compare both sides of a mirrored store and copy what is missing now, instead of in the background."""
        return await self._runner(self._core.catch_up())

    async def verify(self, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Check every digest and chain, every pointer, every head, parent and count; the report lists the damage.

        With `repair`, damaged records are set aside, and threads go back to their newest sound checkpoint.
        """
        return await self._runner(self._core.verify(repair, progress))

    # -- upkeep -------------------------------------------------------------------------------------------------------

    async def prune(
        self,
        retention: Policy = None,
        max_age: dt.timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Pruned:
        """Delete the checkpoints that the policy does not keep, and free everything that nothing needs any more.

            print(await store.prune(max_age=timedelta(days=30), dry_run=True))

        `retention` (or `max_age` alone) replaces the store's and the threads' own policies. With `dry_run` nothing
        changes; the report lists what would be deleted. `progress` is called with (done, total).
        """
        return await self._runner(self._core.prune(retention, max_age, dry_run, progress))

    def janitor(self, every: float | dt.timedelta = 3600.0, retention: Policy = None) -> AsyncJanitor:
        """Make a janitor, which prunes every `every` seconds in the background once it is started.

        await store.janitor(every=600).start()
        """
        return AsyncJanitor(self._core.context, self._runner, every, retention)

    async def janitor_status(self) -> JanitorStatus | None:
        """Get the status of the janitor that worked last in this store, in whatever process; None if none ever did."""
        return await self._runner(read_status(self._core.context))

    async def compact(self, progress: Progress | None = None) -> Pruned:
        """Free all garbage, and return the space to the disk or the server; no checkpoint is deleted."""
        return await self._runner(self._core.compact(progress))

    async def rekey(self, key: Key | Sequence[Key]) -> int:
        """Replace the key of an encrypted store; later writes are sealed with a new data key.

        Returns how many data keys the key ring holds.
        """
        return await self._runner(self._core.rekey(key))

    def namespaces(self) -> AwaitableList[str]:
        """List the namespaces of a store that was opened without one."""
        return AwaitableList(self._runner(self._core.namespaces()))

    # -- other stores and files ---------------------------------------------------------------------------------------

    async def copy_to(
        self, other: AsyncStore | Target, progress: Progress | None = None, **options: Unpack[Options]
    ) -> Copied:
        """Copy everything that another store lacks into it: an AsyncStore, or what `open` takes.

            await store.copy_to("backup.db")

        If interrupted, or repeated later, it copies only what is missing; writers may continue meanwhile.
        """
        if isinstance(other, AsyncStore):
            there = other._core.context  # noqa: SLF001  # of the same class
            return await self._with(there, self._core.copy_to(there, progress))
        async with await open(other, **options) as target:
            return await self.copy_to(target, progress)

    async def sync_to(
        self, other: AsyncStore | Target, progress: Progress | None = None, **options: Unpack[Options]
    ) -> Synced:
        """Make another store (an AsyncStore, or what `open` takes) equal to this one; only what is missing is sent.

        If heads differ, this store's count. `progress` is called with (records, bytes) shipped so far.
        """
        from backtrail.history import replication

        if isinstance(other, AsyncStore):
            there = other._core.context  # noqa: SLF001  # of the same class
            return await self._with(there, replication.sync(self._core.context, there, progress))
        async with await open(other, **options) as target:
            return await self.sync_to(target, progress)

    def _with(self, other: Context, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Run a coroutine over two stores: in a thread only if neither of them needs the event loop."""
        return self._runner(work) if other.engine.properties.blocking else work

    async def import_(
        self,
        target: str | PathLike[str] | Sequence[str | PathLike[str]],
        format: str | None = None,
        progress: Progress | None = None,
    ) -> Imported:
        """Import sessions and runs that other programs kept: a file, a directory, or a list of them.

        Content that is in the store is not imported again, and nothing newer is overwritten; the report lists bad
        files.
        """
        from backtrail.importers import import_async

        return await import_async(self._core.context, self._runner, target, format, progress)

    async def export(
        self,
        id: str,
        to: str | PathLike[str] | None = None,
        format: Literal["jsonl", "markdown"] | None = None,
        at: At | None = None,
    ) -> str:
        """Export a session or a run as text, "jsonl" or "markdown"; with `to`, write it to that file as well."""
        from backtrail import export

        checked = export.check_format(format, to)
        text = export.render(await self._runner(export.read_document(self._core.context, id, at)), checked)
        if to is not None:
            await asyncio.to_thread(export.write_file, text, to)
        return text

    async def close(self) -> None:
        """Close the store; closing twice is not an error."""
        await self._runner(self._core.close())

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        """For notebooks: what is known of it without reading."""
        rows = [("its threads", "await store.threads(limit=10)"), ("what it holds", "await store.stats()")]
        return html_table(f"store {self._core.context.describe()}", rows)

    def __repr__(self) -> str:
        return f"<backtrail.AsyncStore {self._core.context.describe()}>"
