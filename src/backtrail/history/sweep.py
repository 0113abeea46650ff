"""Prune and sweep: deletes checkpoints, and frees rows and blobs that nothing needs any more, one lineage at a time.

Each lineage is done in two short commits, whatever its writers do meanwhile:

1. Mark the checkpoints to be deleted, and swap every head of the lineage for itself. A rewind, a fork or a save that
had read before must read again; one that reads from now on finds only what stays.
2. Drop what is unreachable. The engine refuses this if any head has moved since; then both commits are repeated.

So a writer never loses a row that it points at, and a sweep that is killed at any point only leaves work for the next
one.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from backtrail.engines.base import Commit, Drop, Head, Position, Swap, changes_of
from backtrail.engines.conflicts import Deferred, Refused
from backtrail.engines.reserved_names import user_lineages, user_threads
from backtrail.errors import Corrupt, InvalidInput, OverBudget
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.lineage_view import LineageView
from backtrail.history.reachability import NO_GARBAGE, PLAIN_KINDS, Garbage, find_garbage
from backtrail.history.records import Note, bump_version, deletion, now_micros, open_note
from backtrail.history.retention import check_retention, expired, keeps_all, kept, unpack_retention
from backtrail.history.retry import SWEEPS
from backtrail.history.throttle import Throttle
from backtrail.model import Pruned, Retention

Progress = Callable[[int, int], object]  #: called with (lineages done, total lineages)
_ROWS_PER_DROP = 128  # few, so that writers never wait long
_PAGE = 1000
WORKSPACE = "workspace"
_COUNTED = ("threads", "checkpoints", "rows", "blobs", "bytes")


async def lineages(context: Context) -> AsyncIterator[str]:
    """The names of all lineages, read a page at a time."""
    after: str | None = None
    while page := await user_lineages(context.engine, after=after, limit=_PAGE):
        for name in page:
            yield name
        if after is not None and page[-1] <= after:  # an index that is out of order must not cause an endless loop
            raise Corrupt("the list of lineages", "it is out of order")
        after = page[-1]


class Sweeper:
    """Prunes and sweeps a whole store."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._throttle = Throttle(context.engine)
        self._files: set[str] | None = None  # references to snapshots, once all conversations have been read

    async def prune(
        self,
        retention: Any = None,
        max_age: dt.timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        all_blobs: bool = False,
    ) -> Pruned:
        """Remove what the store's policy (or `retention`, or `max_age`) does not keep, and free what nothing needs.

        A thread's own policy takes precedence over the store's, but not over one passed here. With `dry_run` nothing
        changes, and the report lists what would be deleted."""
        context = self._context
        context.check_open()
        given = None if retention is None else check_retention(retention)
        if max_age is not None:
            if not isinstance(max_age, dt.timedelta):
                raise InvalidInput(f"max_age must be a timedelta, not {max_age!r}")
            given = msgspec.structs.replace(given or Retention(), max_age=max_age)
        names = [name async for name in lineages(context)]
        total = Counter[str]()
        damaged: list[str] = []
        self._files = set()
        last = {head.lineage for head in await user_threads(context.engine, kind=WORKSPACE)}
        # The references that conversations have to snapshots are found only by reading all of them.
        untouched = set[str]() if last else await self._untouched(given)
        for number, lineage in enumerate(sorted(names, key=last.__contains__), 1):
            try:
                if lineage in untouched and await self._is_linear(lineage, all_blobs=all_blobs):
                    done = Pruned()
                else:
                    done = await self.lineage(lineage, given, dry_run=dry_run, all_blobs=all_blobs)
            except (Corrupt, OverBudget) as error:  # the others can still be pruned; this one waits for a repair
                done = Pruned(damaged=(f"{lineage!r}: {error}",))
            damaged += done.damaged
            for what in _COUNTED:
                total[what] += getattr(done, what)
            if progress is not None:
                progress(number, len(names))
            self._throttle.pause()
        return Pruned(**total, damaged=tuple(damaged), dry_run=dry_run)

    async def _untouched(self, given: Retention | None) -> set[str]:
        """Lineages of one thread that was only ever saved to, one step at a time, and that keeps all of its
        checkpoints. This is known from its head, and heads are read many at once."""
        found, forked, now = set[str](), set[str](), now_micros()
        after: str | None = None
        while page := await user_threads(self._context.engine, after=after, limit=_PAGE):
            after = page[-1].thread
            for head in self._throttle.over(page):
                if head.thread != head.lineage:
                    forked.add(head.lineage)
                elif changes_of(head.version) == head.step == head.count and head.kind in PLAIN_KINDS:
                    try:
                        policy = self._policy(open_note(self._context.frames, head), head, given)
                    except Corrupt:
                        continue  # whoever reads the lineage reports it
                    if keeps_all(policy, now, head):
                        found.add(head.lineage)
        return found - forked

    async def _is_linear(self, lineage: str, *, all_blobs: bool) -> bool:
        """True if no deleted thread has left branches in a lineage, or blobs if those count: then a lineage whose
        thread was only saved to has no garbage."""
        branches = await self._context.branches(lineage)
        return len(branches) == 1 and not (all_blobs and await self._context.engine.blob_ids(lineage, limit=1))

    async def lineage(
        self, lineage: str, given: Retention | None = None, *, dry_run: bool = False, all_blobs: bool = False
    ) -> Pruned:
        """Prune and sweep one lineage."""
        threads = checkpoints = 0
        for _ in SWEEPS.attempts():
            heads = await self._context.engine.heads(lineage)
            try:
                view, gone, doomed, found = await self._survey(lineage, given, all_blobs=all_blobs)
            except (Corrupt, OverBudget):
                # What looks like damage may be rows that another sweep was just freeing: then the heads have moved.
                if await self._context.engine.heads(lineage) == heads:
                    raise
                continue
            if found.unsure is not None and await self._context.engine.heads(lineage) != heads:
                continue
            if dry_run or not (gone or doomed or found):
                return _report(lineage, threads + len(gone), checkpoints + len(doomed), found, dry_run)
            try:
                heads = await self._mark(view, gone, doomed, found.duplicates)
                threads, checkpoints = threads + len(gone), checkpoints + len(doomed)
                await self._drop(lineage, heads, found)
            except Deferred:
                return _report(lineage, threads, checkpoints, NO_GARBAGE, dry_run)
            except Refused:
                continue  # a writer was faster; its change may need what was about to be freed
            return _report(lineage, threads, checkpoints, found, dry_run)
        return _report(lineage, threads, checkpoints, NO_GARBAGE, dry_run)

    async def _survey(
        self, lineage: str, given: Retention | None, *, all_blobs: bool
    ) -> tuple[LineageView, set[str], set[Position], Garbage]:
        """A lineage, its expired threads, the checkpoints to be deleted, and the garbage after that."""
        view = await LineageView.read(self._context, lineage, self._throttle)
        now = now_micros()
        gone = {h.thread for h in view.heads if expired(self._policy(view.notes[h.thread], h, given), now, h)}
        left = view.without(gone)
        doomed = self._doomed(left, given, now)
        self._collect_references(left, doomed)
        return (
            view,
            gone,
            doomed,
            await find_garbage(self._context, left, doomed, all_blobs=all_blobs),
        )

    def _policy(self, note: Note, head: Head, given: Retention | None) -> Retention:
        if given is not None:
            return given
        own = note.retention
        return unpack_retention(own, f"the head of thread {head.thread!r}") if own else self._context.retention

    def _doomed(self, view: LineageView, given: Retention | None, now: int) -> set[Position]:
        """The living checkpoints that no thread keeps."""
        keep = {head.position for head in view.heads}
        threads: dict[Retention, list[Head]] = {}
        for head in view.heads:
            threads.setdefault(self._policy(view.notes[head.thread], head, given), []).append(head)
        for policy, heads in threads.items():
            keep.update(one.position for one in kept(policy, now, view, heads))
        workspaces = [head.thread for head in view.heads if head.kind == WORKSPACE]
        return {
            position
            for position in self._throttle.over(view.living())
            if position not in keep and not any(self._is_referenced(view, name, position) for name in workspaces)
        }

    def _is_referenced(self, view: LineageView, workspace: str, position: Position) -> bool:
        """True if a conversation needs a snapshot. Until all conversations have been read, every snapshot counts as
        needed."""
        if self._files is None:
            return True
        rows = view.rows[position[0]]
        at = bisect_left(rows, position[1], key=lambda one: one.step.step)
        return f"{uuid_text(rows[at].step.id)}@{workspace}" in self._files

    def _collect_references(self, view: LineageView, doomed: set[Position]) -> None:
        if self._files is not None:
            living = (one for position, one in self._throttle.over(view.living().items()) if position not in doomed)
            self._files.update(one.meta.files for one in living if one.meta.files is not None)

    async def _mark(
        self, view: LineageView, gone: set[str], doomed: set[Position], duplicates: list[Position]
    ) -> list[Head]:
        """Step one. Returns the heads after it. No head counts a duplicate."""
        context = self._context
        now = now_micros()
        owners: dict[bytes, int] = {}
        marks = []
        for branch, step in self._throttle.over(sorted(doomed)):
            owner = view.branches[branch].owner
            owners[owner] = owners.get(owner, 0) + 1
            marks.append(deletion(context.frames, context.generation, branch, step, now))
        marks += [deletion(context.frames, context.generation, *position, now) for position in duplicates]
        swaps, heads = [], []
        for head in view.heads:
            if head.thread in gone:
                swaps.append(Swap(head.thread, head.key, None))
                continue
            # One microsecond later only: pruning does not make a thread newer in listings, nor less idle.
            count = max(0, head.count - owners.get(head.owner, 0))
            touched = bump_version(context.frames, context.generation, head, head.updated, count=count)
            swaps.append(Swap(head.thread, head.key, touched))
            heads.append(touched)
        await context.engine.commit(Commit(view.lineage, swaps, marks=marks))
        for head in view.heads:
            context.caches.tips.take(head.thread)
        return heads

    async def _drop(self, lineage: str, heads: list[Head], found: Garbage) -> None:
        """Step two, in short parts. Their order (light halves first, then rows from the newest to the oldest) ensures
        that after each part every remaining row still has the row before it."""
        expect = [(head.thread, head.key) for head in heads]
        at_once = max(_ROWS_PER_DROP, len(heads))  # each drop compares all heads
        drops = [Drop(lineage, expect, bodies=part) for part in _parts(found.bodies, at_once)]
        if found.branches or found.blobs:
            drops.append(Drop(lineage, expect, branches=found.branches, blobs=found.blobs))
        drops += [Drop(lineage, expect, rows=part) for part in _parts(found.rows[::-1], at_once)]
        for drop in drops:
            self._throttle.pause()
            await self._context.engine.drop(drop)


def _parts(positions: list[Position], size: int) -> list[list[Position]]:
    return [positions[start : start + size] for start in range(0, len(positions), size)]


def _report(lineage: str, threads: int, checkpoints: int, found: Garbage, dry_run: bool) -> Pruned:
    return Pruned(
        damaged=() if found.unsure is None else (f"{lineage!r}, all of its blobs: {found.unsure}",),
        threads=threads,
        checkpoints=checkpoints,
        rows=found.count,
        blobs=len(found.blobs),
        bytes=found.bytes,
        dry_run=dry_run,
    )
