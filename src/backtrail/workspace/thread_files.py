"""A thread and the directory whose snapshots its checkpoints have: found, and rewound together."""

from __future__ import annotations

import os
from typing import Any

from backtrail.errors import InvalidInput, NoCheckpoint
from backtrail.history.context import Context
from backtrail.history.thread_core import ThreadCore
from backtrail.model import Checkpoint
from backtrail.workspace.journal import Journal
from backtrail.workspace.model import Changes
from backtrail.workspace.registry import Registry
from backtrail.workspace.roots import PREFIX
from backtrail.workspace.workspace_core import WorkspaceCore


async def rewind_together(
    thread: ThreadCore[Any], at: Any, prune: bool = False, keep_untracked: bool = False, **options: Any
) -> Checkpoint:
    """Rewind a thread, and its directory to the checkpoint's snapshot, both or neither."""
    if prune:
        raise InvalidInput("rewind(files=True) keeps what it leaves behind, so that it can be undone: leave prune out")
    checkpoint = await thread.get(at)
    await rewind_files(thread, checkpoint, keep_untracked=keep_untracked, **options)
    return checkpoint


async def rewind_files(
    thread: ThreadCore[Any], at: Any, dry_run: bool = False, keep_untracked: bool = False, **options: Any
) -> Changes:
    """The same; returns the changes in the directory."""
    checkpoint = await thread.get(at)
    workspace = await workspace_of(thread, checkpoint, **options)
    return await workspace.rewind(thread, checkpoint, dry_run, keep_untracked)


async def workspace_of(thread: ThreadCore[Any], at: Any = None, root: Any = None, **options: Any) -> WorkspaceCore:
    """The workspace whose snapshot was saved with the head, or with `at`. Its directory is `root`, or the one that it
    was opened with in this process, or else the one that this machine's registry has."""
    checkpoint = await thread.get(await thread.step() if at is None else at)
    if checkpoint.files is None:
        raise NoCheckpoint(f"checkpoint {checkpoint.id} has no files: only one that was saved with files=workspace has")
    name = checkpoint.files.partition("@")[2]
    opened: WorkspaceCore | None = thread.context.workspace(name)
    if root is None and opened is not None:
        return opened
    known = root if root is not None else await _registered_root(thread.context, name, checkpoint)
    return WorkspaceCore(thread.context, known, name.removeprefix(PREFIX), remember=root is not None, **options)


async def _registered_root(context: Context, name: str, checkpoint: Checkpoint) -> str | None:
    """The directory that a checkpoint's files belong in: the one that its snapshot was taken of or, if that was on
    another machine, the one that this machine last used with the workspace. None if there is no such directory."""
    known = Registry(context, name).directories()
    if not known:
        return None
    journal = Journal(context, name)
    for record in (await journal.find(checkpoint), *reversed(await journal.records())):
        if record.directory in known:
            return os.fsdecode(known[record.directory].root)
    return None
