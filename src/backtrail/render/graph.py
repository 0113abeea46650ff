"""Lays out a history as a graph: each checkpoint is a row with a lane and the lines between lanes.

Rows go from the newest to the oldest, children before parents whatever their clocks said. The head and its ancestors
have lane 0; an abandoned branch has a lane of its own, down to the checkpoint it started from. Of more branches side
by side than there are lanes, the others' checkpoints stand in one more lane, without lines: else thousands of abandoned
branches would make thousands of lanes in each of thousands of rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from backtrail.model import Checkpoint

MAX_LANES = 64  # with lines


class GraphRow(msgspec.Struct, frozen=True):
    """One checkpoint in the graph: `joins` are the lanes that end in it from above, `through` the lanes that pass by;
    `open` is true if a line leaves it downwards, `on_trail` if it is the head or an ancestor of it."""

    checkpoint: Checkpoint
    lane: int
    joins: tuple[int, ...]
    through: tuple[int, ...]
    open: bool
    on_trail: bool


class Graph:
    """The history of a thread, whose head has the id `head`. It grows at the head; a page of its rows costs that page
    and the lanes of the rows above it."""

    def __init__(self, checkpoints: Iterable[Checkpoint], head: str | None) -> None:
        known = {c.id: c for c in checkpoints}
        self.head = head
        self._known = known
        self._trail = {checkpoint.id for checkpoint in ancestry(known, head)}
        self._oldest_first = [*_ordered(known)][::-1]
        self.lanes = 1  #: the number of lanes
        for lane, *_ in self._sweep():
            self.lanes = max(self.lanes, lane + 1)

    def __len__(self) -> int:
        return len(self._oldest_first)

    def checkpoints(self) -> dict[str, Checkpoint]:
        """All checkpoints, by id."""
        return dict(self._known)

    def seconds(self, checkpoint: Checkpoint) -> float | None:
        """The time since the step before; None if that is not in this graph."""
        before = self._known.get(checkpoint.parent_id) if checkpoint.parent_id is not None else None
        return max(0.0, (checkpoint.created_at - before.created_at).total_seconds()) if before is not None else None

    def index(self, id: str) -> int | None:
        """The row of a checkpoint, counted from the newest; None if it is not in this graph."""
        rows = (row for row, checkpoint in enumerate(reversed(self._oldest_first)) if checkpoint.id == id)
        return next(rows, None)

    def between(self, first: int, last: int) -> list[Checkpoint]:
        """Checkpoints by their places, counted from the oldest: from `last`, which is not included, down to `first`."""
        return self._oldest_first[first:last][::-1]

    def on_trail(self, id: str) -> bool:
        """True if this is the head or an ancestor of it."""
        return id in self._trail

    def trail(self) -> Iterator[Checkpoint]:
        """The head's ancestors and the head, oldest first."""
        return (checkpoint for checkpoint in self._oldest_first if checkpoint.id in self._trail)

    def extend(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Add what was saved after the head, oldest first; the last one is the new head."""
        self._oldest_first += checkpoints
        self._known.update((checkpoint.id, checkpoint) for checkpoint in checkpoints)
        self._trail.update(checkpoint.id for checkpoint in checkpoints)
        self.head = checkpoints[-1].id

    def page(self, start: int = 0, stop: int | None = None) -> list[GraphRow]:
        """The rows from `start` up to `stop`, counted from the newest."""
        rows: list[GraphRow] = []
        end = len(self) if stop is None else min(stop, len(self))
        for number, (lane, checkpoint, joins, passing, open) in enumerate(islice(self._sweep(), end)):
            if number >= start:
                on_trail = checkpoint.id in self._trail
                rows.append(GraphRow(checkpoint, lane, tuple(joins), tuple(sorted(passing)), open, on_trail))
        return rows

    def _sweep(self) -> Iterator[tuple[int, Checkpoint, list[int], set[int], bool]]:
        """(lane, checkpoint, lanes that join it, lanes that pass by, does a line leave it) for each row, newest first.
        The lanes that pass by are those of the moment: the next row changes them."""
        awaited: dict[str, list[int]] = {}  # the lanes whose lines end in a checkpoint further down
        passing: set[int] = set()
        free: list[int] = []  # lanes that were used and are not any more, as a heap
        beyond = 1  # the first lane that was never used
        for checkpoint in reversed(self._oldest_first):
            joins = sorted(awaited.pop(checkpoint.id, ()))
            passing.difference_update(joins)
            if checkpoint.id in self._trail:
                lane = 0
            elif joins:
                lane = joins[0]
            elif free:
                lane = heapq.heappop(free)
            else:
                lane, beyond = beyond, min(beyond + 1, MAX_LANES)
            for joined in joins:
                if joined not in (0, lane):
                    heapq.heappush(free, joined)
            parent = checkpoint.parent_id if checkpoint.parent_id in self._known and lane < MAX_LANES else None
            yield lane, checkpoint, joins, passing, parent is not None
            if parent is not None:
                awaited.setdefault(parent, []).append(lane)
                passing.add(lane)
            elif 0 < lane < MAX_LANES:
                heapq.heappush(free, lane)


def width(rows: Sequence[GraphRow]) -> int:
    """The number of lanes of these rows."""
    return 1 + max((max((row.lane, *row.joins, *row.through)) for row in rows), default=0)


def ancestry(known: Mapping[str, Checkpoint], id: str | None) -> Iterator[Checkpoint]:
    """A checkpoint, its parent, and so on, as far as they are `known`."""
    seen: set[str] = set()
    while id is not None and id in known and id not in seen:
        seen.add(id)
        yield known[id]
        id = known[id].parent_id


def _ordered(known: dict[str, Checkpoint]) -> Iterable[Checkpoint]:
    """Checkpoints, newest first, with every parent after all of its children."""
    children = dict.fromkeys(known, 0)
    for checkpoint in known.values():
        if checkpoint.parent_id in children:
            children[checkpoint.parent_id] += 1
    ready = [_sort_key(c) for c in known.values() if not children[c.id]]
    heapq.heapify(ready)
    while ready:
        checkpoint = known[heapq.heappop(ready)[2]]
        yield checkpoint
        parent = checkpoint.parent_id
        if parent in children:
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, _sort_key(known[parent]))


def _sort_key(checkpoint: Checkpoint) -> tuple[float, int, str]:
    return (-checkpoint.created_at.timestamp(), -checkpoint.step, checkpoint.id)


def draw(rows: Sequence[GraphRow], head: str | None) -> list[tuple[str | None, str]]:
    """The graph in characters: a line (checkpoint id, text) per row, with a line (None, text) before it where lanes
    join."""
    total = width(rows)
    lines: list[tuple[str | None, str]] = []
    for row in rows:
        merging = [lane for lane in row.joins if lane != row.lane]
        if merging:
            lines.append((None, _join_line(row, merging, total)))
        cells = [" "] * total
        for lane in row.through:
            cells[lane] = "│"
        cells[row.lane] = "◉" if row.checkpoint.id == head else "●" if row.on_trail else "○"
        lines.append((row.checkpoint.id, " ".join(cells).rstrip()))
    return lines


def _join_line(row: GraphRow, merging: list[int], total: int) -> str:
    last = max(merging)
    text = []
    for lane in range(total):
        passing = lane in row.through
        if lane == row.lane:
            text.append("├" if lane in row.joins else "╭")
        elif lane == last:
            text.append("╯")
        elif lane in merging:
            text.append("┴")
        elif row.lane < lane < last:
            text.append("┼" if passing else "─")
        else:
            text.append("│" if passing else " ")
        text.append("─" if row.lane <= lane < last else " ")
    return "".join(text).rstrip()
