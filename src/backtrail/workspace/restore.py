"""Restoring: plan, record the intent, stage, apply, close; and recovery if the process dies in between.

The order makes it safe. One commit writes the safety snapshot and the restore's intent together; only then is a file
touched. A thread's head that is to move along moves after the files and before the intent is closed. So the next
process that opens the workspace finds either no open intent, or one from which it can finish the restore (or, if the
thread can no longer move, roll everything back).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from backtrail.errors import BacktrailError, Conflict, FilesError
from backtrail.workspace import trees
from backtrail.workspace.apply import Applier, StagingPool, needs_staging, remove_leftover_staging
from backtrail.workspace.batches import batches
from backtrail.workspace.descent import Descent
from backtrail.workspace.exclusions import ScanRoot, own_paths
from backtrail.workspace.journal import Journal, Record, RestoreIntent
from backtrail.workspace.model import Changes
from backtrail.workspace.pack import PackSettings, read_entry
from backtrail.workspace.paths import parents
from backtrail.workspace.protections import rules_of, untracked_paths
from backtrail.workspace.registry import Registry
from backtrail.workspace.restore_plan import RestorePlan, make_plan, removals, to_changes, to_skipped
from backtrail.workspace.scanner import Scan, Scanner, Work
from backtrail.workspace.signatures import Signature
from backtrail.workspace.trees import DIR, LINK, MODES, PIECES, Op, Tree, TreeEntry, compare

BATCH_BYTES = 8 * 2**20  # of file contents that are fetched together


class Move(Protocol):
    """The move of a thread's head that belongs to a restore."""

    @property
    def data(self) -> dict[str, Any]:
        """Plain data from which the move can be made again."""

    async def state(self) -> Literal["ready", "done", "lost"]:
        """ "ready" if the head is still where the move starts, "done" if the move was made, "lost" if the head went
        elsewhere."""

    async def make(self) -> bool:
        """Move the head; False if it is no longer where the move starts."""


SelectOps = Callable[[Scan], Awaitable[list[Op]]]


class Restorer:
    """Restores snapshots in one directory. Its callers hold the directory's lock."""

    def __init__(
        self,
        scan_root: ScanRoot,
        journal: Journal,
        scanner: Scanner,
        work: Work,
        make_move: Callable[[dict[str, Any]], Move],
        registry: Registry,
    ) -> None:
        self._scan_root = scan_root
        self._registry = registry
        self.directory = registry.find(scan_root.path)  #: as the registry has it
        self._journal = journal
        self._scanner = scanner
        self._work = work
        self._make_move = make_move
        self._pack_settings = PackSettings(journal.blob_id)
        self._cleared = False

    # -- a restore ----------------------------------------------------------------------------------------------------

    async def restore(
        self,
        target: Record,
        select: SelectOps | None = None,
        *,
        dry_run: bool = False,
        keep_untracked: bool = False,
        undoes: str | None = None,
        move: Move | None = None,
        expect: str | None = None,
    ) -> Changes:
        """Bring the directory to the state of `target`, or apply only the ops that `select` gives. `expect` is the plan
        of a dry run: `Conflict`, and nothing is changed, if the changes are not exactly those any more."""
        tip = await self._journal.tip()
        scan = await self._scanner.scan(tip, None if dry_run else self.directory.id)
        if select is None:
            ops = await compare(scan.tree, target.tree, self.tree_reader(scan))
        else:
            ops = await select(scan)
        plan = await self._plan(target, scan, ops, keep_untracked)
        unsaved = await self._unsaved(tip, target if select is None else None, scan, ops, plan)
        kept = dict(plan.kept) if select is not None else dict(scan.left_out()) | dict(plan.kept)
        listed, left = to_changes(plan.steps, unsaved), to_skipped(sorted(kept.items()))
        changes = Changes(listed, left, None, dry_run, plan=plan.digest)
        if expect is not None and expect != changes.plan:
            raise Conflict(
                self._journal.name,
                message="files have changed since the plan was made: look again; nothing was changed",
            )
        if dry_run or (move is None and undoes is None and not plan.steps):
            return changes
        if move is not None and await move.state() != "ready":
            raise _moved_error(move)
        steps, signatures = self._expected(plan.steps, scan)
        intent = RestoreIntent(
            [(op.path, op.old, op.new) for op in steps],
            target.tree if steps else scan.tree,
            target.id,
            undoes,
            None if move is None else move.data,
            os.urandom(16),
        )
        opened = await self._open_intent(scan, intent)
        await self._scanner.remember(scan)
        try:
            await self._apply(steps, signatures)
            moved = move is None or await move.make()
        except (BacktrailError, OSError) as error:
            raise await self._failed(opened, intent, error) from error
        if not moved and move is not None:
            await self._roll_back(opened, intent)
            raise _moved_error(move)
        await self._close_intent(opened, intent)
        return msgspec.structs.replace(changes, safety=opened.id)

    async def _failed(self, opened: Record, intent: RestoreIntent, error: BacktrailError | OSError) -> BacktrailError:
        """Roll the restore back; returns the error to raise, with a note on the outcome."""
        outcome = "the restore was taken back"
        try:
            await self._roll_back(opened, intent)
        except (BacktrailError, OSError):
            outcome = "the restore is half done, and is settled when the workspace is used next"
        if isinstance(error, BacktrailError):
            error.add_note(outcome)
            return error
        where = error.filename if isinstance(error.filename, str | bytes) else self._scan_root.path
        return FilesError(where, f"{error.strerror}; {outcome}")

    def _expected(self, steps: list[Op], scan: Scan) -> tuple[list[Op], dict[bytes, Signature]]:
        """The steps, with those added that give read-only parent directories their modes back; and the signature that
        each path must still have when it is changed."""
        present = {op.path for op in steps if op.old is not None}
        above = {op.path[: op.path.rfind(b"/")] for op in steps if b"/" in op.path} - {op.path for op in steps}
        read_only: list[Op] = []
        expect: dict[bytes, Signature] = {}
        for path, entry, sig in scan.items(present | above):
            if sig is not None:
                expect[path] = sig
            if path in above and entry.mode & 0o700 != 0o700:
                read_only.append(Op(path, entry, entry))
        return sorted(steps + read_only) if read_only else steps, expect

    def tree_reader(self, scan: Scan) -> trees.ReadTrees:
        """Reads trees of the store, and of a scan that is not stored yet."""

        async def read(ids: Iterable[bytes]) -> dict[bytes, Tree]:
            wanted = set(ids)
            new = wanted & scan.new_trees.keys()
            return {id: scan.new_trees[id] for id in new} | await self._journal.trees(wanted - new)

        return read

    async def _unsaved(
        self, tip: Record | None, target: Record | None, scan: Scan, ops: list[Op], plan: RestorePlan
    ) -> Collection[bytes]:
        """Of the steps' paths, those at which the directory differs from the newest record."""
        last = await self._journal.last_state(tip)
        if last is None or not plan.steps:
            return {op.path for op in plan.steps if op.old is not None}
        if target is not None and last.tree == target.tree:  # `ops` is that comparison already
            return {op.path for op in ops if op.old is not None}
        return {op.path for op in await compare(last.tree, scan.tree, self.tree_reader(scan)) if op.new is not None}

    async def _plan(self, target: Record, scan: Scan, ops: list[Op], keep_untracked: bool) -> RestorePlan:
        removed = removals(ops)
        untracked = await untracked_paths(self._journal, self.directory.id, removed, keep_untracked)
        rules = await rules_of(self._journal, target.tree, removed)
        withheld = await self._journal.withheld(target) if removed else ()
        skipped = dict(scan.index.skipped()) | {os.fsencode(item.path): item.reason for item in scan.flagged}

        def plan() -> RestorePlan:
            with Descent(self._scan_root.path) as descent:
                return make_plan(
                    descent,
                    ops,
                    untracked=untracked,
                    skipped=skipped,
                    withheld=set(withheld),
                    rules=rules,
                    is_at=lambda entry, path: same_item(self._entry_at(descent, path), entry),
                    is_own=own_paths(self._scan_root),
                )

        return await self._work(plan)

    # -- the intent ---------------------------------------------------------------------------------------------------

    async def _open_intent(self, scan: Scan, intent: RestoreIntent) -> Record:
        """Commit the safety snapshot and the intent, once the registry has a note of it."""
        await self._set_restoring(intent.digest(scan.tree))
        facts = {**scan.facts(self.directory.id), "of": intent.snapshot, "target": intent.target.hex()}
        made = sorted(scan.blobs.keys() & {new[-1] for _, _, new in intent.steps if new is not None})
        if made:  # contents that neither tree has
            listed = trees.encode_list(made, None)
            id = self._journal.blob_id(listed)
            scan.blobs[id] = self._journal.wrap(id, listed)
            facts["made"] = id.hex()
        return await self._journal.append(
            "restoring",
            scan.tree,
            after=scan.tip,
            tags=("safety",),
            facts=facts,
            withheld=scan.withheld(),
            intent=intent,
            blobs=scan.blobs,
        )

    async def _close_intent(self, opened: Record, intent: RestoreIntent, *, rolled_back: bool = False) -> None:
        """Close the intent, also if others that share the workspace have added records since."""
        facts: dict[str, Any] = {
            "files": opened.files,
            "bytes": opened.size,
            "directory": opened.directory,
            "of": intent.snapshot,
        }
        if not rolled_back:
            facts |= {"safety": opened.id, "undoes": intent.undoes}
        tree = opened.tree if rolled_back else intent.target
        after: Record | None = opened
        while True:
            try:
                await self._journal.append("restored", tree, after=after, facts=facts, blobs={})
                break
            except Conflict:
                after = await self._journal.tip()
        await self._set_restoring(None)

    async def _set_restoring(self, digest: str | None) -> None:
        self.directory = await self._work(lambda: self._registry.set_restoring(self.directory, digest))

    async def recover(self) -> bool:
        """Finish or roll back a restore whose process died; False if there was none."""
        opened = await self.unfinished()
        if opened is not None or not self._cleared:
            await self._work(lambda: remove_leftover_staging(self._scan_root.path))
            self._cleared = True
        if opened is None:
            if self.directory.restoring is not None:  # its process died before the intent was written, or after it was
                await self._set_restoring(None)  # closed
            return False
        intent = await self._journal.intent(opened)
        move = None if intent.move is None else self._make_move(intent.move)
        state = "ready" if move is None else await move.state()
        if state != "lost":
            await self._apply_remaining(intent.ops)
            if move is None or state == "done" or await move.make():
                await self._close_intent(opened, intent)
                return True
        await self._roll_back(opened, intent)
        return True

    async def unfinished(self) -> Record | None:
        """The restore of this directory that was begun on this machine and not closed, if there is one. The store says
        what it was to do, and the registry that it was begun here: a store alone cannot have files changed."""
        self.directory = await self._work(lambda: self._registry.current(self.directory))
        if self.directory.restoring is None:
            return None
        own = (record for record in reversed(await self._journal.records()) if record.directory == self.directory.id)
        newest = next(own, None)
        if newest is None or newest.kind != "restoring":
            return None
        intent = await self._journal.intent(newest)
        return newest if intent.digest(newest.tree) == self.directory.restoring else None

    async def _roll_back(self, opened: Record, intent: RestoreIntent) -> None:
        await self._apply_remaining([Op(op.path, op.new, op.old) for op in intent.ops])
        await self._close_intent(opened, intent, rolled_back=True)

    async def _apply_remaining(self, ops: list[Op]) -> None:
        """Apply the ops that have not been applied yet, except at paths that were changed by others since."""

        def remaining() -> list[Op]:
            result: list[Op] = []
            foreign: set[bytes] = set()
            with Descent(self._scan_root.path) as descent:
                for op in ops:
                    present = self._entry_at(descent, op.path)
                    if present is not None and not _may_be_from_restore(present, op):
                        foreign.add(op.path)
                    elif not same_item(present, op.new) and foreign.isdisjoint(parents(op.path)):
                        result.append(Op(op.path, present, op.new))
            return result

        await self._apply(await self._work(remaining), None)

    # -- the files ----------------------------------------------------------------------------------------------------

    async def _apply(self, steps: list[Op], expect: dict[bytes, Signature] | None) -> None:
        if not steps:
            return
        applier = await self._work(lambda: Applier(self._scan_root.path, os.urandom(16).hex()))
        pool = StagingPool(applier)
        try:
            await self._work(lambda: applier.make_staging(steps))
            staged = [op for op in steps if needs_staging(op)]
            for batch in batches(_interleaved(staged), _new_size, BATCH_BYTES):
                files = (op.new for op in batch if op.new is not None and op.new.kind != LINK)
                await self._work(partial(pool.stage, batch, await self._journal.blob_reader(files)))
            await self._work(pool.wait)
            await self._work(lambda: applier.apply(steps, expect))
        finally:
            await self._work(pool.close)
            await self._work(applier.close)

    def _entry_at(self, descent: Descent, path: bytes) -> TreeEntry | None:
        """The entry of the item that is at a path now."""
        found = descent.lstat(path)
        if found is None:
            return None
        if stat.S_ISDIR(found.st_mode):
            return TreeEntry(DIR, found.st_mode & MODES, 0, b"")
        if stat.S_ISLNK(found.st_mode):
            return TreeEntry(LINK, 0, 0, descent.read_link(path))
        return read_entry(self._scan_root, descent, path, self._pack_settings) or TreeEntry(-1, 0, 0, b"")


def same_item(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    """True if two entries are the same; directories are if their modes are, whatever they contain."""
    if one is None or other is None or one.kind != DIR:
        return one == other
    return other.kind == DIR and one.mode == other.mode


def _may_be_from_restore(present: TreeEntry, op: Op) -> bool:
    """True if a restore may have left this item here. A directory may not have its final mode yet."""
    if present.kind == DIR:
        return DIR in (side.kind for side in (op.old, op.new) if side is not None)
    return present in (op.old, op.new)


def _new_size(op: Op) -> int:
    return op.new.size if op.new is not None else 0


def _is_large(op: Op) -> bool:
    return op.new is not None and op.new.kind == PIECES


def _interleaved(ops: list[Op]) -> Iterable[Op]:
    """Large files evenly among the small ones: large files hardly need the GIL, small ones always do."""
    large = [op for op in ops if _is_large(op)]
    small = [op for op in ops if not _is_large(op)]
    share = -(-len(small) // (len(large) or 1))
    for number, op in enumerate(large):
        yield op
        yield from small[number * share : (number + 1) * share]
    if not large:
        yield from small


def _moved_error(move: Move) -> Conflict:
    thread = str(move.data["thread"])
    return Conflict(thread, message=f"thread {thread!r} moved meanwhile; neither it nor the files were rewound")
