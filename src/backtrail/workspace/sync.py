"""The two doors of a workspace: `Workspace` blocks, `AsyncWorkspace` is awaited. The names are the same."""

from __future__ import annotations

from backtrail.runner import AsyncRunner, awaitable, blocking, listing
from backtrail.workspace.core import WorkspaceCore


class Workspace:
    """A directory seen as file snapshots.

    workspace = store.workspace("project")
    before = workspace.snapshot("before the refactoring")
    print(workspace.restore(before, dry_run=True))
    """

    def __init__(self, core: WorkspaceCore) -> None:
        self.core = core

    @property
    def root(self) -> str:
        """The directory, without symlinks."""
        return self.core.root

    @property
    def name(self) -> str:
        """The name of the thread that keeps the snapshots."""
        return self.core.name

    snapshot = blocking(WorkspaceCore.snapshot)
    snapshots = blocking(WorkspaceCore.snapshots)
    status = blocking(WorkspaceCore.status)
    diff = blocking(WorkspaceCore.diff)
    restore = blocking(WorkspaceCore.restore)
    revert = blocking(WorkspaceCore.revert)
    undo = blocking(WorkspaceCore.undo)
    recover = blocking(WorkspaceCore.recover)

    def __repr__(self) -> str:
        return f"<backtrail.Workspace {self.root!r}>"


class AsyncWorkspace:
    """A directory seen as file snapshots.

    workspace = store.workspace("project")
    before = await workspace.snapshot("before the refactoring")
    """

    def __init__(self, core: WorkspaceCore, hop: AsyncRunner) -> None:
        self.core = core
        self.hop = hop

    @property
    def root(self) -> str:
        """The directory, without symlinks."""
        return self.core.root

    @property
    def name(self) -> str:
        """The name of the thread that keeps the snapshots."""
        return self.core.name

    snapshot = awaitable(WorkspaceCore.snapshot)
    snapshots = listing(WorkspaceCore.snapshots)
    status = awaitable(WorkspaceCore.status)
    diff = awaitable(WorkspaceCore.diff)
    restore = awaitable(WorkspaceCore.restore)
    revert = awaitable(WorkspaceCore.revert)
    undo = awaitable(WorkspaceCore.undo)
    recover = awaitable(WorkspaceCore.recover)

    def __repr__(self) -> str:
        return f"<backtrail.AsyncWorkspace {self.root!r}>"
