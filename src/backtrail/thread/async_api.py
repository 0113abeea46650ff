"""`AsyncThread`: the names of `Thread`, to be awaited. Lists may also be looped over with `async for`."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from msgspec import UNSET, UnsetType

from backtrail.async_runner import AsyncRunner, AwaitableList
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.thread_core import ThreadCore
from backtrail.history.thread_lock import Lock as CoreLock
from backtrail.html_table import html_table
from backtrail.model import At, Checkpoint, Diff, Fork, Outline, Relation, Retention
from backtrail.thread.autosave import AsyncAutosave
from backtrail.thread.lock import AsyncLock
from backtrail.typing import Expect, Files, OnConflict, Policy, S, State

if TYPE_CHECKING:
    from backtrail.workspace import AsyncWorkspace, Changes

T = TypeVar("T")


class AsyncThread(Generic[S]):
    """One conversation or run, with a head and a history.

    thread = store.thread("support-42")
    await thread.append("messages", [{"role": "user", "content": "hello"}])
    state = await thread.load()
    """

    def __init__(self, core: ThreadCore[S], runner: AsyncRunner) -> None:
        self._core = core
        self._runner = runner

    @property
    def id(self) -> str:
        """The name of the thread."""
        return self._core.id

    @property
    async def head(self) -> Checkpoint | None:
        """The checkpoint that the thread is at, None if it has none: `await thread.head`."""
        return await self._runner(self._core.head())

    @property
    async def step(self) -> int:
        """The step of the head, 0 if there is none: `await thread.step`."""
        return await self._runner(self._core.step())

    @property
    async def retention(self) -> Retention | None:
        """The thread's own policy, None if it has the store's: `await thread.retention`. `retain` sets it."""
        return await self._runner(self._core.retention())

    # -- saving -------------------------------------------------------------------------------------------------------

    @overload
    async def save(
        self: AsyncThread[dict[str, Any]],
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
    async def save(
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
    async def save(
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

            await thread.save({"messages": [], "plan": "…"}, label="start", tags=["draft"])

        `expect` is the checkpoint that must be the head, None for a thread that must not exist yet; without it, the
        last one that this handle loaded or saved. If the head is another, `Conflict` is raised; with
        on_conflict="branch" the state is saved on a branch of its own instead, and the head stays.
        `id` is a UUID chosen by the caller: if the thread has a checkpoint of that id, nothing is saved.
        `parent` is the checkpoint to build on wherever the head is: if they differ, a branch begins at `parent` and the
        head moves there. `files` is a workspace, of which a snapshot is taken, or one of its snapshots.
        """
        return await self._write(
            self._core.save(state, label, tags, custom, files, expect, id, on_conflict, parent), files
        )

    async def append(
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

            await thread.append("messages", [{"role": "user", "content": "hello"}])

        If another writer was faster, the items go after theirs. A missing thread or list is created.
        """
        return await self._write(self._core.append(key, items, label, tags, custom, files, expect, id), files)

    async def update(
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

            await thread.update({"plan": "…"}, remove=["draft"], append=("messages", [reply]))

        In the same checkpoint, the keys in `remove` are deleted, and `append=(key, items)` extends one list.
        `created_at` is the time of a step that was made elsewhere, and is imported now.
        """
        facts = (label, tags, custom, files, expect, id, on_conflict, parent, remove, append, created_at)
        work = self._core.update(changes, *facts)
        return await self._write(work, files)

    def _write(self, work: Coroutine[Any, Any, Checkpoint], files: Files | None) -> Coroutine[Any, Any, Checkpoint]:
        """Run a save, in one commit with those of other tasks; a snapshot of files may take long, and runs alone."""
        return self._runner.together(work) if files is None else self._runner(work)

    def autosave(self, every: int = 1) -> AsyncAutosave[S]:
        """Save every n-th state: await the result with each; `flush()`, or the end of the `async with`, saves the last.

        async with thread.autosave(every=10) as save:
            await save(state)
        """
        return AsyncAutosave(self, every)

    # -- reading ------------------------------------------------------------------------------------------------------

    @overload
    async def load(self, at: At | None = None, as_: None = None) -> S: ...
    @overload
    async def load(self, at: At | None = None, *, as_: type[T]) -> T: ...
    @overload
    async def load(self, at: At | None, as_: type[T]) -> T: ...
    @overload
    async def load(self, at: At | None = None, *, salvage: bool) -> Any: ...
    async def load(self, at: At | None = None, as_: type[Any] | None = None, *, salvage: bool = False) -> Any:
        """Load the state at the head, or at `at`: a Checkpoint, an id, a unique prefix of one, or a step number.

            await thread.load()
            await thread.load(3, as_=Plan)

        With `as_`, the state is validated and returned as that type. With `salvage`, a damaged state is returned as
        plain values, with a `Hole` where something is lost.
        """
        return await self._runner(self._core.load(at, as_, salvage))

    async def pick(self, keys: Iterable[str], at: At | None = None) -> dict[str, Any]:
        """Load some top-level keys of the state; those that it does not have are left out, the rest is not read."""
        return await self._runner(self._core.pick(keys, at))

    def tail(self, key: str, count: int, at: At | None = None) -> AwaitableList[Any]:
        """Load the last `count` items of the list `state[key]`, without reading those before them."""
        return AwaitableList(self._runner(self._core.tail(key, count, at)))

    async def exists(self) -> bool:
        """True if the thread has a checkpoint."""
        return await self._runner(self._core.exists())

    async def get(self, at: At, *, salvage: bool = False) -> Checkpoint:
        """Get the checkpoint that `at` names; with `salvage`, also a damaged one, with the reason in `damage`."""
        return await self._runner(self._core.get(at, salvage))

    def history(
        self, limit: int | None = None, newest_first: bool = False, all: bool = False, *, salvage: bool = False
    ) -> AwaitableList[Checkpoint]:
        """List the checkpoints from the first to the head, oldest first; a fork's include those it inherited.

            async for checkpoint in thread.history(): ...

        `limit` keeps the newest. `all` adds the abandoned ones. With `salvage`, damaged ones are listed too, with the
        reason in `damage`.
        """
        return AwaitableList(self._runner(self._core.history(limit, newest_first, all, salvage)))

    def find(
        self, *, tag: str | None = None, label: str | None = None, custom: Mapping[str, Any] | None = None
    ) -> AwaitableList[Checkpoint]:
        """List the checkpoints with this tag, this label and these custom fields, oldest first, abandoned ones too."""
        return AwaitableList(self._runner(self._core.find(tag, label, custom)))

    async def diff(self, a: At = "@~1", b: At | None = None, since_fork: bool = False) -> Diff:
        """Compare the states at `a` and at `b`, by default the last two; reads only the parts that differ.

            print(await thread.diff(1, 2))
            print(await thread.diff(await other.head))

        Both may be checkpoints of another thread. With `since_fork`, the last checkpoint that both have in common is
        compared with `b`.
        """
        return await self._runner(self._core.diff(a, b, since_fork))

    async def common_ancestor(self, at: At) -> Checkpoint | None:
        """Get the last checkpoint that this thread and `at`, a checkpoint of another one, have in common.

        await thread.common_ancestor(await other.head)

        None if the two threads are not related.
        """
        return await self._runner(self._core.common_ancestor(at))

    async def outline(
        self,
        path: Sequence[str | int] = (),
        at: At | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        salvage: bool = False,
    ) -> Outline:
        """Describe one level of the state at `path`: kinds, counts and sizes; of a list, items `start` to `stop`.

            await thread.outline(["messages"], start=100, stop=150)

        With `salvage`, a `Hole` stands where something is damaged.
        """
        return await self._runner(self._core.outline(path, at, start, stop, salvage))

    def forks(
        self, relation: Relation | None = None, limit: int | None = None, after: str | None = None
    ) -> AwaitableList[Fork]:
        """List every other thread of the lineage, by id, with the last checkpoint that both have. `relation`: only
        parents, children or siblings. `limit` and `after`: a page, after the thread of that id."""
        return AwaitableList(self._runner(self._core.forks(relation, limit, after)))

    # -- moving -------------------------------------------------------------------------------------------------------

    async def fork(self, to: str | None = None, at: At | None = None) -> AsyncThread[S]:
        """Make a new thread at the head of this one, or at `at`; it shares everything saved up to there.

            other = await thread.fork("support-42-retry", at=3)

        Without `to`, it is called "<id>#fork-<n>".
        """
        core = self._core
        name = await self._runner(core.fork(to, at))
        return AsyncThread(ThreadCore(core.context, name, core.type, core.kind), self._runner)

    async def rewind(
        self, at: At, files: bool = False, prune: bool = False, keep_untracked: bool = False
    ) -> Checkpoint:
        """Move the head back, or anywhere else, to `at`.

            await thread.rewind(3)

        Abandoned checkpoints stay loadable, and `undo` takes the rewind back; with `prune`, the checkpoints between
        `at` and the old head are deleted instead. With `files`, the directory goes back to the snapshot that was saved
        with `at`: both move, or neither does. `rewind_files` does the same, and says what changes in the directory.
        """
        if not files:
            return await self._runner(self._core.rewind(at, prune))
        from backtrail.workspace import rewind_together

        return await self._runner(rewind_together(self._core, at, prune, keep_untracked, work=self._runner.work))

    async def rewind_files(self, at: At, dry_run: bool = False, keep_untracked: bool = False) -> Changes:
        """Rewind the thread and its directory together, as `rewind(at, files=True)` does; returns the changes in the
        directory: what is changed, what is removed, and what is kept, and why.

            print(await thread.rewind_files(3, dry_run=True))  # changes nothing

        With `keep_untracked`, files that no snapshot holds stay.
        """
        from backtrail.workspace import rewind_files

        return await self._runner(rewind_files(self._core, at, dry_run, keep_untracked, work=self._runner.work))

    async def undo(self, dry_run: bool = False) -> Checkpoint:
        """Take back the last move of the head: a rewind, or a save. `dry_run`: only return where the head would go."""
        return await self._runner(self._core.undo(dry_run))

    async def redo(self, dry_run: bool = False) -> Checkpoint:
        """Do again what the last `undo` took back; as often as there were undos, until a new save or rewind. `dry_run`:
        only return where the head would go."""
        return await self._runner(self._core.redo(dry_run))

    # -- annotating, keeping, deleting --------------------------------------------------------------------------------

    async def annotate(
        self,
        at: At,
        label: str | UnsetType | None = UNSET,
        tags: Iterable[str] | UnsetType | None = UNSET,
        custom: Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> Checkpoint:
        """Change the label, tags or custom fields of a checkpoint; those that are not given stay."""
        return await self._runner(self._core.annotate(at, label, tags, custom))

    async def retain(self, policy: Policy) -> None:
        """Give the thread a retention policy of its own, which replaces the store's; None removes it. The policy is
        stored with the thread, and later forks inherit it.
        """
        await self._runner(self._core.retain(policy))

    async def delete(self, at: At | None = None) -> None:
        """Delete the thread, or one checkpoint of it; later checkpoints, and forks, stay loadable.

        If the head is deleted, the thread goes back to the checkpoint before it, or else to the newest abandoned one;
        if none is left, the thread is deleted.
        """
        await self._runner(self._core.delete(at))

    # -- files and locks ----------------------------------------------------------------------------------------------

    async def workspace(self, at: At | None = None, root: str | PathLike[str] | None = None) -> AsyncWorkspace:
        """Open the directory whose snapshot was saved with the head, or with `at`.

        It is `root`, or the one that the workspace was opened with in this process, or else the one that this user last
        used with this store on this machine. The store itself never chooses it: without one, the workspace can only
        list and compare its snapshots, and everything else raises `NoDirectory`.
        """
        from backtrail.workspace import AsyncWorkspace, workspace_of

        return AsyncWorkspace(
            await self._runner(workspace_of(self._core, at, root, work=self._runner.work)), self._runner
        )

    def lock(self, timeout: float = 10.0, ttl: float = 30.0) -> AsyncLock:
        """Lock the thread; saves of this handle are refused once the lock is lost.

        async with thread.lock():
            await thread.update({"plan": plan(await thread.load())})
        """
        return AsyncLock(CoreLock(self._core, timeout, ttl), self._runner)

    def _repr_html_(self) -> str:
        """For notebooks: what is known of it without reading."""
        base = self._core.base_id
        seen = uuid_text(base) if base is not None else "none yet"
        rows = [("last saved or loaded here", seen), ("its checkpoints", "await thread.history(limit=10)")]
        return html_table(f"thread {self.id}", rows)

    def __repr__(self) -> str:
        return f"<backtrail.AsyncThread {self.id!r}>"
