"""Offsets of records in a log: everything of a lineage that is kept in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from backtrail.engines.base import Branch

ENDLESS = 1 << 31  #: a range whose last step is this or more goes to the end of the branch


class Offset(NamedTuple):
    """The line that holds a record, and the record's number among that line's rows or marks."""

    offset: int
    length: int
    nth: int


def stretch(offsets: Sequence[Offset], number: int, limit: int) -> int:
    """The length in bytes of adjacent lines, from the line of offset `number` on; not much more than `limit`."""
    start = end = offsets[number].offset
    for at in range(number, len(offsets)):
        offset, length, _ = offsets[at]
        if not start <= offset <= end or (end - start >= limit):
            break
        end = max(end, offset + length)
    return end - start


class Damage(NamedTuple):
    number: int  #: of the line, from 1
    offset: int
    raw: bytes


class BranchIndex:
    """One branch: its record, and the offsets of its rows and marks."""

    __slots__ = ("branch", "emptied", "ids", "marks", "number", "offsets", "steps")

    def __init__(self, branch: Branch, number: int) -> None:
        self.branch = branch
        self.number = number  # of the line that started it
        self.steps: list[int] = []  # sorted, for ranges
        self.offsets: dict[int, Offset] = {}
        self.ids: dict[int, bytes] = {}
        self.marks: dict[int, Offset] = {}
        self.emptied: set[int] = set()

    def between(self, first: int, last: int, newest: int | None = None, *, marked: bool = False) -> list[int]:
        steps = sorted(self.marks.keys() & self.offsets.keys()) if marked else self.steps
        low, high = bisect_left(steps, first), bisect_right(steps, last)
        return steps[low if newest is None else max(low, high - newest) : high]

    def gaps(self, first: int, last: int, end: int) -> Iterator[tuple[int, int]]:
        """Pairs of offsets between which missing steps of a range would be, since a branch is written in order."""
        steps = self.steps
        begin = self.branch.origin[1] if self.branch.origin else 0
        low, high = bisect_left(steps, max(first, begin + 1)), bisect_right(steps, last)
        before, offset = (steps[low - 1], self.offsets[steps[low - 1]].offset) if low else (begin, -1)
        for step in steps[low : high + 1]:
            if max(before + 1, first) <= min(step - 1, last):
                yield offset, self.offsets[step].offset
            before, offset = step, self.offsets[step].offset
        if before < last < ENDLESS:
            yield offset, end

    def forget(self, step: int) -> None:
        self.marks.pop(step, None)
        self.emptied.discard(step)
        if self.offsets.pop(step, None) is not None:
            del self.ids[step]
            del self.steps[bisect_left(self.steps, step)]
