"""A workspace: a directory seen as file snapshots, shared by the threads that work in it.

Its operations are written once, as coroutines, for the sync and async facades. Each call takes the directory's lock,
finishes a restore that died, and then scans the directory itself, without relying on reports of what has changed.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3

from backtrail.engines.retry import RetryPolicy
from backtrail.errors import Conflict, FilesError, InvalidInput, NoCheckpoint
from backtrail.history.context import Context
from backtrail.history.thread_core import ThreadCore
from backtrail.history.validation import check_name
from backtrail.model import Checkpoint
from backtrail.workspace import diff as file_diff
from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.joint_rewind import HeadMove
from backtrail.workspace.journal import SNAPSHOT_KINDS, Journal
from backtrail.workspace.lock import acquire
from backtrail.workspace.model import Changes, FileDiff, Limits, Snapshot, Status
from backtrail.workspace.paths import to_utf8
from backtrail.workspace.restore import Restorer, same_item
from backtrail.workspace.restore_plan import listed_ops, to_changes, to_skipped
from backtrail.workspace.scanner import Scan, Scanner, Work, in_place
from backtrail.workspace.trees import Op, TreeEntry, compare
from backtrail.workspace.walk import Progress

#: A snapshot, if other machines that share the workspace append theirs at the same time.
SNAPSHOT_RACES = RetryPolicy.times(16)
PREFIX = "workspace:"


class WorkspaceCore:
    """One directory and its journal in the store."""

    def __init__(
        self,
        context: Context,
        root: Any,
        name: str | None = None,
        *,
        cache: str | os.PathLike[str] | Literal[False] | None = None,
        limits: Limits | None = None,
        unreadable: str = "raise",
        timeout: float = 30.0,
        work: Work = in_place,
    ) -> None:
        """`cache`: a directory for the index; None for the user's cache directory, False to keep none.
        `unreadable="flag"` goes on without files that cannot be read, and lists them in the snapshot."""
        if unreadable not in ("raise", "flag"):
            raise InvalidInput(f"unreadable={unreadable!r} is unknown: use 'raise' or 'flag'")
        real = check_root(root)
        self._context = context
        self.root = os.fsdecode(real)
        self.name = thread_name(real, name)
        store_paths = tuple(sorted(os.path.realpath(os.fsencode(path)) for path in context.own_paths))
        self._scan_root = ScanRoot(real, store_paths, limits or Limits(), unreadable)
        self._journal = Journal(context, self.name)
        self._work = work
        self._timeout = timeout
        self._scanner = Scanner(self._scan_root, self._journal, cache_file(cache, real, self.name), work)
        context.add_workspace(self.name, self)
        self._restorer = Restorer(
            self._scan_root, self._journal, self._scanner, work, lambda data: HeadMove(context, data)
        )

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the directory's lock, after any unfinished restore was finished."""
        self._context.check_open()
        handle = await self._work(lambda: acquire(self._scan_root.path, self._timeout))
        try:
            await self._restorer.recover()
            yield
        finally:
            os.close(handle)

    async def recover(self) -> None:
        """Finish, or take back, a restore whose process died. Every other call does so first."""
        async with self._locked():
            return

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def snapshot(self, label: str | None = None, progress: Progress | None = None) -> Snapshot:
        """Save the directory as it is. `progress(done, total)` is called with the number of changed files read."""
        async with self._locked():
            for _ in SNAPSHOT_RACES.attempts():
                try:
                    scan = await self._scanner.scan(await self._journal.tip(), keep=True, progress=progress)
                    record = await self._journal.append(
                        "snapshot",
                        scan.tree,
                        after=scan.tip,
                        label=label,
                        facts=scan.facts(self._scan_root.path),
                        withheld=scan.withheld(),
                        blobs=scan.blobs,
                    )
                except Conflict:
                    continue  # another machine shares this workspace: build on its record
                await self._scanner.remember(scan)
                return record.snapshot
        raise Conflict(self.name, message=f"workspace {self.name!r} kept moving: try again when its writers rest")

    async def snapshots(self) -> list[Snapshot]:
        """All snapshots, oldest first, including the safety snapshots of restores."""
        self._context.check_open()
        return [record.snapshot for record in await self._journal.records() if record.kind in SNAPSHOT_KINDS]

    async def __file_reference__(self) -> str:
        """Take a snapshot for a checkpoint; returns the reference for its `files`."""
        return await (await self.snapshot()).__file_reference__()

    async def status(self) -> Status:
        """The directory now, compared with the newest record, with everything that a snapshot leaves out and why."""
        async with self._locked():
            tip = await self._journal.tip()
            scan = await self._scanner.scan(tip, keep=False)
            last = await self._journal.last_state(tip)
            ops = await compare(None if last is None else last.tree, scan.tree, self._restorer.tree_reader(scan))
            skipped = to_skipped(sorted(scan.index.skipped()))
            return Status(scan.index.files, scan.index.size, to_changes(ops), skipped, scan.flagged)

    async def diff(self, a: Any, b: Any = None, text: bool = True) -> FileDiff:
        """The changes from snapshot `a` to snapshot `b`, or to the directory now."""
        if b is not None:
            self._context.check_open()
            old, new = await self._journal.find(a), await self._journal.find(b)
            ops = await compare(old.tree, new.tree, self._journal.trees)
            return await self._diff(ops, text, in_directory=False)
        async with self._locked():
            old = await self._journal.find(a)
            scan = await self._scanner.scan(await self._journal.tip(), keep=False)
            ops = await compare(old.tree, scan.tree, self._restorer.tree_reader(scan))
            return await self._diff(ops, text, in_directory=True)

    async def _diff(self, ops: list[Op], text: bool, *, in_directory: bool) -> FileDiff:
        """The ops as a diff. With `in_directory`, new contents are read from the directory instead of the store."""
        if not text:
            return FileDiff(to_changes(ops))
        contents: dict[bytes, bytes] = {}
        stored: list[TreeEntry] = []
        listed = listed_ops(ops)
        for op in listed:
            for side in file_diff.comparable(op):
                if side is op.new and in_directory:
                    contents |= await self._work(partial(self._read_unsaved, op.path, side))
                else:
                    stored.append(side)
        contents |= await self._journal.contents(stored)
        return FileDiff(tuple(file_diff.describe(op, contents) for op in listed))

    def _read_unsaved(self, path: bytes, entry: TreeEntry) -> dict[bytes, bytes]:
        """The content of a file in the directory, by its ref; empty if the file changed since the scan."""
        try:
            data = Path(os.fsdecode(self._scan_root.path + b"/" + path)).read_bytes()
        except OSError:
            return {}  # gone since the scan: listed without text
        return {entry.ref: data} if self._journal.blob_id(data) == entry.ref else {}

    # -- restoring ----------------------------------------------------------------------------------------------------

    async def restore(self, snapshot: Any, dry_run: bool = False) -> Changes:
        """Restore the directory to a snapshot. Its present state is kept in a safety snapshot: see `undo`."""
        async with self._locked():
            return await self._restorer.restore(await self._journal.find(snapshot), dry_run=dry_run)

    async def rewind(self, thread: ThreadCore[Any], at: Any, dry_run: bool = False) -> Changes:
        """Rewind a thread to a checkpoint and the directory to that checkpoint's snapshot, both or neither."""
        async with self._locked():
            checkpoint = await thread.get(at)
            move = await HeadMove.plan(thread, checkpoint)
            return await self._restorer.restore(await self._journal.find(checkpoint), move=move, dry_run=dry_run)

    async def undo(self, dry_run: bool = False) -> Changes:
        """Take back the newest restore that has not been taken back yet."""
        async with self._locked():
            records = await self._journal.records()
            undone = {record.undoes for record in records if record.kind == "restored"}
            for record in reversed(records):
                if record.kind == "restored" and record.safety and not record.undoes and record.id not in undone:
                    safety = await self._journal.find(record.safety)
                    return await self._restorer.restore(safety, dry_run=dry_run, undoes=record.id)
            raise NoCheckpoint(f"workspace {self.name!r} has no restore to undo")

    async def revert(self, a: Any, b: Any, dry_run: bool = False) -> Changes:
        """Undo only the changes from snapshot `a` to snapshot `b`, those of one agent turn for example.

        A path that was changed again after `b` stays as it is, and is listed as kept.
        """
        async with self._locked():
            old, new = await self._journal.find(a), await self._journal.find(b)
            kept: list[tuple[bytes, str]] = []

            async def select(scan: Scan) -> list[Op]:
                ops = await compare(old.tree, new.tree, self._journal.trees)
                entries = {path: entry for path, entry, _ in scan.items(op.path for op in ops)}
                result = []
                for op in ops:
                    present = entries.get(op.path)
                    if same_item(present, op.new):
                        result.append(Op(op.path, present, op.old))
                    elif not same_item(present, op.old):
                        kept.append((op.path, "changed since by somebody else"))
                return result

            changes = await self._restorer.restore(old, select, dry_run=dry_run)
            merged = sorted({*changes.kept, *to_skipped(kept)})
            return Changes(changes.changes, tuple(merged), changes.safety, dry_run)


def check_root(root: Any) -> bytes:
    """The real path of a directory, which must be fit to be a workspace."""
    if not isinstance(root, str | bytes | os.PathLike) or not os.fspath(root):
        raise InvalidInput(f"workspace() takes a directory, not {root!r}")
    real = os.path.realpath(os.fsencode(root))
    if not os.path.isdir(real):
        raise FilesError(real, "it is not a directory: make it first")
    for home in {os.path.realpath(home) for home in _homes()} | {b"/"}:
        if home == real or home.startswith(real.rstrip(b"/") + b"/"):
            what = "the file system's root" if home == b"/" else "a home directory, or above one"
            raise InvalidInput(f"{os.fsdecode(real)!r} is {what}: a workspace must be a directory of its own")
    return real


def _homes() -> set[bytes]:
    """The user's home directories, by the environment and by the system; in a container there may be none."""
    found = {os.path.expanduser(b"~")} - {b"~"}
    with suppress(KeyError):
        found.add(os.fsencode(pwd.getpwuid(os.geteuid()).pw_dir))
    return found


def thread_name(real: bytes, name: str | None) -> str:
    """The id of the workspace's thread: from the given name, or from the directory's real path."""
    if name is not None:
        return PREFIX + check_name(name, "workspace name")
    text = to_utf8(real)
    return PREFIX + (text if len(text) <= 400 else f"{text[:300]}…{blake3(real).hexdigest(16)}")


def cache_file(cache: str | os.PathLike[str] | Literal[False] | None, real: bytes, name: str) -> Path | None:
    """The file that keeps the index, or None: it is never inside the directory itself."""
    if cache is False:
        return None
    if cache is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            return None  # the home directory is unknown
        cache = os.path.join(base, "backtrail")
    folder = Path(cache)
    if (os.path.realpath(os.fsencode(folder)) + b"/").startswith(real + b"/"):
        return None
    return folder / f"{blake3(real + bytes(1) + name.encode()).hexdigest(20)}.index"


async def rewind_together(thread: ThreadCore[Any], at: Any, prune: bool = False, **options: Any) -> Checkpoint:
    """Rewind a thread, and its directory to the checkpoint's snapshot, both or neither."""
    if prune:
        raise InvalidInput("rewind(files=True) keeps what it leaves behind, so that it can be undone: leave prune out")
    checkpoint = await thread.get(at)
    await (await workspace_of(thread, checkpoint, **options)).rewind(thread, checkpoint)
    return checkpoint


async def workspace_of(thread: ThreadCore[Any], at: Any = None, **options: Any) -> WorkspaceCore:
    """The workspace whose snapshot was saved with the head, or with `at`."""
    checkpoint = await thread.get(await thread.step() if at is None else at)
    if checkpoint.files is None:
        raise NoCheckpoint(f"checkpoint {checkpoint.id} has no files: only one that was saved with files=workspace has")
    name = checkpoint.files.partition("@")[2]
    workspace: WorkspaceCore | None = thread.context.workspace(name)
    if workspace is None:
        record = await Journal(thread.context, name).find(checkpoint)
        workspace = WorkspaceCore(thread.context, record.root, name.removeprefix(PREFIX), **options)
    return workspace
