"""`backtrail.open` and `Store`. Each method runs a coroutine of the core to its end in place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from backtrail import factory
from backtrail.engines.base import Engine
from backtrail.engines.coroutines import finish
from backtrail.errors import InvalidInput
from backtrail.history import keyring
from backtrail.history.context import Context
from backtrail.history.store_core import StoreCore
from backtrail.history.thread_core import ThreadCore
from backtrail.model import At, Copied, Kind, Progress, Pruned, ThreadInfo, Verified
from backtrail.thread import Thread

if TYPE_CHECKING:  # imported by the methods that need them: most programs use one or two
    import threading

    from backtrail.history.replication import Synced
    from backtrail.importers import Report as Imported
    from backtrail.janitor import Janitor, JanitorStatus
    from backtrail.options import Options
    from backtrail.replicate.status import Status
    from backtrail.run import Pending, Replayed, Run, RunInfo
    from backtrail.session import Session, SessionInfo
    from backtrail.typing import Key, Policy, Statuses, Target
    from backtrail.workspace import Limits, Workspace

T = TypeVar("T")


def open(target: Target, **options: Unpack[Options]) -> Store:
    """Open a store, and create it if it does not exist: a path or `sqlite:…`, `memory:`, `jsonl:DIR`, `redis://…`,
    `postgresql://…`.

        store = backtrail.open("agents.db")
        store = backtrail.open("jsonl:sessions", retention=backtrail.Retention(keep_last=100))

    Every store takes `types`, `retention`, `compression` ("zstd"), `compression_level`, `detect` ("exact", "identity"),
    `key`, `namespace`, and for a second store with the same data `replica`, `replication` ("sync", "async"), `spool`
    and more; SQLite and JSONL take `durability` ("full", "normal") and `create`; servers have options of their own. All
    may also be given in a URL, as `?name=value`. An unknown option is refused, with a list of the known ones.
    """
    context = factory.open_context(target, dict(options), asynchronous=False)
    if not context.engine.properties.blocking:
        raise InvalidInput(f"the {context.engine.properties.name} engine is asynchronous: use backtrail.aio.open()")
    try:
        if context.mirror is not None:
            from backtrail.history import replication

            finish(replication.check_rings(context))
        finish(keyring.unlock(context))
    except BaseException:
        if not isinstance(target, Engine):
            finish(context.engine.close())
        raise
    return Store(context)


class Store:
    """One engine, one codec, one retention policy. Safe to share between threads; also a context manager.

    store = backtrail.open("agents.db")
    thread = store.thread("support-42")
    """

    def __init__(self, context: Context) -> None:
        self._core = StoreCore(context)

    # -- threads and views of them ------------------------------------------------------------------------------------

    @overload
    def thread(self, id: str, type: None = None) -> Thread[dict[str, Any]]: ...
    @overload
    def thread(self, id: str, type: type[T]) -> Thread[T]: ...
    def thread(self, id: str, type: type[Any] | None = None) -> Thread[Any]:
        """Get the thread of this name, which need not exist yet; with `type`, its states are saved and loaded as that.

        thread = store.thread("support-42", type=Plan)
        """
        context = self._core.context
        context.check_open()
        return Thread(ThreadCore(context, id, type))

    def threads(
        self,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        kind: Kind | None = None,
        newest_first: bool = False,
    ) -> list[ThreadInfo]:
        """List threads whose id starts with `prefix`, by id or newest first; `after` is the last id of the page before.

        `kind` is "thread", "session", "run" or "workspace".
        """
        return finish(self._core.threads(prefix, limit, after, kind, newest_first))

    @overload
    def session(self, id: str, errors: Literal["raise"] = "raise") -> Session: ...
    @overload
    def session(self, id: str, errors: Literal["log"]) -> Session[None]: ...
    def session(self, id: str, errors: Literal["raise", "log"] = "raise") -> Session[Any]:
        """Get a thread seen as messages; with errors="log", a write that fails is logged and counted, and returns None.

        store.session("support-42").add("user", "hello")
        """
        from backtrail.session import Session, SessionCore

        self._core.context.check_open()
        return Session(SessionCore(self._core.context, id, errors))

    def sessions(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> list[SessionInfo]:
        """List sessions whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
        from backtrail.session import SESSIONS

        return finish(SESSIONS.page(self._core.context, prefix, limit, after))

    def run(self, id: str, task: str = "", timeout: float = 0.0) -> Run:
        """Get a thread seen as a resumable job; if another process is working on it, wait at most `timeout` seconds.

        with store.run("run-7", task="nightly") as run:
            run.checkpoint()
        """
        from backtrail.run import Run, RunCore

        self._core.context.check_open()
        return Run(RunCore(self._core.context, id, task), timeout)

    def runs(
        self,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        status: Statuses | None = None,
    ) -> list[RunInfo]:
        """List runs, newest first: those that have not finished, or those of a status, of several, or of "all";
        `after` is the last id of the page before.

        The statuses are "running", "ready" (a worker may take it up), "waiting" (for an answer), "sleeping", "finished"
        and "failed".
        """
        from backtrail.run import RUNS

        return finish(RUNS.of_status(self._core.context, prefix, limit, after, status))

    def pending(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> list[Pending]:
        """List the questions that wait for an answer, newest first; `after` is the id of the last run of the page
        before. The questions of one run are never on two pages: a page may have some more than `limit`."""
        from backtrail.run import RUNS

        return finish(RUNS.pending(self._core.context, prefix, limit, after))

    def answer(self, run: str, name: str, value: Any, by: str | None = None, digest: str | None = None) -> None:
        """Answer a question of a run: `InvalidAnswer` if it does not fit the question's schema.

            store.answer("run-7", "pay?", True, by="ada", digest=pending.digest)

        The first answer counts: another is `AlreadyAnswered`, one that comes too late `QuestionExpired`, and one with
        the digest of another question `QuestionChanged`. `by` says who answered.
        """
        from backtrail.run import answer

        finish(answer(self._core.context, run, name, value, by, digest))

    def due(self, prefix: str = "", limit: int | None = None) -> list[RunInfo]:
        """List runs whose time has come, the longest overdue first: they slept, or a question of theirs has expired."""
        from backtrail.run import submission

        return finish(submission.due(self._core.context, prefix, limit))

    def submit(
        self, task: str, input: Any = None, id: str | None = None, at: float | dt.timedelta | dt.datetime | None = None
    ) -> Run:
        """Begin a run that `work` will do, now or at a time; if there is a run of this id, it is that one.

        run = store.submit("summarise", {"url": url}, id=url)
        """
        from backtrail.run import Run, submission

        return Run(finish(submission.submit(self._core.context, task, input, id, at)))

    def resubmit(self, run: str) -> Run:
        """Make a failed run ready again: the steps that it has done are kept, the one that failed is done again."""
        from backtrail.run import Run, submission

        return Run(finish(submission.resubmit(self._core.context, run)))

    def work(
        self,
        tasks: Mapping[str, Callable[[Run, Any], Any]],
        workers: int = 1,
        *,
        drain: bool = False,
        grace: float = 30.0,
        stop: threading.Event | None = None,
    ) -> int:
        """Do the runs that were submitted for these tasks, at most `workers` at a time, until SIGTERM or SIGINT.

            store.work({"summarise": summarise}, workers=4)

        A function gets the run and its input, and returns the result. New, answered and due runs are taken up, and
        those that a worker left behind that died; any number of processes may work at once, and none does a run that
        another does. To stop (`stop` can be set instead of a signal), runs stop before their next step, ready for
        another worker; after `grace` seconds they are not waited for. With `drain`, it returns once nothing is ready or
        due. Returns how many runs were taken up.
        """
        from backtrail.run.sync_worker import Worker
        from backtrail.run.work_core import WorkCore

        self._core.context.check_open()
        return Worker(WorkCore(self._core.context, tasks, workers, grace), drain, stop).run()

    def replay(self, run: str, program: Callable[[Run, Any], Any]) -> Replayed:
        """Run a program against the recording of a run: no step is executed, and the first divergence is reported.

            assert store.replay("run-7", program).ok

        The program gets a run and its input, as in `work`, and its steps get the recorded results.
        """
        from backtrail.run import Run
        from backtrail.run.replaying import ReplayCore

        core = finish(ReplayCore.of(self._core.context, run))
        try:
            return core.report(program(Run(core), core.input), None)
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
    ) -> Workspace:
        """Get a directory seen as file snapshots; a restore that was interrupted in it is first finished, or taken
        back.

            workspace = store.workspace("project")

        `cache` is a directory for the index: None for the user's cache directory, False for no index. With
        unreadable="flag", files that cannot be read are left out, and listed. `timeout` is how many seconds to wait
        for another process that uses the directory. With recover=False, an interrupted restore is left for the first
        call that changes something.
        """
        from backtrail.workspace import Workspace, WorkspaceCore

        core = WorkspaceCore(
            self._core.context,
            root,
            name,
            cache=cache,
            limits=limits,
            unreadable=unreadable,
            timeout=timeout,
            recover=recover,
        )
        finish(core.ready())
        return Workspace(core)

    # -- figures and health -------------------------------------------------------------------------------------------

    def count(self) -> int:
        """Count the threads."""
        return finish(self._core.count())

    def stats(self, survey: bool = True, progress: Progress | None = None) -> dict[str, Any]:
        """Measure the store: threads, branches, rows, blobs, bytes in all (`total`), reachable bytes (`live`) and bytes
        that a prune would free (`garbage`). Without `survey`, the last two are left out; in a store of more than 2,000
        lineages they are estimated from a sample (`surveyed` of all `lineages`). `progress` is called with (done,
        total)."""
        return finish(self._core.stats(survey, progress))

    def ping(self) -> None:
        """Return if the store answers; raise `Unavailable` if it does not."""
        finish(self._core.ping())

    def status(self) -> Status:
        """Describe both sides of a mirrored store: their health, which one is active, and how far the other is
        behind."""
        return finish(self._core.status())

    def catch_up(self) -> Status:
        """Compare both sides of a mirrored store and copy what is missing now, instead of in the background."""
        return finish(self._core.catch_up())

    def verify(self, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Check every digest and chain, every pointer, every head, parent and count; the report lists the damage.

        With `repair`, damaged records are set aside, and threads go back to their newest sound checkpoint.
        """
        return finish(self._core.verify(repair, progress))

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def prune(
        self,
        retention: Policy = None,
        max_age: dt.timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Pruned:
        """Delete the checkpoints that the policy does not keep, and free everything that nothing needs any more.

            print(store.prune(max_age=timedelta(days=30), dry_run=True))

        `retention` (or `max_age` alone) replaces the store's and the threads' own policies. With `dry_run` nothing
        changes; the report lists what would be deleted. `progress` is called with (done, total).
        """
        return finish(self._core.prune(retention, max_age, dry_run, progress))

    def janitor(self, every: float | dt.timedelta = 3600.0, retention: Policy = None) -> Janitor:
        """Make a janitor, which prunes every `every` seconds in the background once it is started.

        store.janitor(every=600).start()
        """
        from backtrail.janitor import Janitor

        return Janitor(self._core.context, every, retention)

    def janitor_status(self) -> JanitorStatus | None:
        """Get the status of the janitor that worked last in this store, in whatever process; None if none ever did."""
        from backtrail.janitor import read_status

        return finish(read_status(self._core.context))

    def compact(self, progress: Progress | None = None) -> Pruned:
        """Free all garbage, and return the space to the disk or the server; no checkpoint is deleted."""
        return finish(self._core.compact(progress))

    def rekey(self, key: Key | Sequence[Key]) -> int:
        """Replace the key of an encrypted store; later writes are sealed with a new data key.

        Returns how many data keys the key ring holds.
        """
        return finish(self._core.rekey(key))

    def namespaces(self) -> list[str]:
        """List the namespaces of a store that was opened without one."""
        return finish(self._core.namespaces())

    # -- other stores and files ---------------------------------------------------------------------------------------

    def copy_to(self, other: Store | Target, progress: Progress | None = None, **options: Unpack[Options]) -> Copied:
        """Copy everything that another store lacks into it: a Store, or what `open` takes.

            store.copy_to("backup.db")

        If interrupted, or repeated later, it copies only what is missing; writers may continue meanwhile.
        """
        if isinstance(other, Store):
            return finish(self._core.copy_to(other._core.context, progress))  # noqa: SLF001  # of the same class
        with open(other, **options) as target:
            return self.copy_to(target, progress)

    def sync_to(self, other: Store | Target, progress: Progress | None = None, **options: Unpack[Options]) -> Synced:
        """Make another store (a Store, or what `open` takes) equal to this one; only what is missing is sent.

        If heads differ, this store's count. `progress` is called with (records, bytes) shipped so far.
        """
        from backtrail.history import replication

        if isinstance(other, Store):
            there = other._core.context  # noqa: SLF001  # of the same class
            return finish(replication.sync(self._core.context, there, progress))
        with open(other, **options) as target:
            return self.sync_to(target, progress)

    def import_(
        self,
        target: str | PathLike[str] | Sequence[str | PathLike[str]],
        format: str | None = None,
        progress: Progress | None = None,
    ) -> Imported:
        """Import sessions and runs that other programs kept: a file, a directory, or a list of them.

        Content that is in the store is not imported again, and nothing newer is overwritten; the report lists bad
        files.
        """
        from backtrail.importers import import_sync

        return import_sync(self._core.context, target, format, progress)

    def export(
        self,
        id: str,
        to: str | PathLike[str] | None = None,
        format: Literal["jsonl", "markdown"] | None = None,
        at: At | None = None,
    ) -> str:
        """Export a session or a run as text, "jsonl" or "markdown"; with `to`, write it to that file as well."""
        from backtrail import export

        checked = export.check_format(format, to)
        text = export.render(finish(export.read_document(self._core.context, id, at)), checked)
        if to is not None:
            export.write_file(text, to)
        return text

    def close(self) -> None:
        """Close the store; closing twice is not an error."""
        finish(self._core.close())

    def __len__(self) -> int:
        return self.count()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<backtrail.Store {self._core.context.describe()}>"
