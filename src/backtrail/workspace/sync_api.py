"""`Workspace`: a directory seen as file snapshots. Each method runs the core's coroutine in place."""

from __future__ import annotations

from backtrail.engines.coroutines import finish
from backtrail.model import At, Progress
from backtrail.workspace.model import Changes, FileDiff, FileEntry, JointSave, Restore, Snapshot, Status
from backtrail.workspace.workspace_core import WorkspaceCore


class Workspace:
    """A directory seen as file snapshots.

    workspace = store.workspace("project")
    before = workspace.snapshot("before the refactoring")
    print(workspace.restore(before, dry_run=True))
    """

    def __init__(self, core: WorkspaceCore) -> None:
        self._core = core

    @property
    def root(self) -> str:
        """The directory, without symlinks; `NoDirectory` if this machine knows none for the workspace."""
        return self._core.root

    @property
    def name(self) -> str:
        """The name of the thread that keeps the snapshots."""
        return self._core.name

    def snapshot(self, label: str | None = None, progress: Progress | None = None) -> Snapshot:
        """Save the directory as it is; `progress` is called with (done, total) of the changed files.

        before = workspace.snapshot("before the refactoring")
        """
        return finish(self._core.snapshot(label, progress))

    def snapshots(self) -> list[Snapshot]:
        """List all snapshots, oldest first, those that restores took for safety included."""
        return finish(self._core.snapshots())

    def status(self) -> Status:
        """Compare the directory with the newest snapshot, and list what a snapshot leaves out, and why."""
        return finish(self._core.status())

    def diff(self, a: At | Snapshot, b: At | Snapshot | None = None, text: bool = True) -> FileDiff:
        """Compare snapshot `a` with snapshot `b`, or with the directory now; `text` adds unified diffs."""
        return finish(self._core.diff(a, b, text))

    def entries(self, snapshot: At | Snapshot, path: str = "") -> tuple[FileEntry, ...]:
        """List a folder of a snapshot, folders first; nothing is restored."""
        return finish(self._core.entries(snapshot, path))

    def read(self, snapshot: At | Snapshot, path: str) -> bytes:
        """Read a file of a snapshot; nothing is restored."""
        return finish(self._core.read(snapshot, path))

    def restore(
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

        print(workspace.restore(before, dry_run=True))
        """
        return finish(self._core.restore(snapshot, dry_run, keep_untracked, save, expect))

    def revert(
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
        return finish(self._core.revert(a, b, dry_run, merge, save, expect))

    def undo(
        self,
        dry_run: bool = False,
        keep_untracked: bool = False,
        files: bool = True,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Take back the newest restore that has not been taken back yet. Without `files` the directory stays as it is,
        for a restore that was made by `save_only`; `save` and `expect` are as in `restore`."""
        return finish(self._core.undo(dry_run, keep_untracked, files, save, expect))

    def redo(
        self,
        dry_run: bool = False,
        keep_untracked: bool = False,
        files: bool = True,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Take back the newest `undo`: the directory is again as it was before it. As often as there were undos, until
        another snapshot is restored."""
        return finish(self._core.redo(dry_run, keep_untracked, files, save, expect))

    def last_restore(self) -> Restore | None:
        """Get the restore that `undo` takes back; None if there is none."""
        return finish(self._core.last_restore())

    def last_undo(self) -> Restore | None:
        """Get the undo that `redo` takes back; None if there is none."""
        return finish(self._core.last_undo())

    def save_only(self, save: JointSave) -> None:
        """Save a checkpoint as if with a restore, without changing a file, so that `undo` finds it in its place."""
        finish(self._core.save_only(save))

    def recover(self) -> None:
        """Finish, or take back, a restore whose process died; every other call does this first as well,
        except a dry run."""
        finish(self._core.recover())

    async def __file_reference__(self) -> str:
        return await self._core.__file_reference__()

    def __repr__(self) -> str:
        return f"<backtrail.Workspace {self.name!r}>"
