"""A lineage as a whole, without its states: all heads, all branches, and the light half of every row.

The set of living checkpoints changes only together with a head. So a view is still valid if the heads, which it read
first, still have the same versions.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from backtrail.engines.base import LAST_STEP, Branch, Engine, Head, Position, Step
from backtrail.engines.branch_origins import Segment, furthest, is_complete, walk_back
from backtrail.history.ancestry import HistoryStep, broken_walk
from backtrail.history.context import Context
from backtrail.history.records import Note, open_note, read_step

_WORK = 0.0002  # seconds of work between two pauses
_PAUSE = 0.00002  # seconds; long enough for another thread to wake up


class Throttle:
    """Lets other threads of the process run every fraction of a millisecond, while a lineage is processed.

    A thread that computes releases the GIL only every five milliseconds, twenty times as long as a save takes. On an
    event loop there are no other threads to let run, and nothing may sleep."""

    def __init__(self, engine: Engine) -> None:
        self._blocking = engine.properties.blocking
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Sleep for a moment, if it is time to and another thread could be waiting. Called every few rows."""
        if self._blocking and time.perf_counter() - self._since > _WORK and threading.active_count() > 1:
            time.sleep(_PAUSE)
            self._since = time.perf_counter()


class LineageView:
    """One lineage at one moment."""

    def __init__(self, lineage: str, heads: list[Head], branches: list[Branch]) -> None:
        self.lineage = lineage
        self.heads = heads
        self.branches = {branch.id: branch for branch in branches}
        self.notes: dict[str, Note] = {}
        self.rows: dict[bytes, list[HistoryStep]] = {}  # ascending by step
        self._by_owner: dict[bytes, list[Branch]] = {}

    @classmethod
    async def read(cls, context: Context, lineage: str) -> LineageView:
        """Read a lineage: the heads first, so that a later change is visible as a change of a head."""
        throttle = Throttle(context.engine)
        heads = await context.engine.heads(lineage)
        view = cls(lineage, heads, await context.branches(lineage))
        view.notes = {head.thread: open_note(context.frames, head) for head in heads}
        for branch in view.branches.values():
            view.rows[branch.id] = rows = []
            for number, step in enumerate(await context.engine.steps(lineage, branch.id, 1, LAST_STEP)):
                rows.append(_history_step(context, branch, step))
                if number % 16 == 0:
                    throttle.pause()
        return view

    def without(self, threads: set[str]) -> LineageView:
        """The same lineage as it would be if these threads were deleted."""
        other = LineageView(self.lineage, [head for head in self.heads if head.thread not in threads], [])
        other.branches, other.rows = self.branches, self.rows
        other.notes = {head.thread: self.notes[head.thread] for head in other.heads}
        return other

    def segments_to(self, head: Head) -> list[Segment]:
        """The ancestry of a head, newest part first."""
        segments = list(walk_back(head.position, self.branches.get))
        if not is_complete(segments):
            raise broken_walk(head, head.position, segments, self.branches.get)
        return segments

    def steps_to(self, head: Head) -> list[HistoryStep]:
        """Every step in the ancestry of a head, newest first, deleted ones included. A fork of a long thread costs what
        it inherited: rows after that are not looked at."""
        found: list[HistoryStep] = []
        for segment in self.segments_to(head):
            rows = self.rows[segment.branch.id]
            found += rows[: bisect_right(rows, segment.last, key=_number)][::-1]
        return found

    def living(self) -> dict[Position, HistoryStep]:
        """Every checkpoint that some thread can see, and every row that a head is at. Forks share most of their
        ancestry: each row is looked at once, however many there are."""
        owners = {head.owner for head in self.heads}
        positions = {head.position for head in self.heads}
        reach = furthest(segment for head in self.heads for segment in self.segments_to(head))
        return {
            one.position: one
            for branch, rows in self.rows.items()
            for last in (LAST_STEP if self.branches[branch].owner in owners else reach.get(branch, 0),)
            for one in rows
            if (one.alive and one.step.step <= last) or one.position in positions
        }

    def abandoned(self, head: Head, history: Mapping[bytes, int]) -> Iterator[tuple[HistoryStep, int]]:
        """The living checkpoints of a thread that are not in its history (the last step of each branch in it), each
        with the time since when they have been abandoned.

        That time is not recorded. It is between the newest of them and the thread's next write; the later of the two is
        used, so that nothing is deleted early."""
        own = self._branches_of(head.owner)
        parts = [[one for one in self.rows[branch.id] if one.step.step > history.get(branch.id, 0)] for branch in own]
        if not any(parts):
            return
        written = sorted(one.meta.created for branch in own for one in self.rows[branch.id])
        for off in filter(None, parts):
            newest = max(one.meta.created for one in off)
            since = next((created for created in written if created > newest), head.updated)
            yield from ((one, since) for one in off if one.alive)

    def _branches_of(self, owner: bytes) -> list[Branch]:
        if not self._by_owner:
            for branch in self.branches.values():
                self._by_owner.setdefault(branch.owner, []).append(branch)
        return self._by_owner.get(owner, [])


def _number(one: HistoryStep) -> int:
    return one.step.step


def _history_step(context: Context, branch: Branch, step: Step) -> HistoryStep:
    """A step, independent of any thread's view."""
    meta, mark = read_step(context.frames, branch.id, step)
    return HistoryStep(branch, step, meta, mark, mark is None or not mark.deleted)
