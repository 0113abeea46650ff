"""A directory seen as file snapshots, shared by the threads that work in it.

`sync` and `aio` are the public classes, `core` does the work. Below it, `scanner`, `walk`, `exclusions` and `index`
find changes, `pack` reads files, `trees` names them, `journal` keeps them; `restore_plan`, `apply` and `restore` bring
them back.
"""

from backtrail.workspace.aio import AsyncWorkspace
from backtrail.workspace.core import WorkspaceCore, rewind_together, workspace_of
from backtrail.workspace.journal import follow
from backtrail.workspace.model import Change, Changes, FileDiff, Limits, Skipped, Snapshot, Status
from backtrail.workspace.sync import Workspace

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
