"""`AsyncWorkspace`: the names of `Workspace`, to be awaited. Lists may also be looped over with `async for`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from backtrail.async_runner import AsyncRunner, AwaitableList
from backtrail.errors import NoDirectory
from backtrail.html_table import html_table
from backtrail.model import At, Progress
from backtrail.workspace.model import Changes, FileDiff, FileEntry, JointSave, Restore, Snapshot, Status
from backtrail.workspace.workspace_core import WorkspaceCore


class AsyncWorkspace:
    """A directory seen as file snapshots.

    workspace = store.workspace("project")
    before = await workspace.snapshot("before the refactoring")
    """

    def __init__(self, core: WorkspaceCore, runner: AsyncRunner) -> None:
        self._core = core
        self._runner = runner

    def __await__(self) -> Generator[Any, Any, AsyncWorkspace]:
        """Finish, or take back, a restore that was interrupted, and return the workspace: `await store.workspace(…)`.
        Without `await`, the first call does so."""
        return self._ready().__await__()

    async def _ready(self) -> AsyncWorkspace:
        await self._runner(self._core.ready())
        return self

    @property
    def root(self) -> str:
        """The directory, without symlinks; `NoDirectory` if this machine knows none for the workspace."""
        return self._core.root

    @property
    def name(self) -> str:
        """The name of the thread that keeps the snapshots."""
        return self._core.name

    async def snapshot(self, label: str | None = None, progress: Progress | None = None) -> Snapshot:
        """Save the directory as it is; `progress` is called with (done, total) of the changed files.

        before = await workspace.snapshot("before the refactoring")
        """
        return await self._runner(self._core.snapshot(label, progress))

    def snapshots(self) -> AwaitableList[Snapshot]:
        """List all snapshots, oldest first, those that restores took for safety included."""
        return AwaitableList(self._runner(self._core.snapshots()))

    async def status(self) -> Status:
        """Compare the directory with the newest snapshot, and list what a snapshot leaves out, and why."""
        return await self._runner(self._core.status())

    async def diff(self, a: At | Snapshot, b: At | Snapshot | None = None, text: bool = True) -> FileDiff:
        """Compare snapshot `a` with snapshot `b`, or with the directory now; `text` adds unified diffs."""
        return await self._runner(self._core.diff(a, b, text))

    async def entries(self, snapshot: At | Snapshot, path: str = "") -> tuple[FileEntry, ...]:
        """List a folder of a snapshot, folders first; nothing is restored."""
        return await self._runner(self._core.entries(snapshot, path))

    async def read(self, snapshot: At | Snapshot, path: str) -> bytes:
        """Read a file of a snapshot; nothing is restored."""
        return await self._runner(self._core.read(snapshot, path))

    async def restore(
        self,
        snapshot: At | Snapshot,
        dry_run: bool = False,
        keep_untracked: bool = False,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Restore the directory to a snapshot; its present state is kept in a safety snapshot, for `undo`.

        What appeared since the snapshot, and is not ignored, is removed; with `keep_untracked`, files that no snapshot
        holds stay. `save` is a checkpoint of a thread that is saved with it, both or neither. `expect` is the `plan` of
        a dry run: if the changes would be others by now, `Conflict`, and nothing is changed.

        print(await workspace.restore(before, dry_run=True))
        """
        return await self._runner(self._core.restore(snapshot, dry_run, keep_untracked, save, expect))

    async def revert(
        self,
        a: At | Snapshot,
        b: At | Snapshot,
        dry_run: bool = False,
        merge: bool = False,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Undo only what changed from snapshot `a` to snapshot `b`, a turn of an agent for example.

        Paths that were changed again after `b` stay as they are, and are listed as kept. With `merge`, the lines of
        text files that were not changed again go back as well. `save` and `expect` are as in `restore`.
        """
        return await self._runner(self._core.revert(a, b, dry_run, merge, save, expect))

    async def undo(
        self,
        dry_run: bool = False,
        keep_untracked: bool = False,
        files: bool = True,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Take back the newest restore that has not been taken back yet. Without `files` the directory stays as it is,
        for a restore that was made by `save_only`; `save` and `expect` are as in `restore`."""
        return await self._runner(self._core.undo(dry_run, keep_untracked, files, save, expect))

    async def redo(
        self,
        dry_run: bool = False,
        keep_untracked: bool = False,
        files: bool = True,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Take back the newest `undo`: the directory is again as it was before it. As often as there were undos, until
        another snapshot is restored."""
        return await self._runner(self._core.redo(dry_run, keep_untracked, files, save, expect))

    async def last_restore(self) -> Restore | None:
        """Get the restore that `undo` takes back; None if there is none."""
        return await self._runner(self._core.last_restore())

    async def last_undo(self) -> Restore | None:
        """Get the undo that `redo` takes back; None if there is none."""
        return await self._runner(self._core.last_undo())

    async def save_only(self, save: JointSave) -> None:
        """Save a checkpoint as if with a restore, without changing a file, so that `undo` finds it in its place."""
        await self._runner(self._core.save_only(save))

    async def recover(self) -> None:
        """Finish, or take back, a restore whose process died; every other call does this first as well,
        except a dry run."""
        await self._runner(self._core.recover())

    async def __file_reference__(self) -> str:
        return await self._core.__file_reference__()

    def _repr_html_(self) -> str:
        """For notebooks: what is known of it without reading."""
        try:
            root = self.root
        except NoDirectory:
            root = "not known on this machine"
        return html_table(
            f"workspace {self.name}", [("directory", root), ("its snapshots", "await workspace.snapshots()")]
        )

    def __repr__(self) -> str:
        return f"<backtrail.AsyncWorkspace {self.name!r}>"
