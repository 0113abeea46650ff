"""Where records lie in a log: what memory holds of a lineage."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from clew.engines.base import Branch


class Place(NamedTuple):
    """Where a record lies: a line of the file, and which of that line's rows or marks it is."""

    offset: int
    length: int
    nth: int


class Damage(NamedTuple):
    number: int  #: of the line, from 1
    offset: int
    raw: bytes


class Trunk:
    """One branch: its record, and the places of its rows and marks."""

    __slots__ = ("branch", "emptied", "ids", "marks", "number", "places", "steps")

    def __init__(self, branch: Branch, number: int) -> None:
        self.branch = branch
        self.number = number  # of the line that started it
        self.steps: list[int] = []  # sorted, for ranges
        self.places: dict[int, Place] = {}
        self.ids: dict[int, bytes] = {}
        self.marks: dict[int, Place] = {}
        self.emptied: set[int] = set()

    def between(self, first: int, last: int) -> list[int]:
        return self.steps[bisect_left(self.steps, first) : bisect_right(self.steps, last)]

    def forget(self, step: int) -> None:
        self.marks.pop(step, None)
        self.emptied.discard(step)
        if self.places.pop(step, None) is not None:
            del self.ids[step]
            del self.steps[bisect_left(self.steps, step)]
