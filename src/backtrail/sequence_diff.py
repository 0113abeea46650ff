"""Compares two sequences: which items stayed, which were removed, added or replaced.

`difflib` takes quadratic time, and more, on ordinary data: 8,000 small items, or a file whose lines repeat. This takes
time in proportion to the items, whatever they are. Items that are unique on both sides are matched first (as in a
patience diff); between these, the shortest edit is looked for (Myers), a hundred edits at a time, as long as a budget
of comparisons lasts. What is left when it is used up counts as replaced: the result is always right, and not always the
shortest.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal, NamedTuple

_EFFORT = 100  # comparisons for each item, on the whole
_MOST_EDITS = 100  # edits that are looked for together; time and memory grow with their square


class Span(NamedTuple):
    """Items a0..a1-1 of one sequence became items b0..b1-1 of the other."""

    kind: Literal["equal", "changed"]
    a0: int
    a1: int
    b0: int
    b1: int


def spans(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Span]:
    """The spans that cover both sequences, in order; "equal" and "changed" ones take turns."""
    numbers: dict[Hashable, int] = {}  # small integers are compared faster than long lines
    matched = _Matching(
        [numbers.setdefault(x, len(numbers)) for x in a], [numbers.setdefault(x, len(numbers)) for x in b]
    )
    found: list[Span] = []
    i = j = 0
    for start_a, start_b, count in matched.runs():
        if start_a > i or start_b > j:
            found.append(Span("changed", i, start_a, j, start_b))
        i, j = start_a + count, start_b + count
        if count:
            found.append(Span("equal", start_a, i, start_b, j))
    return found


def unified(a: Sequence[str], b: Sequence[str], context: int = 3) -> Iterator[str]:
    """The hunks of a unified diff, without the two lines that name the files. Lines have no newline."""
    hunk: list[Span] = []
    for span in spans(a, b):
        if span.kind == "changed":
            hunk.append(span)
            continue
        if hunk and span.a1 - span.a0 > 2 * context:
            yield from _hunk(a, b, [*hunk, _cut(span, 0, context)])
            hunk = []
        hunk.append(span if hunk else _cut(span, max(0, span.a1 - span.a0 - context), context))
    if any(span.kind == "changed" for span in hunk):
        last = hunk[-1]
        yield from _hunk(a, b, [*hunk[:-1], _cut(last, 0, context)] if last.kind == "equal" else hunk)


def _cut(span: Span, skip: int, length: int) -> Span:
    a0, b0 = span.a0 + skip, span.b0 + skip
    length = min(length, span.a1 - a0)
    return Span("equal", a0, a0 + length, b0, b0 + length)


def _hunk(a: Sequence[str], b: Sequence[str], hunk: list[Span]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    yield f"@@ -{_lines(first.a0, last.a1)} +{_lines(first.b0, last.b1)} @@"
    for span in hunk:
        if span.kind == "equal":
            yield from (f" {line}" for line in a[span.a0 : span.a1])
        else:
            yield from (f"-{line}" for line in a[span.a0 : span.a1])
            yield from (f"+{line}" for line in b[span.b0 : span.b1])


def _lines(start: int, stop: int) -> str:
    """A range of lines as a unified diff writes it: from 1, an empty one by the line before it."""
    count = stop - start
    return str(start + 1) if count == 1 else f"{start + 1 if count else start},{count}"


class _Matching:
    """Pairs of equal items of two sequences of numbers, in the same order in both."""

    def __init__(self, a: list[int], b: list[int]) -> None:
        self._a, self._b = a, b
        self._budget = _EFFORT * (len(a) + len(b))
        self._runs: list[tuple[int, int, int]] = []
        gaps = [(0, len(a), 0, len(b))]
        while gaps:
            gaps += self._fill(*gaps.pop())

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """(first item of a, first item of b, number of items) of each run of pairs; last an empty run at both ends."""
        at_a = at_b = length = 0
        for i, j, count in sorted(self._runs):
            if (i, j) != (at_a + length, at_b + length):
                if length:
                    yield at_a, at_b, length
                at_a, at_b, length = i, j, 0
            length += count
        if length:
            yield at_a, at_b, length
        yield len(self._a), len(self._b), 0

    def _fill(self, a0: int, a1: int, b0: int, b1: int) -> list[tuple[int, int, int, int]]:
        """Match what a gap begins and ends with, then anchors between; returns the smaller gaps that are left."""
        a, b = self._a, self._b
        front = 0
        while a0 + front < a1 and b0 + front < b1 and a[a0 + front] == b[b0 + front]:
            front += 1
        back = 0
        while a0 + front < a1 - back and b0 + front < b1 - back and a[a1 - back - 1] == b[b1 - back - 1]:
            back += 1
        self._runs += [run for run in ((a0, b0, front), (a1 - back, b1 - back, back)) if run[2]]
        a0, b0, a1, b1 = a0 + front, b0 + front, a1 - back, b1 - back
        if a0 == a1 or b0 == b1 or self._budget <= 0:
            return []
        self._budget -= a1 - a0 + b1 - b0
        anchors = _in_order(self._unique(a0, a1, b0, b1))
        if not anchors:
            return self._shortest_edit(a0, a1, b0, b1)
        self._runs += [(i, j, 1) for i, j in anchors]
        edges = [(a0 - 1, b0 - 1), *anchors, (a1, b1)]
        return [(i + 1, k, j + 1, m) for (i, j), (k, m) in itertools.pairwise(edges) if k > i + 1 and m > j + 1]

    def _unique(self, a0: int, a1: int, b0: int, b1: int) -> list[tuple[int, int]]:
        """The pairs of items that occur once on each side of a gap, in the order of a."""
        count_a, count_b = Counter(self._a[a0:a1]), Counter(self._b[b0:b1])
        where = {x: j for j, x in enumerate(self._b[b0:b1], b0) if count_b[x] == 1}
        return [(i, where[x]) for i, x in enumerate(self._a[a0:a1], a0) if count_a[x] == 1 and x in where]

    def _shortest_edit(self, a0: int, a1: int, b0: int, b1: int) -> list[tuple[int, int, int, int]]:
        """Match the pairs that the shortest edit of a gap keeps. If that takes too many edits, match those that lead
        farthest, and return the gap that is left."""
        common = set(self._a[a0:a1]).intersection(self._b[b0:b1])
        at_a = [i for i in range(a0, a1) if self._a[i] in common]  # the other items are edits in any case
        at_b = [j for j in range(b0, b1) if self._b[j] in common]
        a, b = [self._a[i] for i in at_a], [self._b[j] for j in at_b]
        reach = {1: 0}  # diagonal -> how far into `a` the edits so far lead; see Myers, 1986
        earlier: list[dict[int, int]] = []
        farthest = (0, 0, 0)  # items passed on both sides, the diagonal, items of `a` passed
        for edits in range(min(len(a) + len(b), _MOST_EDITS) + 1):
            earlier.append(dict(reach))
            for diagonal in range(-edits, edits + 1, 2):
                down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
                x = start = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
                while x < len(a) and x - diagonal < len(b) and a[x] == b[x - diagonal]:
                    x += 1
                reach[diagonal] = x
                self._budget -= x - start + 1
                if x <= len(a) and x - diagonal <= len(b):
                    farthest = max(farthest, (2 * x - diagonal, diagonal, x))
            if farthest[0] == len(a) + len(b) or self._budget <= 0:
                break
        _, diagonal, x = farthest
        self._runs += [(at_a[i], at_b[j], 1) for i, j in _retrace(earlier, diagonal, x)]
        y = x - diagonal
        return [(at_a[x], a1, at_b[y], b1)] if x < len(a) and y < len(b) else []


def _retrace(earlier: list[dict[int, int]], diagonal: int, x: int) -> Iterator[tuple[int, int]]:
    """The pairs on the way that led to (diagonal, x), last to first."""
    for edits in range(len(earlier) - 1, -1, -1):
        reach = earlier[edits]
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        start = 0 if not edits else reach[diagonal + 1] if down else reach[diagonal - 1] + 1
        while x > start:
            x -= 1
            yield x, x - diagonal
        diagonal += 1 if down else -1
        x = reach.get(diagonal, 0)


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of these pairs (ascending in their first number) that ascends in the second as well."""
    ends: list[int] = []  # ends[n]: the lowest second number in which n + 1 pairs can end
    last: list[int] = []  # the index of the pair that does
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        n = bisect_left(ends, j)
        before.append(last[n - 1] if n else -1)
        ends[n : n + 1] = [j]
        last[n : n + 1] = [index]
    chosen: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]
