"""Piece tables: which items of which streams make up a list, and how an edited list reuses them.

Tables are kept short: adjacent pieces that continue each other are joined, and runs too small for a piece are written
again. When there are too many pieces, or a load would read much more than the list holds, the cheapest stretch (or the
whole list) is folded, that is, rewritten as new items. A fold costs the bytes of its stretch, and happens only after as
many edits as it removes pieces, so the total work stays proportional to the bytes written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from backtrail.encode.change_detection import KnownList, ListSnapshot, RowIndex
from backtrail.encode.row_format import ListNode, Piece

MAX_PIECES = 32
_KEEP_PIECES = 16  # how many remain after a fold
_WORTH = 64  # bytes a run must have to be worth a piece in every root to come
_SLACK = 64 * 1024  # unneeded bytes that are never worth a fold


def join_adjacent(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same table with neighbours joined that continue each other."""
    result: list[Piece] = []
    for piece in pieces:
        joined = result[-1].joined(piece) if result else None
        if joined is not None:
            result[-1] = joined
        else:
            result.append(piece)
    return tuple(result)


def bytes_read(pieces: Sequence[Piece]) -> int:
    """Bytes that a load of these pieces reads: a row that several of them use is read once."""
    total = 0
    stream, covered = None, 0
    for piece in sorted(pieces, key=lambda p: (p.branch, p.stream, p.begin)):
        if (piece.branch, piece.stream) != stream:
            stream, covered = (piece.branch, piece.stream), 0
        total += max(0, piece.begin + piece.span - max(covered, piece.begin))
        covered = max(covered, piece.begin + piece.span)
    return total


def reads_too_much(pieces: Sequence[Piece], live: int) -> bool:
    """True if a load of these pieces reads much more than the `live` bytes that it needs."""
    return bytes_read(pieces) > 2 * live + _SLACK


def pieces_between(listing: ListNode, start: int, stop: int) -> Iterator[tuple[Piece, int, int]]:
    """The pieces that items start..stop-1 of a list lie in, each with the range of its stream's items."""
    base = 0
    for piece in listing.pieces:
        count = piece.stop - piece.start
        low, high = max(start - base, 0), min(stop - base, count)
        if low < high:
            yield piece, piece.start + low, piece.start + high
        base += count


Run = tuple[int, int, int]  # (first new item, how many, first old item or -1 for items to be written)


def reuse_pieces(value: list[Any], data: list[bytes], old: ListNode, known: KnownList) -> list[Piece | list[bytes]]:
    """The new list as pieces of old streams and lists of encoded items to be written between them."""
    ends = list(accumulate(piece.stop - piece.start for piece in old.pieces))
    matched = _split_at_pieces(_match(value, data, known.snapshot), ends)
    runs = _fold_cheapest(_without_small_runs(matched, data), data)
    result: list[Piece | list[bytes]] = []
    for first, count, at in runs:
        result.append(data[first : first + count] if at < 0 else _piece_of(old, ends, at, count, known.row_index))
    kept = [part for part in result if isinstance(part, Piece)]
    return [data] if reads_too_much(kept, sum(map(len, data))) else result


def _match(value: list[Any], data: list[bytes], saved: ListSnapshot) -> list[Run]:
    """Equal runs at the front and at the back; between them, runs found by the items' own keys."""
    before, now = len(saved), len(value)
    shorter = min(before, now)
    front = 0
    while front < shorter and saved.matches(front, value[front]):
        front += 1
    back = 0
    while back < shorter - front and saved.matches(before - 1 - back, value[now - 1 - back]):
        back += 1
    runs: list[Run] = [(0, front, 0)] if front else []
    numbers = {saved.key(i): i for i in range(front, before - back)} if now - back > front else {}
    for i in range(front, now - back):
        at = numbers.get(saved.key_of(value[i], data[i]), -1)
        if runs:
            first, count, start = runs[-1]
            if (at < 0 and start < 0) or (at >= 0 and start >= 0 and start + count == at):
                runs[-1] = (first, count + 1, start)
                continue
        runs.append((i, 1, at))
    if back:
        runs.append((now - back, back, before - back))
    return runs


def _join_written(runs: Sequence[Run]) -> list[Run]:
    """Neighbouring runs that are both written become one."""
    result: list[Run] = []
    for first, count, at in runs:
        if result and at < 0 and result[-1][2] < 0:
            result[-1] = (result[-1][0], result[-1][1] + count, -1)
        else:
            result.append((first, count, at))
    return result


def _weight(run: Run, data: list[bytes]) -> int:
    return sum(map(len, data[run[0] : run[0] + run[1]]))


def _without_small_runs(runs: list[Run], data: list[bytes]) -> list[Run]:
    """Runs that are too small for a piece are written again."""
    small = [at < 0 or _weight((first, count, at), data) < _WORTH for first, count, at in runs]
    return _join_written([(*run[:2], -1) if again else run for run, again in zip(runs, small, strict=True)])


def _fold_cheapest(runs: list[Run], data: list[bytes]) -> list[Run]:
    """If there are too many runs, the neighbouring ones that hold the fewest bytes become one, to be written."""
    if len(runs) <= MAX_PIECES:
        return runs
    width = len(runs) - _KEEP_PIECES
    weights = [_weight(run, data) for run in runs]
    cheapest = min(range(len(runs) - width + 1), key=lambda i: sum(weights[i : i + width]))
    stretch = runs[cheapest : cheapest + width]
    folded = (stretch[0][0], sum(count for _, count, _ in stretch), -1)
    return _join_written([*runs[:cheapest], folded, *runs[cheapest + width :]])


def _split_at_pieces(runs: list[Run], ends: list[int]) -> list[Run]:
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


def _piece_of(old: ListNode, ends: list[int], at: int, count: int, index: RowIndex) -> Piece:
    """The items at..at+count-1 of the old list, which lie in one piece."""
    number = bisect_right(ends, at)
    piece = old.pieces[number]
    start = piece.stop - (ends[number] - at)
    return index.narrow(piece, start, start + count)
