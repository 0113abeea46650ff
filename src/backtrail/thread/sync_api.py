"""`Thread`: one conversation or run, with a head and a history. Each method runs the core's coroutine in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from msgspec import UNSET, UnsetType

from backtrail.engines.coroutines import finish
from backtrail.history.thread_core import ThreadCore
from backtrail.history.thread_lock import Lock as CoreLock
from backtrail.html_table import html_table
from backtrail.model import At, Checkpoint, Diff, Fork, Outline, Relation, Retention, counted
from backtrail.thread.autosave import Autosave
from backtrail.thread.lock import Lock
from backtrail.typing import Expect, Files, OnConflict, Policy, S, State

if TYPE_CHECKING:
    from backtrail.workspace import Changes, Workspace

T = TypeVar("T")


class Thread(Generic[S]):
    """One conversation or run, with a head and a history.

    thread = store.thread("support-42")
    thread.save({"messages": [...], "plan": "…"}, label="start")
    thread.append("messages", [{"role": "user", "content": "hello"}])
    state = thread.load()
    """

    def __init__(self, core: ThreadCore[S]) -> None:
        self._core = core

    @property
    def id(self) -> str:
        """The name of the thread."""
        return self._core.id

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the thread is at; None if it has none."""
        return finish(self._core.head())

    @property
    def step(self) -> int:
        """The step of the head; 0 if there is none."""
        return finish(self._core.step())

    @property
    def retention(self) -> Retention | None:
        """The thread's own policy; None if it has the store's. `retain` sets it."""
        return finish(self._core.retention())

    # -- saving -------------------------------------------------------------------------------------------------------

    @overload
    def save(
        self: Thread[dict[str, Any]],
        state: State,
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        expect: Expect | UnsetType = UNSET,
        id: UUID | str | None = None,
        on_conflict: OnConflict = "raise",
        parent: Expect | UnsetType = UNSET,
    ) -> Checkpoint: ...
    @overload
    def save(
        self,
        state: S,
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        expect: Expect | UnsetType = UNSET,
        id: UUID | str | None = None,
        on_conflict: OnConflict = "raise",
        parent: Expect | UnsetType = UNSET,
    ) -> Checkpoint: ...
    def save(
        self,
        state: Any,
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        expect: Expect | UnsetType = UNSET,
        id: UUID | str | None = None,
        on_conflict: OnConflict = "raise",
        parent: Expect | UnsetType = UNSET,
    ) -> Checkpoint:
        """Save the whole state; only what changed since the head is written.

            thread.save({"messages": [], "plan": "…"}, label="start", tags=["draft"])

        `expect` is the checkpoint that must be the head, None for a thread that must not exist yet; without it, the
        last one that this handle loaded or saved. If the head is another, `Conflict` is raised; with
        on_conflict="branch" the state is saved on a branch of its own instead, and the head stays.
        `id` is a UUID chosen by the caller: if the thread has a checkpoint of that id, nothing is saved.
        `parent` is the checkpoint to build on wherever the head is: if they differ, a branch begins at `parent` and the
        head moves there. `files` is a workspace, of which a snapshot is taken, or one of its snapshots.
        """
        return finish(self._core.save(state, label, tags, custom, files, expect, id, on_conflict, parent))

    def append(
        self,
        key: str,
        items: list[Any] | tuple[Any, ...],
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        expect: Expect | UnsetType = UNSET,
        id: UUID | str | None = None,
    ) -> Checkpoint:
        """Add items at the end of the list `state[key]`, without reading what is in it.

            thread.append("messages", [{"role": "user", "content": "hello"}])

        If another writer was faster, the items go after theirs. A missing thread or list is created.
        """
        return finish(self._core.append(key, items, label, tags, custom, files, expect, id))

    def update(
        self,
        changes: Mapping[str, Any],
        label: str | None = None,
        tags: Iterable[str] = (),
        custom: Mapping[str, Any] | None = None,
        files: Files | None = None,
        expect: Expect | UnsetType = UNSET,
        id: UUID | str | None = None,
        on_conflict: OnConflict = "raise",
        parent: Expect | UnsetType = UNSET,
        remove: Iterable[str] = (),
        append: tuple[str, list[Any] | tuple[Any, ...]] | None = None,
        created_at: datetime | None = None,
    ) -> Checkpoint:
        """Set some top-level keys; every other key is left unchanged and not read.

            thread.update({"plan": "…"}, remove=["draft"], append=("messages", [reply]))

        In the same checkpoint, the keys in `remove` are deleted, and `append=(key, items)` extends one list.
        `created_at` is the time of a step that was made elsewhere, and is imported now.
        """
        facts = (label, tags, custom, files, expect, id, on_conflict, parent, remove, append, created_at)
        return finish(self._core.update(changes, *facts))

    def autosave(self, every: int = 1) -> Autosave[S]:
        """Save every n-th state: call the result with each one; `flush()`, or the end of the `with`, saves the last.

        with thread.autosave(every=10) as save:
            save(state)
        """
        return Autosave(self, every)

    # -- reading ------------------------------------------------------------------------------------------------------

    @overload
    def load(self, at: At | None = None, as_: None = None) -> S: ...
    @overload
    def load(self, at: At | None = None, *, as_: type[T]) -> T: ...
    @overload
    def load(self, at: At | None, as_: type[T]) -> T: ...
    @overload
    def load(self, at: At | None = None, *, salvage: bool) -> Any: ...
    def load(self, at: At | None = None, as_: type[Any] | None = None, *, salvage: bool = False) -> Any:
        """Load the state at the head, or at `at`: a Checkpoint, an id, a unique prefix of one, or a step number.

            thread.load()
            thread.load(3, as_=Plan)

        With `as_`, the state is validated and returned as that type. With `salvage`, a damaged state is returned as
        plain values, with a `Hole` where something is lost.
        """
        return finish(self._core.load(at, as_, salvage))

    def pick(self, keys: Iterable[str], at: At | None = None) -> dict[str, Any]:
        """Load some top-level keys of the state; those that it does not have are left out, the rest is not read."""
        return finish(self._core.pick(keys, at))

    def tail(self, key: str, count: int, at: At | None = None) -> list[Any]:
        """Load the last `count` items of the list `state[key]`, without reading those before them."""
        return finish(self._core.tail(key, count, at))

    def exists(self) -> bool:
        """True if the thread has a checkpoint."""
        return finish(self._core.exists())

    def get(self, at: At, *, salvage: bool = False) -> Checkpoint:
        """Get the checkpoint that `at` names; with `salvage`, also a damaged one, with the reason in `damage`."""
        return finish(self._core.get(at, salvage))

    def history(
        self, limit: int | None = None, newest_first: bool = False, all: bool = False, *, salvage: bool = False
    ) -> list[Checkpoint]:
        """List the checkpoints from the first to the head, oldest first; a fork's include those it inherited.

        `limit` keeps the newest. `all` adds the abandoned ones. With `salvage`, damaged ones are listed too, with the
        reason in `damage`.
        """
        return finish(self._core.history(limit, newest_first, all, salvage))

    def find(
        self, *, tag: str | None = None, label: str | None = None, custom: Mapping[str, Any] | None = None
    ) -> list[Checkpoint]:
        """List the checkpoints with this tag, this label and these custom fields, oldest first, abandoned ones too."""
        return finish(self._core.find(tag, label, custom))

    def diff(self, a: At = "@~1", b: At | None = None, since_fork: bool = False) -> Diff:
        """Compare the states at `a` and at `b`, by default the last two; reads only the parts that differ.

            print(thread.diff(1, 2))
            print(thread.diff(other.head))

        Both may be checkpoints of another thread. With `since_fork`, the last checkpoint that both have in common is
        compared with `b`.
        """
        return finish(self._core.diff(a, b, since_fork))

    def common_ancestor(self, at: At) -> Checkpoint | None:
        """Get the last checkpoint that this thread and `at`, a checkpoint of another one, have in common.

        thread.common_ancestor(other.head)

        None if the two threads are not related.
        """
        return finish(self._core.common_ancestor(at))

    def outline(
        self,
        path: Sequence[str | int] = (),
        at: At | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        salvage: bool = False,
    ) -> Outline:
        """Describe one level of the state at `path`: kinds, counts and sizes; of a list, items `start` to `stop`.

            thread.outline(["messages"], start=100, stop=150)

        With `salvage`, a `Hole` stands where something is damaged.
        """
        return finish(self._core.outline(path, at, start, stop, salvage))

    def forks(self, relation: Relation | None = None, limit: int | None = None, after: str | None = None) -> list[Fork]:
        """List every other thread of the lineage, by id, with the last checkpoint that both have. `relation`: only
        parents, children or siblings. `limit` and `after`: a page, after the thread of that id."""
        return finish(self._core.forks(relation, limit, after))

    # -- moving -------------------------------------------------------------------------------------------------------

    def fork(self, to: str | None = None, at: At | None = None) -> Thread[S]:
        """Make a new thread at the head of this one, or at `at`; it shares everything saved up to there.

            other = thread.fork("support-42-retry", at=3)

        Without `to`, it is called "<id>#fork-<n>".
        """
        core = self._core
        return Thread(ThreadCore(core.context, finish(core.fork(to, at)), core.type, core.kind))

    def rewind(self, at: At, files: bool = False, prune: bool = False, keep_untracked: bool = False) -> Checkpoint:
        """Move the head back, or anywhere else, to `at`.

            thread.rewind(3)

        Abandoned checkpoints stay loadable, and `undo` takes the rewind back; with `prune`, the checkpoints between
        `at` and the old head are deleted instead. With `files`, the directory goes back to the snapshot that was saved
        with `at`: both move, or neither does. `rewind_files` does the same, and says what changes in the directory.
        """
        if not files:
            return finish(self._core.rewind(at, prune))
        from backtrail.workspace import rewind_together

        return finish(rewind_together(self._core, at, prune, keep_untracked))

    def rewind_files(self, at: At, dry_run: bool = False, keep_untracked: bool = False) -> Changes:
        """Rewind the thread and its directory together, as `rewind(at, files=True)` does; returns the changes in the
        directory: what is changed, what is removed, and what is kept, and why.

            print(thread.rewind_files(3, dry_run=True))  # changes nothing

        With `keep_untracked`, files that no snapshot holds stay.
        """
        from backtrail.workspace import rewind_files

        return finish(rewind_files(self._core, at, dry_run, keep_untracked))

    def undo(self, dry_run: bool = False) -> Checkpoint:
        """Take back the last move of the head: a rewind, or a save. `dry_run`: only return where the head would go."""
        return finish(self._core.undo(dry_run))

    def redo(self, dry_run: bool = False) -> Checkpoint:
        """Do again what the last `undo` took back; as often as there were undos, until a new save or rewind. `dry_run`:
        only return where the head would go."""
        return finish(self._core.redo(dry_run))

    # -- annotating, keeping, deleting --------------------------------------------------------------------------------

    def annotate(
        self,
        at: At,
        label: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType | None = UNSET,
        custom: Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> Checkpoint:
        """Change the label, tags or custom fields of a checkpoint; those that are not given stay."""
        return finish(self._core.annotate(at, label, tags, custom))

    def retain(self, policy: Policy) -> None:
        """Give the thread a retention policy of its own, which replaces the store's; None removes it. The policy is
        stored with the thread, and later forks inherit it.
        """
        finish(self._core.retain(policy))

    def delete(self, at: At | None = None) -> None:
        """Delete the thread, or one checkpoint of it; later checkpoints, and forks, stay loadable.

        If the head is deleted, the thread goes back to the checkpoint before it, or else to the newest abandoned one;
        if none is left, the thread is deleted.
        """
        finish(self._core.delete(at))

    # -- files and locks ----------------------------------------------------------------------------------------------

    def workspace(self, at: At | None = None, root: str | PathLike[str] | None = None) -> Workspace:
        """Open the directory whose snapshot was saved with the head, or with `at`.

        It is `root`, or the one that the workspace was opened with in this process, or else the one that this user last
        used with this store on this machine. The store itself never chooses it: without one, the workspace can only
        list and compare its snapshots, and everything else raises `NoDirectory`.
        """
        from backtrail.workspace import Workspace, workspace_of

        return Workspace(finish(workspace_of(self._core, at, root)))

    def lock(self, timeout: float = 10.0, ttl: float = 30.0) -> Lock:
        """Lock the thread; saves of this handle are refused once the lock is lost.

        with thread.lock():
            thread.update({"plan": plan(thread.load())})
        """
        return Lock(CoreLock(self._core, timeout, ttl))

    def _repr_html_(self) -> str:
        """For notebooks: the newest checkpoints."""
        shown = self.history(limit=10, newest_first=True) if self.exists() else []
        rows = [
            (c.step, c.id, f"{c.created_at:%Y-%m-%d %H:%M:%S}", c.label or "", " ".join(c.tags), c.size) for c in shown
        ]
        title = f"thread {self.id}: {counted(self.step, 'step')}"
        return html_table(title, rows, ("step", "id", "saved", "label", "tags", "bytes of state"))

    def __repr__(self) -> str:
        return f"<backtrail.Thread {self.id!r}>"
