"""The comparison of two sequences: always right, short where that can be had, and never quadratic."""

from __future__ import annotations

import difflib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from backtrail.sequence_diff import Span, spans, unified

FEW = st.lists(st.integers(0, 3), max_size=40)
MANY = st.lists(st.integers(0, 30), max_size=60)


@given(st.one_of(st.tuples(FEW, FEW), st.tuples(MANY, MANY)))
def test_spans_cover_both_sides_in_order_and_equal_ones_are_equal(sides: tuple[list[int], list[int]]) -> None:
    a, b = sides
    found = spans(a, b)
    assert [x for s in found for x in a[s.a0 : s.a1]] == a
    assert [x for s in found for x in b[s.b0 : s.b1]] == b
    for span in found:
        assert span.a1 > span.a0 or span.b1 > span.b0
        if span.kind == "equal":
            assert a[span.a0 : span.a1] == b[span.b0 : span.b1]
    assert all(one.kind != other.kind for one, other in itertools.pairwise(found))


@given(FEW, FEW)
def test_without_unique_items_the_edit_is_the_shortest_one(a: list[int], b: list[int]) -> None:
    doubled_a, doubled_b = [x for x in a for _ in (0, 1)], [x for x in b for _ in (0, 1)]
    kept = sum(s.a1 - s.a0 for s in spans(doubled_a, doubled_b) if s.kind == "equal")
    assert kept == _longest_common(doubled_a, doubled_b)


def _longest_common(a: list[int], b: list[int]) -> int:
    lengths = [0] * (len(b) + 1)
    for x in a:
        before = lengths[:]
        for j, y in enumerate(b):
            lengths[j + 1] = before[j] + 1 if x == y else max(lengths[j], before[j + 1])
    return lengths[-1]


def test_a_moved_inserted_and_removed_item_is_found_among_thousands() -> None:
    a = [f"item {i}" for i in range(5000)]
    b = [*a[:100], "new", *a[100:2000], *a[2001:]]
    assert spans(a, b) == [
        Span("equal", 0, 100, 0, 100),
        Span("changed", 100, 100, 100, 101),
        Span("equal", 100, 2000, 101, 2001),
        Span("changed", 2000, 2001, 2001, 2001),
        Span("equal", 2001, 5000, 2001, 5000),
    ]


@given(st.lists(st.sampled_from(["a", "b", "c", "", "x y"]), max_size=30), st.integers(0, 4), st.data())
def test_a_unified_diff_turns_the_old_lines_into_the_new_ones(
    old: list[str], context: int, data: st.DataObject
) -> None:
    new = data.draw(st.lists(st.sampled_from([*old, "new"]), max_size=30))
    lines = list(unified(old, new, context))
    assert bool(lines) == (old != new)
    if lines:
        assert _apply(old, lines) == new


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(0, 3), st.data())
def test_its_hunks_are_those_of_difflib_where_there_is_one_way_to_see_it(
    old: list[str], context: int, data: st.DataObject
) -> None:
    lines = [f"{i}{x}" for i, x in enumerate(old)]
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    new = [line if keep else line.upper() for line, keep in zip(lines, kept, strict=True)]
    assert list(unified(lines, new, context)) == list(difflib.unified_diff(lines, new, lineterm="", n=context))[2:]


def _apply(old: list[str], lines: list[str]) -> list[str]:
    """What a reader of unified diffs makes of `old`."""
    result: list[str] = []
    at = 0
    for line in lines:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            result += old[at:first]
            at = first
        elif line[0] in " -":
            assert old[at] == line[1:]
            at += 1
        if line[0] in " +":
            result.append(line[1:])
    return result + old[at:]
