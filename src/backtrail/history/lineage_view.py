"""A lineage as a whole, without its states: all heads, all branches, and the light half of every row.

The set of living checkpoints changes only together with a head. So a view is still valid if the heads, which it read
first, still have the same versions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator

from backtrail.engines.base import LAST_STEP, Branch, Head, Position, Step
from backtrail.engines.branch_origins import Segment, first_step, furthest, is_complete, walk_back
from backtrail.history.ancestry import CHUNK, HistoryStep, broken_walk
from backtrail.history.context import Context
from backtrail.history.records import Note, open_note, read_step
from backtrail.history.throttle import Throttle


class LineageView:
    """One lineage at one moment."""

    def __init__(self, lineage: str, heads: list[Head], branches: list[Branch], throttle: Throttle) -> None:
        self.lineage = lineage
        self.heads = heads
        self.branches = {branch.id: branch for branch in branches}
        self.throttle = throttle
        self.notes: dict[str, Note] = {}
        self.rows: dict[bytes, list[HistoryStep]] = {}  # ascending by step
        self._by_owner: dict[bytes, list[Branch]] = {}
        self._living: dict[Position, HistoryStep] | None = None

    @classmethod
    async def read(cls, context: Context, lineage: str, throttle: Throttle | None = None) -> LineageView:
        """Read a lineage: the heads first, so that a later change is visible as a change of a head. Whoever reads many
        lineages has one throttle for all of them."""
        heads = await context.engine.heads(lineage)
        view = cls(lineage, heads, await context.branches(lineage), throttle or Throttle(context.engine))
        view.notes = {head.thread: open_note(context.frames, head) for head in view.throttle.over(heads)}
        for branch in view.throttle.over(view.branches.values()):
            view.rows[branch.id] = await view._read_rows(context, branch)
        return view

    async def _read_rows(self, context: Context, branch: Branch) -> list[HistoryStep]:
        """The rows of a branch, some at a time: a long result would be fetched without a pause."""
        pages: list[list[HistoryStep]] = []
        last = LAST_STEP
        while last and (steps := await context.engine.steps(self.lineage, branch.id, 1, last, newest=CHUNK)):
            pages.append([_history_step(context, branch, step) for step in self.throttle.over(steps)])
            last = steps[0].step - 1 if len(steps) == CHUNK else 0
        return [one for page in reversed(pages) for one in page]

    def without(self, threads: set[str]) -> LineageView:
        """The same lineage as it would be if these threads were deleted."""
        other = LineageView(
            self.lineage, [head for head in self.heads if head.thread not in threads], [], self.throttle
        )
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

    # Forks share most of their ancestry. So the next three look at each branch and each row once, however many threads
    # have it in their histories.

    def reach(self, heads: Iterable[Head]) -> dict[bytes, int]:
        """The last step of each branch that is in the history of one of these heads."""
        heads = list(heads)
        found = furthest((head.position for head in heads), self.branches.get)
        origins = (self.branches[id].origin for id in found)
        if not all(map(self._is_possible, (*(head.position for head in heads), *filter(None, origins)))):
            for head in heads:
                self.segments_to(head)  # raises, for one of them
        return found

    def newest(self, heads: Iterable[Head], count: int) -> Iterator[HistoryStep]:
        """The checkpoints that are among the `count` newest living ones in the history of one of these heads."""
        wanted: dict[bytes, list[tuple[int, int]]] = {}  # (step, how many back from it), by branch
        heads = list(heads)
        for head in heads:
            wanted.setdefault(head.branch, []).append((head.step, count))
        # A branch begins later than the branch that it continues. So when a branch's turn comes, it is known how many
        # are wanted from each step of it.
        for id in sorted(self.reach(heads), key=lambda id: first_step(self.branches[id]), reverse=True):
            starts = sorted(wanted.pop(id, ()))
            left = 0
            for one in self.throttle.over(reversed(self.rows[id])):
                while starts and starts[-1][0] >= one.step.step:
                    left = max(left, starts.pop()[1])
                if left and one.alive:
                    left -= 1
                    yield one
            origin, left = self.branches[id].origin, max([left, *(more for _, more in starts)])
            if origin is not None and left:
                wanted.setdefault(origin[0], []).append((origin[1], left))

    def visible(self) -> dict[bytes, int]:
        """The last step of each branch that some thread can see: of its own branches every one."""
        owners = {head.owner for head in self.heads}
        own = {branch.id: LAST_STEP for branch in self.branches.values() if branch.owner in owners}
        return {**self.reach(self.heads), **own}

    def living(self) -> dict[Position, HistoryStep]:
        """Every checkpoint that some thread can see, and every row that a head is at."""
        if self._living is None:
            positions = {head.position for head in self.heads}
            visible = self.visible()
            self._living = {
                one.position: one
                for branch, rows in self.rows.items()
                for last in (visible.get(branch, 0),)
                for one in self.throttle.over(rows)
                if (one.alive and one.step.step <= last) or one.position in positions
            }
        return self._living

    def duplicates(self, doomed: Collection[Position]) -> tuple[list[HistoryStep], list[HistoryStep]]:
        """The rows that a mirror has marked as duplicates, because a thread has the same save twice. First those that
        stay: a merge may restore one of them, and mark the other row instead. Then those that go: somebody has deleted
        the save, knowing another row of it. `doomed`: rows that are about to be deleted."""
        found = [one for rows in self.rows.values() for one in rows if one.mark is not None and one.mark.duplicate]
        if not found:
            return [], []
        visible, ids = self.visible(), {one.step.id for one in found}
        deleted = {
            (one.branch.owner, one.step.id)
            for rows in self.rows.values()
            for one in rows
            if one.step.id in ids and (one.position in doomed or _is_deleted(one))
        }
        found = [one for one in found if one.step.step <= visible.get(one.branch.id, 0)]
        stay = [one for one in found if (one.branch.owner, one.step.id) not in deleted]
        return stay, [one for one in found if (one.branch.owner, one.step.id) in deleted]

    def with_ancestors(self, ids: Iterable[bytes]) -> set[bytes]:
        """These branches, and every branch that one of them continues, whatever the step."""
        found: set[bytes] = set()
        for start in ids:
            branch = self.branches.get(start)
            while branch is not None and branch.id not in found:
                found.add(branch.id)
                branch = None if branch.origin is None else self.branches.get(branch.origin[0])
        return found

    def _is_possible(self, position: Position) -> bool:
        branch = self.branches.get(position[0])
        return branch is not None and position[1] >= first_step(branch)

    def abandoned(self, head: Head) -> Iterator[tuple[HistoryStep, int]]:
        """The living checkpoints of a thread that are not in its history, each with the time since when they have been
        abandoned.

        That time is not recorded. It is between the newest of them and the thread's next write; the later of the two is
        used, so that nothing is deleted early."""
        own = self._branches_of(head.owner)
        history: dict[bytes, int] = {}
        for segment in walk_back(head.position, self.branches.get):
            if segment.branch.owner != head.owner:
                break  # what a fork inherited: none of its own branches is before that
            history[segment.branch.id] = segment.last
        parts = [self._rows_after(branch.id, history.get(branch.id, 0)) for branch in own]
        if not any(parts):
            return
        written = sorted(one.meta.created for branch in own for one in self.throttle.over(self.rows[branch.id]))
        for off in filter(None, parts):
            newest = max(one.meta.created for one in off)
            since = next((created for created in written if created > newest), head.updated)
            yield from ((one, since) for one in off if one.alive)

    def _rows_after(self, branch: bytes, step: int) -> list[HistoryStep]:
        rows = self.rows[branch]
        return rows[bisect_right(rows, step, key=_number) :]

    def _branches_of(self, owner: bytes) -> list[Branch]:
        if not self._by_owner:
            for branch in self.branches.values():
                self._by_owner.setdefault(branch.owner, []).append(branch)
        return self._by_owner.get(owner, [])


def _is_deleted(one: HistoryStep) -> bool:
    """True if somebody has deleted this checkpoint."""
    return one.mark is not None and one.mark.deleted and not one.mark.duplicate


def _number(one: HistoryStep) -> int:
    return one.step.step


def _history_step(context: Context, branch: Branch, step: Step) -> HistoryStep:
    """A step, independent of any thread's view."""
    meta, mark = read_step(context.frames, branch.id, step)
    return HistoryStep(branch, step, meta, mark, mark is None or not mark.deleted)
