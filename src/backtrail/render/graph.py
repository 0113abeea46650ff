"""Lays out a history as a graph: each checkpoint is a row with a lane and the lines between lanes.

Rows go from the newest to the oldest, children before parents whatever their clocks said. The head and its ancestors
have lane 0; an abandoned branch has a lane of its own, down to the checkpoint it started from. Of more branches side
by side than there are lanes, the others' checkpoints stand in one more lane, without lines: else thousands of abandoned
branches would make thousands of lanes in each of thousands of rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

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


def arrange(checkpoints: Iterable[Checkpoint], head: str | None) -> list[GraphRow]:
    """The rows of the graph, newest first; `head` is the id of the thread's head."""
    known = {c.id: c for c in checkpoints}
    trail = {checkpoint.id for checkpoint in ancestry(known, head)}
    lanes: list[str | None] = [head if head in known else None]
    rows: list[GraphRow] = []
    for checkpoint in _ordered(known):
        joins = tuple(i for i, awaited in enumerate(lanes) if awaited == checkpoint.id)
        lane = joins[0] if joins else min(_free_lane(lanes), MAX_LANES)
        came = tuple(i for i in joins if not (i == 0 and checkpoint.id == head))  # no line enters the head from above
        for i in joins:
            lanes[i] = None
        parent = checkpoint.parent_id if checkpoint.parent_id in known and lane < MAX_LANES else None
        through = tuple(
            i for i, awaited in enumerate(lanes) if awaited is not None and not (i == 0 and awaited == head)
        )
        if parent is not None:
            while len(lanes) <= lane:
                lanes.append(None)
            lanes[lane] = parent
        rows.append(GraphRow(checkpoint, lane, came, through, parent is not None, checkpoint.id in trail))
    return rows


def width(rows: Sequence[GraphRow]) -> int:
    """The number of lanes."""
    return 1 + max((max((row.lane, *row.joins, *row.through)) for row in rows), default=0)


def _free_lane(lanes: list[str | None]) -> int:
    for i, awaited in enumerate(lanes):
        if awaited is None and i > 0:
            return i
    return max(1, len(lanes))


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
