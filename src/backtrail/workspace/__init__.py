"""File snapshots of a directory, shared by the threads that work in it.

`workspace_core` has every operation as a coroutine; `sync_api` and `async_api` have the facades, and `thread_files`
what concerns a thread as well. A snapshot: `scanner`
runs `walk` (which files changed, by `index`, `signatures` and `exclusions`), then `pack` (files become blobs), then
`trees`, and `journal` writes it; all reading goes through `descent`. A restore: `restore_plan` and `protections`
decide, `apply` changes the directory, `restore` keeps both crash-safe. `registry` knows this machine's directories.
"""

from backtrail.workspace.async_api import AsyncWorkspace
from backtrail.workspace.journal import reachable_blobs
from backtrail.workspace.model import (
    Change,
    Changes,
    FileDiff,
    FileEntry,
    JointSave,
    Limits,
    Restore,
    Skipped,
    Snapshot,
    Status,
)
from backtrail.workspace.sync_api import Workspace
from backtrail.workspace.thread_files import rewind_files, rewind_together, workspace_of
from backtrail.workspace.workspace_core import WorkspaceCore

__all__ = [
    "AsyncWorkspace",
    "Change",
    "Changes",
    "FileDiff",
    "FileEntry",
    "JointSave",
    "Limits",
    "Restore",
    "Skipped",
    "Snapshot",
    "Status",
    "Workspace",
    "WorkspaceCore",
    "reachable_blobs",
    "rewind_files",
    "rewind_together",
    "workspace_of",
]
