"""A workspace: a directory seen as file snapshots, shared by the threads that work in it.

Its operations are written once, as coroutines, for the sync and async facades. Each call takes the directory's lock,
finishes a restore that died, and then scans the directory itself, without relying on reports of what has changed. Only
a dry run writes nothing at all, not even that.

The directory is the caller's, or one that this machine's registry has: the store never chooses it. A workspace without
a directory can still list and compare its snapshots.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from backtrail.engines.retry import RetryPolicy
from backtrail.errors import Conflict, FilesError, InvalidInput, NoCheckpoint, NoDirectory
from backtrail.history.context import Context
from backtrail.history.thread_core import ThreadCore
from backtrail.workspace import browsing
from backtrail.workspace.descent import Descent
from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.joint_rewind import HeadMove, SaveMove, move_from
from backtrail.workspace.journal import Journal, Record
from backtrail.workspace.lock import acquire
from backtrail.workspace.model import Changes, FileDiff, FileEntry, JointSave, Limits, Restore, Snapshot, Status
from backtrail.workspace.paths import to_text
from backtrail.workspace.registry import Registry, state_directory
from backtrail.workspace.restore import Restorer
from backtrail.workspace.restore_plan import listed_ops, to_changes, to_skipped
from backtrail.workspace.roots import PREFIX, cache_file, check_root, thread_name
from backtrail.workspace.scanner import Scan, Scanner, Work, in_place
from backtrail.workspace.trees import Op, TreeEntry, compare
from backtrail.workspace.walk import Progress

#: A snapshot, if other machines that share the workspace append theirs at the same time.
SNAPSHOT_RACES = RetryPolicy.times(16)


class OpenDirectory(NamedTuple):
    """The directory of a workspace, and what reads and changes it."""

    scan_root: ScanRoot
    scanner: Scanner
    restorer: Restorer


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
        recover: bool = True,
        remember: bool = True,
        work: Work = in_place,
    ) -> None:
        """`root`: None if no directory is known; then the snapshots can only be listed and compared.
        `cache`: a directory for the index; None for the user's cache directory, False to keep none.
        `unreadable="flag"` goes on without files that cannot be read, and lists them in the snapshot.
        `recover`: whether calls that only look finish a restore that died; those that write always do.
        `remember`: later rewinds of threads in this process use this directory."""
        if unreadable not in ("raise", "flag"):
            raise InvalidInput(f"unreadable={unreadable!r} is unknown: use 'raise' or 'flag'")
        real = None if root is None else check_root(root)
        self._context = context
        self.name = thread_name(real, name)
        self._journal = Journal(context, self.name)
        self._registry = Registry(context, self.name)
        self._work = work
        self._timeout = timeout
        self._recovers = recover
        self._opened: OpenDirectory | None = None
        if real is None:
            return
        own = [os.path.realpath(os.fsencode(path)) for path in (*context.own_paths, state_directory()) if path]
        scan_root = ScanRoot(real, tuple(sorted(own)), limits or Limits(), unreadable)
        scanner = Scanner(scan_root, self._journal, cache_file(cache, real, self.name), work)
        restorer = Restorer(scan_root, self._journal, scanner, work, partial(move_from, context), self._registry)
        self._opened = OpenDirectory(scan_root, scanner, restorer)
        if remember:
            context.add_workspace(self.name, self)

    @property
    def root(self) -> str:
        """The directory's real path; `NoDirectory` if none is known."""
        return os.fsdecode(self._directory.scan_root.path)

    @property
    def _directory(self) -> OpenDirectory:
        if self._opened is None:
            raise NoDirectory(self.name.removeprefix(PREFIX))
        return self._opened

    @asynccontextmanager
    async def _locked(self, *, recover: bool) -> AsyncIterator[OpenDirectory]:
        """Hold the directory's lock; with `recover`, any unfinished restore is finished first."""
        self._context.check_open()
        directory = self._directory
        handle = await self._work(lambda: acquire(directory.scan_root.path, self._timeout))
        try:
            if recover:
                await directory.restorer.recover()
            yield directory
        finally:
            os.close(handle)

    @asynccontextmanager
    async def _restoring(self, *, dry_run: bool) -> AsyncIterator[Restorer]:
        """The same, for a restore. What a dry run says of a directory that is half restored would not come true."""
        async with self._locked(recover=not dry_run) as directory:
            if dry_run and await directory.restorer.unfinished() is not None:
                raise FilesError(
                    directory.scan_root.path,
                    "a restore was interrupted here, and a dry run does not settle it: recover() does, and so does "
                    "the next snapshot or restore",
                )
            yield directory.restorer

    async def ready(self) -> None:
        """Recover, unless the workspace was opened with recover=False."""
        if self._recovers:
            await self.recover()

    async def recover(self) -> None:
        """Finish, or take back, a restore whose process died. Every call that changes something does so first."""
        async with self._locked(recover=True):
            return

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def snapshot(self, label: str | None = None, progress: Progress | None = None) -> Snapshot:
        """Save the directory as it is. `progress(done, total)` is called with the number of changed files read."""
        async with self._locked(recover=True) as (_, scanner, restorer):
            directory = restorer.directory
            await self._work(lambda: self._registry.register(directory))
            for _ in SNAPSHOT_RACES.attempts():
                try:
                    scan = await scanner.scan(await self._journal.tip(), directory.id, progress)
                    record = await self._journal.append(
                        "snapshot",
                        scan.tree,
                        after=scan.tip,
                        label=label,
                        facts=scan.facts(directory.id),
                        withheld=scan.withheld(),
                        blobs=scan.blobs,
                    )
                except Conflict:
                    continue  # another machine shares this workspace: build on its record
                await scanner.remember(scan)
                return record.snapshot
        raise Conflict(self.name, message=f"workspace {self.name!r} kept moving: try again when its writers rest")

    async def snapshots(self) -> list[Snapshot]:
        """All snapshots, oldest first, including the safety snapshots of restores, and damaged ones, marked as such."""
        self._context.check_open()
        return await self._journal.snapshots()

    async def __file_reference__(self) -> str:
        """Take a snapshot for a checkpoint; returns the reference for its `files`."""
        return await (await self.snapshot()).__file_reference__()

    async def status(self) -> Status:
        """The directory now, compared with the newest record, with everything that a snapshot leaves out and why."""
        async with self._locked(recover=self._recovers) as (_, scanner, restorer):
            tip = await self._journal.tip()
            scan = await scanner.scan(tip)
            last = await self._journal.last_state(tip)
            ops = await compare(None if last is None else last.tree, scan.tree, restorer.tree_reader(scan))
            skipped = to_skipped(sorted(scan.index.skipped()))
            return Status(scan.index.files, scan.index.size, to_changes(ops), skipped, scan.flagged)

    async def diff(self, a: Any, b: Any = None, text: bool = True) -> FileDiff:
        """The changes from snapshot `a` to snapshot `b`, or to the directory now."""
        if b is not None:
            self._context.check_open()
            old, new = await self._journal.find(a), await self._journal.find(b)
            ops = await compare(old.tree, new.tree, self._journal.trees)
            return await self._diff(ops, text)
        async with self._locked(recover=self._recovers) as (scan_root, scanner, restorer):
            old = await self._journal.find(a)
            scan = await scanner.scan(await self._journal.tip())
            ops = await compare(old.tree, scan.tree, restorer.tree_reader(scan))
            return await self._diff(ops, text, scan_root.path)

    async def entries(self, snapshot: Any, path: str = "") -> tuple[FileEntry, ...]:
        """The entries of a folder of a snapshot."""
        self._context.check_open()
        return await browsing.list_folder(self._journal, snapshot, path)

    async def read(self, snapshot: Any, path: str) -> bytes:
        """The content of a file of a snapshot."""
        self._context.check_open()
        return await browsing.read_file(self._journal, snapshot, path)

    async def _diff(self, ops: list[Op], text: bool, root: bytes | None = None) -> FileDiff:
        """The ops as a diff. With `root`, new contents are read from that directory instead of the store."""
        if not text:
            return FileDiff(to_changes(ops))
        from backtrail.workspace import diff as file_diff  # a snapshot compares no lines, and agents wait for it

        contents: dict[bytes, bytes] = {}
        stored: list[TreeEntry] = []
        unsaved: list[tuple[bytes, TreeEntry]] = []
        listed = listed_ops(ops)
        for op in listed:
            for side in file_diff.comparable(op):
                if side is op.new and root is not None:
                    unsaved.append((op.path, side))
                else:
                    stored.append(side)
        if unsaved and root is not None:
            contents = await self._work(partial(self._read_unsaved, root, unsaved))
        contents |= await self._journal.contents(stored)
        return FileDiff(tuple(file_diff.describe(op, contents) for op in listed))

    def _read_unsaved(self, root: bytes, files: list[tuple[bytes, TreeEntry]]) -> dict[bytes, bytes]:
        """The contents of files in the directory, by their refs, without those that changed since the scan."""
        found: dict[bytes, bytes] = {}
        with Descent(root) as descent:
            for path, entry in files:
                data = descent.read_file(path, entry.size)
                if data is not None and self._journal.blob_id(data) == entry.ref:
                    found[entry.ref] = data
        return found

    # -- restoring ----------------------------------------------------------------------------------------------------

    async def restore(
        self,
        snapshot: Any,
        dry_run: bool = False,
        keep_untracked: bool = False,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Restore the directory to a snapshot. Its present state is kept in a safety snapshot: see `undo`."""
        async with self._restoring(dry_run=dry_run) as restorer:
            target = await self._journal.find(snapshot)
            move = self._save_move(save, target)
            return await restorer.restore(
                target, dry_run=dry_run, keep_untracked=keep_untracked, move=move, expect=expect
            )

    def _save_move(self, save: JointSave | None, files: Record | None = None) -> SaveMove | None:
        reference = None if files is None else f"{files.id}@{self.name}"
        return None if save is None else SaveMove.plan(self._context, save, reference)

    async def save_only(self, save: JointSave) -> None:
        """Save a checkpoint as a restore of no file: `undo` finds it among the restores, in their order."""
        async with self._restoring(dry_run=False) as restorer:
            tip = await self._journal.tip()
            last = await self._journal.last_state(tip)
            if last is None:
                raise NoCheckpoint(f"workspace {self.name!r} has no snapshot yet")

            await restorer.restore(last, _no_ops, move=self._save_move(save))

    async def rewind(
        self, thread: ThreadCore[Any], at: Any, dry_run: bool = False, keep_untracked: bool = False
    ) -> Changes:
        """Rewind a thread to a checkpoint and the directory to that checkpoint's snapshot, both or neither."""
        async with self._restoring(dry_run=dry_run) as restorer:
            checkpoint = await thread.get(at)
            move = await HeadMove.plan(thread, checkpoint)
            target = await self._journal.find(checkpoint)
            return await restorer.restore(target, move=move, dry_run=dry_run, keep_untracked=keep_untracked)

    async def undo(
        self,
        dry_run: bool = False,
        keep_untracked: bool = False,
        files: bool = True,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Take back the newest restore that has not been taken back yet; without `files`, only in the records."""
        async with self._restoring(dry_run=dry_run) as restorer:
            record = await self._newest_restore(is_undo=False)
            if record is None:
                raise NoCheckpoint(f"workspace {self.name!r} has no restore to undo")
            return await self._take_back(restorer, record, dry_run, keep_untracked, files, save, expect)

    async def redo(
        self,
        dry_run: bool = False,
        keep_untracked: bool = False,
        files: bool = True,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Take back the newest undo that has not been taken back yet, unless another restore came after it."""
        async with self._restoring(dry_run=dry_run) as restorer:
            record = await self._newest_restore(is_undo=True)
            if record is None:
                raise NoCheckpoint(f"workspace {self.name!r} has no undo to take back")
            return await self._take_back(restorer, record, dry_run, keep_untracked, files, save, expect)

    async def _take_back(
        self,
        restorer: Restorer,
        record: Record,
        dry_run: bool,
        keep_untracked: bool,
        files: bool,
        save: JointSave | None,
        expect: str | None,
    ) -> Changes:
        """Restore what was there before a restore; both directions are restores, so each can be taken back."""
        safety = await self._journal.find(record.safety)
        return await restorer.restore(
            safety,
            None if files else _no_ops,
            dry_run=dry_run,
            keep_untracked=keep_untracked,
            undoes=record.id,
            move=self._save_move(save, safety),
            expect=expect,
        )

    async def last_restore(self) -> Restore | None:
        """The newest restore that has not been taken back: the one that `undo` takes back."""
        return await self._describe(await self._newest_restore(is_undo=False))

    async def last_undo(self) -> Restore | None:
        """The undo that `redo` takes back."""
        return await self._describe(await self._newest_restore(is_undo=True))

    async def _describe(self, record: Record | None) -> Restore | None:
        if record is None or record.safety is None or record.of is None:
            return None
        move = (await self._journal.intent(await self._journal.find(record.safety))).move
        saved = None if move is None or "save" not in move else (str(move["thread"]), str(move["save"]["id"]))
        return Restore(record.id, record.created_at, record.of, record.safety, saved)

    async def _newest_restore(self, *, is_undo: bool) -> Record | None:
        """The newest restore, or undo, that was not taken back. What takes back an undo counts as a restore; a restore
        of a chosen snapshot leaves nothing to do again."""
        self._context.check_open()
        records = [r for r in await self._journal.records() if r.kind == "restored" and r.safety]  # not rolled back
        undos: set[str | None] = set()
        for record in records:
            if record.undoes is not None and record.undoes not in undos:
                undos.add(record.id)
        taken_back = {record.undoes for record in records}
        for record in reversed(records):
            if is_undo and record.undoes is None:
                return None
            if (record.id in undos) is is_undo and record.id not in taken_back:
                return record
        return None

    async def revert(
        self,
        a: Any,
        b: Any,
        dry_run: bool = False,
        merge: bool = False,
        save: JointSave | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Undo only the changes from snapshot `a` to snapshot `b`, those of one agent turn for example.

        A path that was changed again after `b` stays as it is, and is listed as kept. With `merge`, a text file is
        merged line by line: only where later lines overlap, it stays as it is.
        """
        async with self._restoring(dry_run=dry_run) as restorer:
            from backtrail.workspace.reversal import Reversal  # as `diff`

            old, new = await self._journal.find(a), await self._journal.find(b)
            read = partial(self._read_unsaved, os.fsencode(self.root)) if merge else None
            reversal = Reversal(self._journal, await compare(old.tree, new.tree, self._journal.trees), read)
            move = self._save_move(save)
            changes = await restorer.restore(old, reversal.select, dry_run=dry_run, move=move, expect=expect)
            kept = sorted({*changes.kept, *to_skipped(reversal.kept)})
            changed = {change.path for change in changes.changes}
            merged = tuple(path for path in map(to_text, sorted(reversal.merged)) if path in changed)
            return msgspec.structs.replace(changes, kept=tuple(kept), merged=merged)


async def _no_ops(_: Scan) -> list[Op]:
    """Selects nothing: a restore that is only recorded."""
    return []
