"""Piece tables: which items of which streams make up a list, and how an edited list reuses them.

A table is kept short and lean here: neighbours that continue each other are joined, runs too small to be worth a piece
are written again, and when there are too many pieces, or a load would read much more than the list is worth, the
cheapest stretch (or all of it) is folded into fresh items. Folding a stretch costs what it holds, and happens only
after as many edits as it removes pieces, so the work over a list's life stays in proportion to what was written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from backtrail.encode.change_detection import SavedItems
from backtrail.encode.nodes import ListNode, Piece, Tail

MAX_PIECES = 32
_KEEP_PIECES = 16  # how many remain after a fold
_WORTH = 64  # bytes a run must have to be worth a piece in every root to come
_SLACK = 64 * 1024  # bytes of dead weight that are never worth a fold


class Bounds:
    """For each stream: which row begins at which item and byte. Lets the planner name exactly the rows of a run."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[tuple[bytes, int], tuple[list[int], list[int], list[int]]] = {}

    def add(self, tail: Tail, step: int) -> None:
        """Row `step` goes on in a stream at `tail`."""
        self.note(tail.branch, tail.stream, tail.items, tail.offset, step)

    def note(self, branch: bytes, stream: int, start: int, offset: int, step: int) -> None:
        """A row with several sections of a stream counts from its first, which is noted first."""
        starts, offsets, steps = self._streams.setdefault((branch, stream), ([], [], []))
        at = bisect_left(steps, step) if steps and step <= steps[-1] else len(steps)
        if at == len(steps) or steps[at] != step:
            starts.insert(at, start)
            offsets.insert(at, offset)
            steps.insert(at, step)

    def narrow(self, piece: Piece, start: int, stop: int) -> Piece:
        """The part of `piece` that holds items start..stop-1 of its stream, with exactly the rows that part needs."""
        starts, offsets, steps = self._streams[piece.branch, piece.stream]
        low = bisect_right(starts, start) - 1
        high = bisect_right(starts, stop - 1) - 1
        end = piece.begin + piece.span if steps[high] == piece.last else offsets[high + 1]
        begin = offsets[low]
        return Piece(piece.branch, piece.stream, start, stop, steps[low], steps[high], begin, end - begin)


def crowded(listing: ListNode) -> bool:
    """Whether a list's table has grown too long to go on with."""
    return len(listing.pieces) >= MAX_PIECES


def settle(pieces: list[Piece]) -> tuple[Piece, ...]:
    """The same table with neighbours joined that continue each other."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.stop == piece.start
            and last.stream == piece.stream
            and last.branch == piece.branch
            and last.last <= piece.first
        ):
            span = piece.begin + piece.span - last.begin
            joined[-1] = Piece(
                last.branch, last.stream, last.start, piece.stop, last.first, piece.last, last.begin, span
            )
        else:
            joined.append(piece)
    return tuple(joined)


def reach(pieces: Sequence[Piece]) -> int:
    """Bytes that a load of these pieces reads: a row that several of them use is read once."""
    total = 0
    stream, covered = None, 0
    for piece in sorted(pieces, key=lambda p: (p.branch, p.stream, p.begin)):
        if (piece.branch, piece.stream) != stream:
            stream, covered = (piece.branch, piece.stream), 0
        total += max(0, piece.begin + piece.span - max(covered, piece.begin))
        covered = max(covered, piece.begin + piece.span)
    return total


def wasteful(pieces: Sequence[Piece], live: int) -> bool:
    """Whether a load of these pieces reads much more than the `live` bytes it is after."""
    return reach(pieces) > 2 * live + _SLACK


Run = tuple[int, int, int]  # (first new item, how many, first old item or -1 for items to be written)


def reuse(
    value: list[Any], data: list[bytes], old: ListNode, memory: SavedItems, bounds: Bounds
) -> list[Piece | list[bytes]]:
    """The new list as pieces of old streams and lists of encoded items to be written between them."""
    ends = list(accumulate(piece.stop - piece.start for piece in old.pieces))
    runs = _fold(_lean(_split(_match(value, data, memory), ends), data), data)
    result: list[Piece | list[bytes]] = []
    for first, count, at in runs:
        result.append(data[first : first + count] if at < 0 else _part(old, ends, at, count, bounds))
    kept = [part for part in result if isinstance(part, Piece)]
    return [data] if wasteful(kept, sum(map(len, data))) else result


def _match(value: list[Any], data: list[bytes], memory: SavedItems) -> list[Run]:
    """Equal runs at the front and at the back; between them, runs found by the items' own keys."""
    before, now = len(memory), len(value)
    shorter = min(before, now)
    front = 0
    while front < shorter and memory.matches(front, value[front]):
        front += 1
    back = 0
    while back < shorter - front and memory.matches(before - 1 - back, value[now - 1 - back]):
        back += 1
    runs: list[Run] = [(0, front, 0)] if front else []
    places = {memory.key(i): i for i in range(front, before - back)} if now - back > front else {}
    for i in range(front, now - back):
        at = places.get(memory.key_of(value[i], data[i]), -1)
        if runs:
            first, count, start = runs[-1]
            if (at < 0 and start < 0) or (at >= 0 and start >= 0 and start + count == at):
                runs[-1] = (first, count + 1, start)
                continue
        runs.append((i, 1, at))
    if back:
        runs.append((now - back, back, before - back))
    return runs


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Neighbouring runs that are both to be written become one."""
    result: list[Run] = []
    for first, count, at in runs:
        if result and at < 0 and result[-1][2] < 0:
            result[-1] = (result[-1][0], result[-1][1] + count, -1)
        else:
            result.append((first, count, at))
    return result


def _weight(run: Run, data: list[bytes]) -> int:
    return sum(map(len, data[run[0] : run[0] + run[1]]))


def _lean(runs: list[Run], data: list[bytes]) -> list[Run]:
    """Runs that are too small for a piece are written again."""
    return _joined([(f, n, -1) if at >= 0 and _weight((f, n, at), data) < _WORTH else (f, n, at) for f, n, at in runs])


def _fold(runs: list[Run], data: list[bytes]) -> list[Run]:
    """If there are too many runs, the neighbouring ones that hold the fewest bytes become one, to be written."""
    if len(runs) <= MAX_PIECES:
        return runs
    width = len(runs) - _KEEP_PIECES
    weights = [_weight(run, data) for run in runs]
    cheapest = min(range(len(runs) - width + 1), key=lambda i: sum(weights[i : i + width]))
    stretch = runs[cheapest : cheapest + width]
    folded = (stretch[0][0], sum(count for _, count, _ in stretch), -1)
    return _joined([*runs[:cheapest], folded, *runs[cheapest + width :]])


def _split(runs: list[Run], ends: list[int]) -> list[Run]:
    """Runs cut where the old list goes from one piece to the next: each is then a part of one piece."""
    result: list[Run] = []
    for first, count, at in runs:
        while at >= 0 and count:
            fits = min(count, ends[bisect_right(ends, at)] - at)
            result.append((first, fits, at))
            first, count, at = first + fits, count - fits, at + fits
        if count:
            result.append((first, count, at))
    return result


def _part(old: ListNode, ends: list[int], at: int, count: int, bounds: Bounds) -> Piece:
    """The items at..at+count-1 of the old list, which lie in one piece."""
    number = bisect_right(ends, at)
    piece = old.pieces[number]
    start = piece.stop - (ends[number] - at)
    return bounds.narrow(piece, start, start + count)
