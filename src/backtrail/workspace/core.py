"""A workspace: a directory seen as file snapshots, shared by the threads that work in it.

Everything a user can do with one, written once for both colours. Each call takes the directory's lock, finishes a
restore that died, and then looks at the directory itself: never at what somebody says has changed in it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3

from backtrail.errors import Conflict, FilesError, InvalidInput, NoCheckpoint
from backtrail.history.context import Context
from backtrail.history.thread import Thread
from backtrail.history.validation import check_name
from backtrail.model import Checkpoint
from backtrail.workspace import diff as differ
from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.joint_rewind import HeadMove
from backtrail.workspace.journal import SHOWN, Journal
from backtrail.workspace.lock import take
from backtrail.workspace.model import Changes, FileDiff, Limits, Snapshot, Status
from backtrail.workspace.restore import Restorer, alike, flags
from backtrail.workspace.restore_plan import describe, show
from backtrail.workspace.scanner import Scan, Scanner, Work, in_place, shown
from backtrail.workspace.trees import Op, TreeEntry, compare
from backtrail.workspace.walk import Progress

ATTEMPTS = 16
PREFIX = "workspace:"


class WorkspaceCore:
    """One directory and its log in the store."""

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
        """`cache`: a directory for the index; None for the user's cache directory, False for none at all.
        `unreadable="flag"` goes on without files that cannot be read, and says so."""
        if unreadable not in ("raise", "flag"):
            raise InvalidInput(f"unreadable={unreadable!r} is unknown: use 'raise' or 'flag'")
        real = check_root(root)
        self._context = context
        self.root = os.fsdecode(real)
        self.name = thread_name(real, name)
        ours = tuple(sorted(os.path.realpath(os.fsencode(path)) for path in context.own_paths))
        self._place = ScanRoot(real, ours, limits or Limits(), unreadable)
        self._log = Journal(context, self.name)
        self._work = work
        self._timeout = timeout
        self._eyes = Scanner(self._place, self._log, cache_file(cache, real, self.name), work)
        context.add_workspace(self.name, self)
        self._restorer = Restorer(self._place, self._log, self._eyes, work, lambda intent: HeadMove(context, intent))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the directory's lock, with no restore left half done."""
        self._context.check_open()
        handle = await self._work(lambda: take(self._place.root, self._timeout))
        try:
            await self._restorer.recover()
            yield
        finally:
            os.close(handle)

    async def recover(self) -> None:
        """Finish, or take back, a restore whose process died. Every other call does this first as well."""
        async with self._alone():
            return

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def snapshot(self, label: str | None = None, progress: Progress | None = None) -> Snapshot:
        """Save the directory as it is. `progress(done, total)` is told how many changed files have been read."""
        async with self._alone():
            for _ in range(ATTEMPTS):
                try:
                    seen = await self._eyes.look(await self._log.tip(), keep=True, progress=progress)
                    facts = {"files": seen.index.files, "bytes": seen.index.size, "root": shown(self._place.root)}
                    record = await self._log.append(
                        "snapshot",
                        seen.tree,
                        after=seen.after,
                        label=label,
                        facts={**facts, **flags(seen)},
                        withheld=seen.withheld(),
                        blobs=seen.blobs,
                    )
                except Conflict:
                    continue  # another machine shares this workspace: build on what it wrote
                await self._eyes.remember(seen)
                return record.snapshot
        raise Conflict(self.name, message=f"workspace {self.name!r} kept moving: try again when its writers rest")

    async def snapshots(self) -> list[Snapshot]:
        """All snapshots, oldest first, those that restores took for safety included."""
        self._context.check_open()
        return [record.snapshot for record in await self._log.records() if record.kind in SHOWN]

    async def __file_reference__(self) -> str:
        """Take a snapshot for a checkpoint, and name it as its `files` does."""
        return await (await self.snapshot()).__file_reference__()

    async def status(self) -> Status:
        """The directory now, beside the newest record, with all that a snapshot leaves out and why."""
        async with self._alone():
            tip = await self._log.tip()
            seen = await self._eyes.look(tip, keep=False)
            last = await self._log.last(tip)
            ops = await compare(None if last is None else last.tree, seen.tree, self._restorer.reader(seen))
            skipped = show(sorted(seen.index.skipped()))
            return Status(seen.index.files, seen.index.size, describe(ops), skipped, seen.flagged)

    async def diff(self, a: Any, b: Any = None, text: bool = True) -> FileDiff:
        """What changed from snapshot `a` to snapshot `b`, or to the directory now."""
        if b is not None:
            self._context.check_open()
            one, other = await self._log.find(a), await self._log.find(b)
            ops = await compare(one.tree, other.tree, self._log.trees)
            return await self._differences(ops, text, None)
        async with self._alone():
            one = await self._log.find(a)
            seen = await self._eyes.look(await self._log.tip(), keep=False)
            return await self._differences(await compare(one.tree, seen.tree, self._restorer.reader(seen)), text, seen)

    async def _differences(self, ops: list[Op], text: bool, seen: Scan | None) -> FileDiff:
        shown = {change.path for change in describe(ops)}
        listed = [op for op in ops if os.fsdecode(op.path) in shown]
        if not text:
            return FileDiff(describe(ops))
        contents: dict[bytes, bytes] = {}
        stored: list[TreeEntry] = []
        for op in listed:
            for side in differ.comparable(op):
                if side is op.new and seen is not None:
                    contents |= await self._work(lambda op=op, side=side: self._now(op.path, side))  # type: ignore[misc]
                else:
                    stored.append(side)
        contents |= await self._log.contents(stored)
        return FileDiff(tuple(differ.change(op, contents) for op in listed))

    def _now(self, path: bytes, entry: TreeEntry) -> dict[bytes, bytes]:
        try:
            data = Path(os.fsdecode(self._place.root + b"/" + path)).read_bytes()
        except OSError:
            return {}  # gone since it was looked at: shown without text
        return {entry.ref: data} if self._log.name_of(data) == entry.ref else {}

    # -- restoring ----------------------------------------------------------------------------------------------------

    async def restore(self, snapshot: Any, dry_run: bool = False) -> Changes:
        """Bring the directory back to a snapshot. What it held before is kept in a safety snapshot: see `undo`."""
        async with self._alone():
            return await self._restorer.restore(await self._log.find(snapshot), dry_run=dry_run)

    async def rewind(self, thread: Thread[Any], at: Any, dry_run: bool = False) -> Changes:
        """Rewind a thread to a checkpoint and the directory to that checkpoint's snapshot, both or neither."""
        async with self._alone():
            checkpoint = await thread.get(at)
            move = await HeadMove.plan(thread, checkpoint)
            return await self._restorer.restore(await self._log.find(checkpoint), move=move, dry_run=dry_run)

    async def undo(self, dry_run: bool = False) -> Changes:
        """Take back the newest restore that has not been taken back yet."""
        async with self._alone():
            records = await self._log.records()
            undone = {record.undoes for record in records if record.kind == "restored"}
            for record in reversed(records):
                if record.kind == "restored" and record.safety and not record.undoes and record.id not in undone:
                    safety = await self._log.find(record.safety)
                    return await self._restorer.restore(safety, dry_run=dry_run, undoes=record.id)
            raise NoCheckpoint(f"workspace {self.name!r} has no restore to undo")

    async def revert(self, a: Any, b: Any, dry_run: bool = False) -> Changes:
        """Undo only what changed from snapshot `a` to snapshot `b`, a turn of an agent for example.

        What was changed after `b` by anybody else stays as it is, and is listed as kept.
        """
        async with self._alone():
            one, other = await self._log.find(a), await self._log.find(b)
            kept: list[tuple[bytes, str]] = []

            async def wanted(seen: Scan) -> list[Op]:
                ops = await compare(one.tree, other.tree, self._log.trees)
                now = {path: entry for path, entry, _ in seen.items(op.path for op in ops)}
                result = []
                for op in ops:
                    here = now.get(op.path)
                    if alike(here, op.new):
                        result.append(Op(op.path, here, op.old))
                    elif not alike(here, op.old):
                        kept.append((op.path, "changed since by somebody else"))
                return result

            changes = await self._restorer.restore(one, wanted, dry_run=dry_run)
            merged = sorted({*changes.kept, *show(kept)})
            return Changes(changes.changes, tuple(merged), changes.safety, dry_run)


def check_root(root: Any) -> bytes:
    """The real path of a directory that may be a workspace."""
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
    """Where the user is at home, by the environment and by the system; in a container neither need know."""
    found = {os.path.expanduser(b"~")} - {b"~"}
    with suppress(KeyError):
        found.add(os.fsencode(pwd.getpwuid(os.geteuid()).pw_dir))
    return found


def thread_name(real: bytes, name: str | None) -> str:
    """The workspace's thread: named by the caller, or by the directory's real path."""
    if name is not None:
        return PREFIX + check_name(name, "workspace name")
    text = shown(real)
    return PREFIX + (text if len(text) <= 400 else f"{text[:300]}…{blake3(real).hexdigest(16)}")


def cache_file(cache: str | os.PathLike[str] | Literal[False] | None, real: bytes, name: str) -> Path | None:
    """Where the index is kept: never inside the directory itself."""
    if cache is False:
        return None
    if cache is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            return None  # nobody knows where the user is at home
        cache = os.path.join(base, "backtrail")
    folder = Path(cache)
    inside = os.path.realpath(os.fsencode(folder)) + b"/"
    if inside.startswith(real + b"/"):
        return None
    return folder / f"{blake3(real + bytes(1) + name.encode()).hexdigest(20)}.index"


async def rewind_together(thread: Thread[Any], at: Any, prune: bool = False, **options: Any) -> Checkpoint:
    """Rewind a thread and the directory that its checkpoint names, both or neither."""
    if prune:
        raise InvalidInput("rewind(files=True) keeps what it leaves behind, so that it can be undone: leave prune out")
    checkpoint = await thread.get(at)
    await (await workspace_of(thread, checkpoint, **options)).rewind(thread, checkpoint)
    return checkpoint


async def workspace_of(thread: Thread[Any], at: Any = None, **options: Any) -> WorkspaceCore:
    """The directory whose snapshot was saved with the head, or with `at`."""
    checkpoint = await thread.get(await thread.step() if at is None else at)
    if checkpoint.files is None:
        raise NoCheckpoint(f"checkpoint {checkpoint.id} has no files: only one that was saved with files=workspace has")
    name = checkpoint.files.partition("@")[2]
    workspace: WorkspaceCore | None = thread.context.workspace(name)
    if workspace is None:
        record = await Journal(thread.context, name).find(checkpoint)
        workspace = WorkspaceCore(thread.context, record.root, name.removeprefix(PREFIX), **options)
    return workspace
