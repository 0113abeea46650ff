"""Batches: items in order, in groups of limited size and number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backtrail.workspace.batches import batches


def test_an_item_over_the_limit_comes_alone() -> None:
    assert list(batches([1, 2, 9, 1, 1], int, 3)) == [[1, 2], [9], [1, 1]]


def test_items_without_size_are_limited_by_their_number() -> None:
    assert list(batches([0] * 5, int, 10, max_items=2)) == [[0, 0], [0, 0], [0]]


@given(st.lists(st.integers(0, 12)), st.integers(1, 10), st.integers(1, 4))
def test_batches_hold_all_items_in_order_and_stay_within_both_limits(items: list[int], most: int, count: int) -> None:
    found = list(batches(items, int, most, count))
    assert [item for batch in found for item in batch] == items
    assert all(len(batch) == 1 or sum(batch) <= most for batch in found)
    assert all(0 < len(batch) <= count for batch in found)
