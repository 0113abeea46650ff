"""A lineage seen as a whole, without its states: all heads, all branches, and the light half of every row.

What a thread keeps alive changes only together with a head, so a view whose heads are still there, at the versions it
read first of all, is still true.
"""

from __future__ import annotations

from collections.abc import Iterator

from backtrail.engines.base import LAST_STEP, Branch, Head, Step
from backtrail.errors import Corrupt
from backtrail.history.ancestry import SeenStep
from backtrail.history.context import Context
from backtrail.history.pace import Pace
from backtrail.history.records import Note, open_note, read_step

Place = tuple[bytes, int]


class LineageView:
    """One lineage at one moment."""

    def __init__(self, lineage: str, heads: list[Head], branches: list[Branch]) -> None:
        self.lineage = lineage
        self.heads = heads
        self.branches = {branch.id: branch for branch in branches}
        self.notes: dict[str, Note] = {}
        self.rows: dict[bytes, list[SeenStep]] = {}  # ascending by step

    @classmethod
    async def of(cls, context: Context, lineage: str) -> LineageView:
        """Read it: the heads first, so that whatever changes later shows in them."""
        pace = Pace(context.engine)
        heads = await context.engine.heads(lineage)
        view = cls(lineage, heads, await context.engine.branches(lineage))
        view.notes = {head.thread: open_note(context.frames, head) for head in heads}
        for branch in view.branches.values():
            view.rows[branch.id] = rows = []
            for number, step in enumerate(await context.engine.steps(lineage, branch.id, 1, LAST_STEP)):
                rows.append(_seen(context, branch, step))
                if number % 16 == 0:
                    pace.breathe()
        return view

    def without(self, threads: set[str]) -> LineageView:
        """The same lineage as it would be if these threads were deleted."""
        other = LineageView(self.lineage, [head for head in self.heads if head.thread not in threads], [])
        other.branches, other.rows = self.branches, self.rows
        other.notes = {head.thread: self.notes[head.thread] for head in other.heads}
        return other

    def trail(self, at: Place) -> Iterator[SeenStep]:
        """Every row on the way back from a place, newest first, deleted ones too."""
        following: Place | None = at
        for _ in range(len(self.branches) + 1):
            if following is None:
                return
            branch, last = following
            if branch not in self.branches:
                raise Corrupt(f"branch {branch.hex()}", f"it is missing, but a branch of {self.lineage!r} follows it")
            yield from (seen for seen in reversed(self.rows[branch]) if seen.step.step <= last)
            following = self.branches[branch].origin
        raise Corrupt(f"lineage {self.lineage!r}", "its branches follow each other in a circle")

    def ancestors(self, branch: bytes) -> Iterator[bytes]:
        """A branch and those it hangs on."""
        following: bytes | None = branch
        for _ in range(len(self.branches) + 1):
            if following is None or following not in self.branches:
                return
            yield following
            origin = self.branches[following].origin
            following = origin[0] if origin is not None else None

    def living(self) -> dict[Place, SeenStep]:
        """Every checkpoint that some thread can see, and every row that a head stands on."""
        found: dict[Place, SeenStep] = {}
        owners = {head.owner for head in self.heads}
        for head in self.heads:
            for seen in self.trail((head.branch, head.step)):
                if seen.alive or seen.place == (head.branch, head.step):
                    found[seen.place] = seen
        for branch, rows in self.rows.items():
            if self.branches[branch].owner in owners:
                found.update((seen.place, seen) for seen in rows if seen.alive)
        return found

    def abandoned(self, head: Head, on_trail: set[Place]) -> Iterator[tuple[SeenStep, int]]:
        """The living checkpoints of a thread that are off its trail, each with the time since when they are.

        Nobody notes that time; it lies between the newest of them and the next thing that the thread wrote. The later
        one is taken, so that nothing goes early."""
        own = [branch for branch in self.branches.values() if branch.owner == head.owner]
        written = sorted(seen.meta.created for branch in own for seen in self.rows[branch.id])
        for branch in own:
            off = [seen for seen in self.rows[branch.id] if (branch.id, seen.step.step) not in on_trail]
            if not off:
                continue
            newest = max(seen.meta.created for seen in off)
            since = next((created for created in written if created > newest), head.updated)
            yield from ((seen, since) for seen in off if seen.alive)


def _seen(context: Context, branch: Branch, step: Step) -> SeenStep:
    meta, remark = read_step(context.frames, branch.id, step)
    return SeenStep(branch, step, meta, remark, remark is None or not remark.deleted)
