"""History as a graph: each checkpoint gets a lane, and every line between lanes is known row by row.

Rows go from the newest to the oldest, children before parents whatever their clocks said. The way to the head has lane
0; what a rewind left behind has lanes of its own until it meets the checkpoint it grew from.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from backtrail.model import Checkpoint


class GraphRow(msgspec.Struct, frozen=True):
    """One checkpoint in the graph: `joins` are the lanes that come into it from above, `through` those that pass by;
    `open` tells whether a line leaves it downwards."""

    checkpoint: Checkpoint
    lane: int
    joins: tuple[int, ...]
    through: tuple[int, ...]
    open: bool
    on_trail: bool


def arrange(checkpoints: Iterable[Checkpoint], head: str | None) -> list[GraphRow]:
    """The rows of the graph, newest first. `head` is the id of the checkpoint the thread stands at."""
    known = {c.id: c for c in checkpoints}
    trail = _trail(known, head)
    lanes: list[str | None] = [head if head in known else None]
    rows: list[GraphRow] = []
    for checkpoint in _ordered(known):
        joins = tuple(i for i, awaited in enumerate(lanes) if awaited == checkpoint.id)
        lane = joins[0] if joins else _free(lanes)
        came = tuple(i for i in joins if not (i == 0 and checkpoint.id == head))  # nothing comes down to the head
        for i in joins:
            lanes[i] = None
        parent = checkpoint.parent_id if checkpoint.parent_id in known else None
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
    """How many lanes the graph has."""
    return 1 + max((max((row.lane, *row.joins, *row.through)) for row in rows), default=0)


def _free(lanes: list[str | None]) -> int:
    for i, awaited in enumerate(lanes):
        if awaited is None and i > 0:
            return i
    return max(1, len(lanes))


def _trail(known: dict[str, Checkpoint], head: str | None) -> set[str]:
    trail: set[str] = set()
    at = head
    while at is not None and at in known and at not in trail:
        trail.add(at)
        at = known[at].parent_id
    return trail


def _ordered(known: dict[str, Checkpoint]) -> Iterable[Checkpoint]:
    """Newest first, no parent before all of its children."""
    children = dict.fromkeys(known, 0)
    for checkpoint in known.values():
        if checkpoint.parent_id in children:
            children[checkpoint.parent_id] += 1
    ready = [_key(c) for c in known.values() if not children[c.id]]
    heapq.heapify(ready)
    while ready:
        checkpoint = known[heapq.heappop(ready)[2]]
        yield checkpoint
        parent = checkpoint.parent_id
        if parent in children:
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, _key(known[parent]))


def _key(checkpoint: Checkpoint) -> tuple[float, int, str]:
    return (-checkpoint.created_at.timestamp(), -checkpoint.step, checkpoint.id)


def draw(rows: Sequence[GraphRow], head: str | None) -> list[tuple[str | None, str]]:
    """The graph in characters: for each row (None, line that joins lanes)? and then (checkpoint id, line)."""
    total = width(rows)
    lines: list[tuple[str | None, str]] = []
    for row in rows:
        merging = [lane for lane in row.joins if lane != row.lane]
        if merging:
            lines.append((None, _joint(row, merging, total)))
        cells = [" "] * total
        for lane in row.through:
            cells[lane] = "│"
        cells[row.lane] = "◉" if row.checkpoint.id == head else "●" if row.on_trail else "○"
        lines.append((row.checkpoint.id, " ".join(cells).rstrip()))
    return lines


def _joint(row: GraphRow, merging: list[int], total: int) -> str:
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
