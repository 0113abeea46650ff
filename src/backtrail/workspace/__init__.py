"""A directory seen as file snapshots, shared by the threads that work in it.

`core` says what a workspace does and `doors` says it in two colours. Below them: `walk`, `skip` and `index` find out
what changed, `pack` reads it, `trees` names it, `log` keeps it; `plan`, `hands` and `restore` bring it back.
"""

from backtrail.workspace.core import WorkspaceCore, rewind_together, workspace_of
from backtrail.workspace.journal import follow
from backtrail.workspace.model import Change, Changes, FileDiff, Limits, Skipped, Snapshot, Status
from backtrail.workspace.sync import AsyncWorkspace, Workspace

__all__ = [
    "AsyncWorkspace",
    "Change",
    "Changes",
    "FileDiff",
    "Limits",
    "Skipped",
    "Snapshot",
    "Status",
    "Workspace",
    "WorkspaceCore",
    "follow",
    "rewind_together",
    "workspace_of",
]
