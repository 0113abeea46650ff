"""The blocking front door: `backtrail.open(url)` and what it returns. Each method is one line over the core."""

from __future__ import annotations

import time
from collections.abc import Callable
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from backtrail import factory
from backtrail.autosave import EveryNth
from backtrail.engines.base import Engine
from backtrail.engines.drive import finish
from backtrail.errors import InvalidInput
from backtrail.history import keyring
from backtrail.history.context import Context
from backtrail.history.lock import POLL
from backtrail.history.lock import Lock as CoreLock
from backtrail.history.outline import outline
from backtrail.history.relatives import forks
from backtrail.history.store import Upkeep
from backtrail.history.sweep import Progress
from backtrail.history.thread import Thread as CoreThread
from backtrail.janitor import Janitor
from backtrail.model import At, Checkpoint, Copied, Retention
from backtrail.runner import blocking

if TYPE_CHECKING:  # the views are imported by the methods that give them: most programs use one of them
    from backtrail.importers import Report
    from backtrail.replicate.report import Progress as SyncProgress
    from backtrail.replicate.report import Report as Synced
    from backtrail.run import Run, RunInfo
    from backtrail.session import Session, SessionInfo
    from backtrail.workspace import Workspace

S = TypeVar("S")
T = TypeVar("T")


@overload
def open(target: str | PathLike[str] | Engine, **options: Unpack[factory.Options]) -> Store: ...
@overload
def open(target: str | PathLike[str] | Engine, **options: Any) -> Store: ...
def open(target: Any, **options: Any) -> Store:
    """Open a store, making it if it is not there: a path or `sqlite:…`, `memory:`, `jsonl:DIR`, `redis://…`,
    `postgresql://…`.

        store = backtrail.open("agents.db")
        store = backtrail.open("jsonl:sessions", retention=backtrail.Retention(keep_last=100))

    Every store takes `types`, `retention`, `compression` ("zstd"), `compression_level`, `detect` ("exact", "identity"),
    `key`, `namespace`, and for a second place that holds the same `replica`, `replication` ("sync", "async"), `spool`
    and more; SQLite and JSONL take `durability` ("full", "normal") and `create`; servers have options of their own. All
    may also stand in a URL, as `?name=value`. One that is not known is refused, with a list of those that are.
    """
    context = factory.open_context(target, options, asynchronous=False)
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
        self._context = context
        self.core = Upkeep(context)

    threads = blocking(Upkeep.threads)
    count = blocking(Upkeep.count)
    stats = blocking(Upkeep.stats)
    ping = blocking(Upkeep.ping)
    status = blocking(Upkeep.status)
    catch_up = blocking(Upkeep.catch_up)
    prune = blocking(Upkeep.prune)
    compact = blocking(Upkeep.compact)
    verify = blocking(Upkeep.verify)
    rekey = blocking(Upkeep.rekey)
    namespaces = blocking(Upkeep.namespaces)
    close = blocking(Upkeep.close)

    @overload
    def thread(self, id: str, type: None = None) -> Thread[dict[str, Any]]: ...
    @overload
    def thread(self, id: str, type: type[S]) -> Thread[S]: ...
    def thread(self, id: str, type: Any = None) -> Thread[Any]:
        """The thread of this name, which need not exist yet. With `type`, states are saved and loaded as that type."""
        self._context.check_open()
        return Thread(CoreThread(self._context, id, type))

    def session(self, id: str, errors: Literal["raise", "log"] = "raise") -> Session:
        """A thread seen as messages. With errors="log", a write that fails is logged and counted, not raised."""
        from backtrail.session import Session, SessionCore

        self._context.check_open()
        core = SessionCore(self._context, id, errors)
        return Session(core, Thread(core.thread))

    def sessions(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> list[SessionInfo]:
        """Sessions whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
        from backtrail.session import list_sessions

        return finish(list_sessions(self._context, prefix, limit, after))

    def run(self, id: str, task: str = "", timeout: float = 0.0) -> Run:
        """A thread seen as a resumable job, for a `with` block. If another process has it, wait for `timeout` seconds
        before saying so."""
        from backtrail.run import Run, RunCore

        self._context.check_open()
        core = RunCore(self._context, id, task)
        return Run(core, Thread(core.thread), timeout)

    def runs(self, prefix: str = "", limit: int | None = None, after: str | None = None) -> list[RunInfo]:
        """Runs that have not finished, newest first; `after` is the last id of the page before."""
        from backtrail.run import list_runs

        return finish(list_runs(self._context, prefix, limit, after))

    def import_(
        self, target: Any, format: str | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        """Import sessions and runs that other programs kept: a file, a directory, or a list of them. What is there
        already is not imported again, and nothing newer is overwritten; bad files are in the report."""
        from backtrail.importers import import_sync

        return import_sync(self._context, target, format, progress)

    def export(self, id: str, to: Any = None, format: str | None = None, at: Any = None) -> str:
        """A session or a run as text, "jsonl" or "markdown"; with `to`, written to that file as well."""
        from backtrail import export

        checked = export.check_format(format, to)
        text = export.render(finish(export.read_document(self._context, id, at)), checked)
        if to is not None:
            export.write_file(text, to)
        return text

    def sync_to(self, other: Any, progress: SyncProgress | None = None, **options: Any) -> Synced:
        """Make another store (a Store, or what `open` takes) equal to this one by exchanging only what is missing; this
        one is right about heads."""
        from backtrail.history import replication

        if not isinstance(other, Store):
            with open(other, **options) as target:
                return self.sync_to(target, progress)
        return finish(replication.sync(self._context, other.core.context, progress))

    def workspace(self, root: Any, name: str | None = None, **options: Any) -> Workspace:
        """A directory seen as file snapshots. A restore that died in it is finished first, or taken back."""
        from backtrail.workspace import Workspace as Door
        from backtrail.workspace import WorkspaceCore

        core = WorkspaceCore(self._context, root, name, **options)
        finish(core.recover())
        return Door(core)

    def janitor(self, every: float = 3600.0, retention: Any = None) -> Janitor:
        """Someone who prunes every so many seconds, once started: `store.janitor(every=600).start()`, or `with`."""
        return Janitor(self._context, every, retention)

    def copy_to(self, other: Any, progress: Progress | None = None, **options: Any) -> Copied:
        """Bring everything into another store (a Store, or what `open` takes) that it lacks. Interrupted, or repeated
        later, it goes on where it stopped; writers may go on meanwhile.

            store.copy_to("backup.db")
        """
        if isinstance(other, Store):
            return finish(self.core.copy_to(other.core.context, progress))
        with open(other, **options) as target:
            return self.copy_to(target, progress)

    def __len__(self) -> int:
        return self.count()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<backtrail.Store {self._context.engine.properties.name}{' closed' if self._context.closed else ''}>"


class Thread(Generic[S]):
    """One conversation or run, with a head and a history.

    thread.save({"messages": [...], "plan": "…"}, label="start")
    thread.append("messages", [{"role": "user", "content": "hello"}])
    state = thread.load()
    """

    def __init__(self, core: CoreThread[S]) -> None:
        self.core = core

    @property
    def id(self) -> str:
        """The name of the thread."""
        return self.core.id

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint the thread stands at."""
        return finish(self.core.head())

    @property
    def step(self) -> int:
        """The number of the head's step, 0 when there is none."""
        return finish(self.core.step())

    @property
    def retention(self) -> Retention | None:
        """The thread's own policy, None where the store's counts; set it with `retain`."""
        return finish(self.core.retention())

    save = blocking(CoreThread.save)
    append = blocking(CoreThread.append)
    update = blocking(CoreThread.update)
    pick = blocking(CoreThread.pick)
    tail = blocking(CoreThread.tail)
    exists = blocking(CoreThread.exists)
    get = blocking(CoreThread.get)
    history = blocking(CoreThread.history)
    find = blocking(CoreThread.find)
    diff = blocking(CoreThread.diff)
    outline = blocking(outline)
    forks = blocking(forks)
    undo = blocking(CoreThread.undo)
    annotate = blocking(CoreThread.annotate)
    retain = blocking(CoreThread.retain)
    delete = blocking(CoreThread.delete)

    @overload
    def load(self, at: At | None = None, as_: None = None) -> S: ...
    @overload
    def load(self, at: At | None = None, *, as_: type[T]) -> T: ...
    @overload
    def load(self, at: At | None, as_: type[T]) -> T: ...
    def load(self, at: At | None = None, as_: Any = None) -> Any:
        """The state at the head, or at `at`: a Checkpoint, an id, a unique prefix of one, or a step number. With `as_`,
        it is validated and given as that type."""
        return finish(self.core.load(at, as_))

    def fork(self, to: str | None = None, at: At | None = None) -> Thread[S]:
        """A new thread that stands where this one does, or at `at`; it shares all that was saved so far."""
        name = finish(self.core.fork(to, at))
        return Thread(type(self.core)(self.core.context, name, self.core.type, self.core.kind))

    def rewind(self, at: At, files: bool = False, prune: bool = False) -> Checkpoint:
        """Move the head back (or anywhere else) to `at`. What is left behind stays reachable, and `undo` goes back;
        with `prune`, what came after `at` on the way to the old head is deleted instead. With `files`, the directory
        goes back to the snapshot that was saved with `at`: both move, or neither does."""
        if not files:
            return finish(self.core.rewind(at, prune=prune))
        from backtrail.workspace import rewind_together

        return finish(rewind_together(self.core, at, prune=prune))

    def workspace(self, at: At | None = None) -> Workspace:
        """The directory whose snapshot was saved with the head, or with `at`."""
        from backtrail.workspace import Workspace as Door
        from backtrail.workspace import workspace_of

        return Door(finish(workspace_of(self.core, at)))

    def lock(self, timeout: float = 10.0, ttl: float = 30.0) -> Lock:
        """Hold the thread: `with thread.lock(): …`. Saves of this handle are refused once the lock was lost."""
        return Lock(CoreLock(self.core, timeout, ttl))

    def autosave(self, every: int = 1) -> Autosave:
        """Save every n-th state: call the result with each one; `flush()` (or leaving the `with`) saves the last."""
        return Autosave(self, every)

    def __repr__(self) -> str:
        return f"<backtrail.Thread {self.id!r}>"


class Lock:
    """A thread's lock, held inside `with`."""

    def __init__(self, core: CoreLock) -> None:
        self.core = core

    renew = blocking(CoreLock.renew)
    release = blocking(CoreLock.release)

    def acquire(self) -> Lock:
        """Wait for the lock, at most `timeout` seconds."""
        start = time.monotonic()
        while (taken := finish(self.core.attempt())) is not None:
            waited = time.monotonic() - start
            if waited >= self.core.timeout:
                raise self.core.refused(waited, taken)
            time.sleep(min(POLL, self.core.timeout - waited))
        return self

    def __enter__(self) -> Lock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Autosave:
    """Saves every n-th state that it is called with."""

    def __init__(self, thread: Thread[Any], every: int) -> None:
        self._thread = thread
        self._every = EveryNth(every)

    def __call__(self, state: Any, **facts: Any) -> Checkpoint | None:
        """Note a state; the checkpoint, if this was one to save."""
        if not self._every.due(state, facts):
            return None
        saved = self._thread.save(state, **facts)
        self._every.saved()
        return saved

    def flush(self) -> Checkpoint | None:
        """Save the newest state, if it was not saved yet."""
        if not self._every.waiting:
            return None
        saved = self._thread.save(self._every.pending, **self._every.facts)
        self._every.saved()
        return saved

    def __enter__(self) -> Autosave:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
