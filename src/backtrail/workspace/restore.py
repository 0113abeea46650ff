"""Restoring: plan, journal, stage, carry out, close; and what happens when the process dies in between.

The order is what makes it safe. One commit writes the safety snapshot and the journal together; only then is a file
touched. The conversation's head, if it is to move along, moves after the files and before the journal is closed. So
whoever opens the workspace next finds either no open journal, or one that says how to finish (or, if the conversation
can no longer move, how to take everything back).
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from backtrail.errors import BacktrailError, Conflict, FilesError
from backtrail.workspace import trees
from backtrail.workspace.apply import Applier, Crew, clear_leftovers, needs_staging
from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.ignore import IGNORE_FILES, Rules
from backtrail.workspace.index import Signature
from backtrail.workspace.journal import MAX_SHOWN, Journal, Record, RestoreIntent
from backtrail.workspace.model import Changes
from backtrail.workspace.pack import PackSettings, entry_of
from backtrail.workspace.restore_plan import RestorePlan, describe, look, make_plan, parents, removals, show
from backtrail.workspace.scanner import Scan, Scanner, Work, shown
from backtrail.workspace.trees import DIR, FILE, LINK, MODES, PIECES, Op, Tree, TreeEntry, compare

BATCH = 8 * 2**20  # bytes of file contents that are fetched and written at once


class Move(Protocol):
    """The move of a conversation's head that belongs to a restore."""

    @property
    def intent(self) -> dict[str, Any]:
        """Plain data from which the move can be made again."""

    async def state(self) -> Literal["ready", "done", "lost"]:
        """Whether the head is still where the move starts, has been moved by it, or went elsewhere."""

    async def make(self) -> bool:
        """Move the head; False if it is no longer where it was."""


Wanted = Callable[[Scan], Awaitable[list[Op]]]


class Restorer:
    """Carries out restores in one directory. Its callers hold the directory's lock."""

    def __init__(
        self, place: ScanRoot, log: Journal, eyes: Scanner, work: Work, remake: Callable[[dict[str, Any]], Move]
    ) -> None:
        self._place = place
        self._log = log
        self._eyes = eyes
        self._work = work
        self._remake = remake
        self._reading = PackSettings(log.name_of)
        self._cleared = False

    # -- a restore ----------------------------------------------------------------------------------------------------

    async def restore(
        self,
        target: Record,
        wanted: Wanted | None = None,
        *,
        dry_run: bool = False,
        undoes: str | None = None,
        move: Move | None = None,
    ) -> Changes:
        """Bring the directory to `target`, or do only what `wanted` asks for."""
        tip = await self._log.tip()
        seen = await self._eyes.look(tip, keep=not dry_run)
        ops = await (self.towards(target.tree)(seen) if wanted is None else wanted(seen))
        plan = await self._plan(target, seen, ops)
        unsaved = await self._unsaved(tip, target if wanted is None else None, seen, ops, plan)
        changes = Changes(describe(plan.steps, unsaved), show(plan.kept), None, dry_run)
        if dry_run or (move is None and not plan.steps):
            return changes
        if move is not None and await move.state() != "ready":
            raise _moved(move)
        steps, expect = self._prepared(plan.steps, seen)
        journal = RestoreIntent(
            [(op.path, op.old, op.new) for op in steps],
            target.tree,
            target.id,
            undoes,
            None if move is None else move.intent,
        )
        begun = await self._begin(seen, journal)
        await self._eyes.remember(seen)
        try:
            await self._carry_out(steps, expect)
            moved = move is None or await move.make()
        except (BacktrailError, OSError) as error:
            raise await self._given_up(begun, journal, error) from error
        if not moved and move is not None:
            await self._take_back(begun, journal)
            raise _moved(move)
        await self._close(begun, journal)
        return msgspec.structs.replace(changes, safety=begun.id)

    async def _given_up(self, begun: Record, journal: RestoreIntent, error: BacktrailError | OSError) -> BacktrailError:
        """Take back what was done, and say what stopped it."""
        outcome = "the restore was taken back"
        try:
            await self._take_back(begun, journal)
        except (BacktrailError, OSError):
            outcome = "the restore is half done, and is settled when the workspace is used next"
        if isinstance(error, BacktrailError):
            error.add_note(outcome)
            return error
        where = error.filename if isinstance(error.filename, str | bytes) else self._place.root
        return FilesError(where, f"{error.strerror}; {outcome}")

    def _prepared(self, steps: list[Op], seen: Scan) -> tuple[list[Op], dict[bytes, Signature]]:
        """The steps, with those that give directories back their mode which must be made writable for a while; and
        what every path looked like."""
        present = {op.path for op in steps if op.old is not None}
        above = {op.path[: op.path.rfind(b"/")] for op in steps if b"/" in op.path} - {op.path for op in steps}
        tight: list[Op] = []
        expect: dict[bytes, Signature] = {}
        for path, entry, sig in seen.items(present | above):
            if sig is not None:
                expect[path] = sig
            if path in above and entry.mode & 0o700 != 0o700:
                tight.append(Op(path, entry, entry))
        return sorted(steps + tight) if tight else steps, expect

    def towards(self, tree: bytes) -> Wanted:
        """Everything in which the directory differs from `tree`."""

        async def ops(seen: Scan) -> list[Op]:
            return await compare(seen.tree, tree, self.reader(seen))

        return ops

    def reader(self, seen: Scan) -> trees.Read:
        async def read(names: Iterable[bytes]) -> dict[bytes, Tree]:
            wanted = set(names)
            made = wanted & seen.made.keys()
            return {name: seen.made[name] for name in made} | await self._log.trees(wanted - made)

        return read

    async def _unsaved(
        self, tip: Record | None, target: Record | None, seen: Scan, ops: list[Op], plan: RestorePlan
    ) -> Collection[bytes]:
        """Of the steps' paths, those at which the directory differs from the newest record."""
        last = await self._log.last(tip)
        if last is None or not plan.steps:
            return {op.path for op in plan.steps if op.old is not None}
        if target is not None and last.tree == target.tree:  # that is what has been compared already
            return {op.path for op in ops if op.old is not None}
        return {op.path for op in await compare(last.tree, seen.tree, self.reader(seen)) if op.new is not None}

    async def _plan(self, target: Record, seen: Scan, ops: list[Op]) -> RestorePlan:
        gone = removals(ops)
        known = await self._known(gone)
        rules = await self._rules(target.tree, gone)
        withheld = (await self._log.state(target))["withheld"] if gone else ()
        skipped = dict(seen.index.skipped()) | {os.fsencode(item.path): item.reason for item in seen.flagged}
        root = self._place.root

        def same(path: bytes, entry: TreeEntry) -> bool:
            return alike(self._entry(path), entry)

        return await self._work(
            lambda: make_plan(root, ops, known=known, skipped=skipped, withheld=set(withheld), rules=rules, same=same)
        )

    async def _known(self, paths: set[bytes]) -> set[bytes]:
        """Which of the paths any snapshot held that was taken on purpose; newest first, each folder looked at once."""
        lacking, visited = set(paths), set()
        for record in reversed(await self._log.records()) if paths else ():
            if record.kind != "snapshot" or not lacking:
                continue
            level = [(b"", record.tree)]
            while level:
                level = [item for item in level if item not in visited]
                visited |= set(level)
                loaded = await self._log.trees(name for _, name in level)
                needed = {above + b"/" for path in lacking for above in parents(path)}
                below = []
                for prefix, name in level:
                    for key, entry in loaded[name].items():
                        lacking.discard(prefix + key)
                        if entry.kind == DIR and prefix + key + b"/" in needed:
                            below.append((prefix + key + b"/", entry.ref))
                level = below
        return paths - lacking

    async def _rules(self, tree: bytes, paths: set[bytes]) -> Callable[[bytes], Rules]:
        """The ignore rules that a snapshot itself contains, in every directory above the paths."""
        needed = {b""} | {above + b"/" for path in paths for above in parents(path)}
        rules: dict[bytes, Rules] = {}
        level = [(b"", tree)] if paths else []
        while level:
            loaded = await self._log.trees(name for _, name in level)
            below = []
            for prefix, name in level:
                files = [loaded[name][key] for key in IGNORE_FILES if key in loaded[name]]
                texts = await self._log.contents(entry for entry in files if entry.kind == FILE)
                above = rules[prefix[: prefix[:-1].rfind(b"/") + 1]] if prefix else Rules()
                rules[prefix] = above.below(prefix, (texts[e.ref] for e in files if e.kind == FILE))
                below += [
                    (prefix + key + b"/", entry.ref)
                    for key, entry in loaded[name].items()
                    if entry.kind == DIR and prefix + key + b"/" in needed
                ]
            level = below

        def inside(directory: bytes) -> Rules:
            while directory not in rules and directory:
                directory = directory[: directory[:-1].rfind(b"/") + 1]
            return rules.get(directory) or Rules()

        return inside

    # -- the journal --------------------------------------------------------------------------------------------------

    async def _begin(self, seen: Scan, journal: RestoreIntent) -> Record:
        facts = {"files": seen.index.files, "bytes": seen.index.size, "root": shown(self._place.root)}
        return await self._log.append(
            "restoring",
            seen.tree,
            after=seen.after,
            tags=("safety",),
            facts={**facts, "of": journal.snapshot, "target": journal.target.hex(), **flags(seen)},
            withheld=seen.withheld(),
            journal=journal,
            blobs=seen.blobs,
        )

    async def _close(self, begun: Record, journal: RestoreIntent, *, taken_back: bool = False) -> None:
        """Close the journal, whatever others that share the workspace have added since."""
        facts: dict[str, Any] = {"files": begun.files, "bytes": begun.size, "root": begun.root, "of": journal.snapshot}
        if not taken_back:
            facts |= {"safety": begun.id, "undoes": journal.undoes}
        tree = begun.tree if taken_back else journal.target
        after: Record | None = begun
        while True:
            try:
                await self._log.append("restored", tree, after=after, facts=facts, blobs={})
                return
            except Conflict:
                after = await self._log.tip()

    async def recover(self) -> bool:
        """Finish or take back a restore whose process died. Whether there was one."""
        begun = await self._open_journal()
        if begun is not None or not self._cleared:
            await self._work(lambda: clear_leftovers(self._place.root))
            self._cleared = True
        if begun is None:
            return False
        journal = await self._log.journal(begun)
        move = None if journal.move is None else self._remake(journal.move)
        state = "ready" if move is None else await move.state()
        if state != "lost":
            await self._settle(journal.ops)
            if move is None or state == "done" or await move.make():
                await self._close(begun, journal)
                return True
        await self._take_back(begun, journal)
        return True

    async def _open_journal(self) -> Record | None:
        """The restore of this directory that was not closed, if there is one."""
        newest = await self._log.tip()
        ours = shown(self._place.root)
        if newest is not None and newest.root != ours:  # several directories share this workspace
            newest = next((record for record in reversed(await self._log.records()) if record.root == ours), None)
        return newest if newest is not None and newest.kind == "restoring" else None

    async def _take_back(self, begun: Record, journal: RestoreIntent) -> None:
        await self._settle([Op(op.path, op.new, op.old) for op in journal.ops])
        await self._close(begun, journal, taken_back=True)

    async def _settle(self, ops: list[Op]) -> None:
        """Make every path what `new` says, unless somebody has made it something else since."""

        def remaining() -> list[Op]:
            result: list[Op] = []
            foreign: set[bytes] = set()
            for op in ops:
                here = self._entry(op.path)
                if here is not None and not _ours(here, op):
                    foreign.add(op.path)
                elif not alike(here, op.new) and foreign.isdisjoint(parents(op.path)):
                    result.append(Op(op.path, here, op.new))
            return result

        await self._carry_out(await self._work(remaining), None)

    # -- the files ----------------------------------------------------------------------------------------------------

    async def _carry_out(self, steps: list[Op], expect: dict[bytes, Signature] | None) -> None:
        if not steps:
            return
        hands = await self._work(lambda: Applier(self._place.root, secrets.token_hex(16)))
        crew = Crew(hands)
        try:
            await self._work(lambda: hands.prepare(steps))
            staged = [op for op in steps if needs_staging(op)]
            for batch in _batches(_mixed(staged)):
                files = (op.new for op in batch if op.new is not None and op.new.kind != LINK)
                await self._work(partial(crew.give, batch, await self._log.open(files)))
            await self._work(crew.wait)
            await self._work(lambda: hands.carry_out(steps, expect))
        finally:
            await self._work(crew.close)
            await self._work(hands.close)

    def _entry(self, path: bytes) -> TreeEntry | None:
        """What stands at a path now."""
        mode = look(self._place.root, path)
        full = self._place.root + b"/" + path
        if mode is None:
            return None
        if stat.S_ISDIR(mode):
            return TreeEntry(DIR, mode & MODES, 0, b"")
        if stat.S_ISLNK(mode):
            return TreeEntry(LINK, 0, 0, os.readlink(full))
        return entry_of(self._place, full, self._reading) or TreeEntry(-1, 0, 0, b"")


def alike(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    """Whether two entries are the same to a directory; what is inside a directory is another question."""
    if one is None or other is None or one.kind != DIR:
        return one == other
    return other.kind == DIR and one.mode == other.mode


def _ours(here: TreeEntry, op: Op) -> bool:
    """Whether a restore may have left this here. A directory may also be on its way to its mode."""
    if here.kind == DIR:
        return DIR in (side.kind for side in (op.old, op.new) if side is not None)
    return here in (op.old, op.new)


def flags(seen: Scan) -> dict[str, Any]:
    """Problems, as the metadata shows them."""
    flagged = [[shown(os.fsencode(item.path)), item.reason] for item in seen.flagged[:MAX_SHOWN]]
    return {"flagged": flagged} if flagged else {}


def _is_large(op: Op) -> bool:
    return op.new is not None and op.new.kind == PIECES


def _mixed(ops: list[Op]) -> Iterable[Op]:
    """Large files evenly among the small ones: those hardly need the interpreter's lock, and these all the time."""
    large = [op for op in ops if _is_large(op)]
    small = [op for op in ops if not _is_large(op)]
    share = -(-len(small) // (len(large) or 1))
    for number, op in enumerate(large):
        yield op
        yield from small[number * share : (number + 1) * share]
    if not large:
        yield from small


def _batches(ops: Iterable[Op]) -> Iterable[list[Op]]:
    batch: list[Op] = []
    size = 0
    for op in ops:
        batch.append(op)
        size += op.new.size if op.new is not None else 0
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _moved(move: Move) -> Conflict:
    thread = str(move.intent["thread"])
    return Conflict(thread, message=f"thread {thread!r} moved meanwhile; neither it nor the files were rewound")
