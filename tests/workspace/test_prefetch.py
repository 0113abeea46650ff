"""Work done ahead: in order, never too far ahead, and over when its reader leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from backtrail.workspace.prefetch import Prefetch


class Source:
    """Items that weigh what they are, made by whoever iterates; says how much was made and who made it."""

    def __init__(self, items: list[int], error: Exception | None = None) -> None:
        self.items, self.error = items, error
        self.made = 0
        self.closed = False
        self.makers: set[int] = set()

    def run(self) -> Iterator[int]:
        try:
            for item in self.items:
                self.makers.add(threading.get_ident())
                self.made += item
                yield item
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


def weight(item: int) -> int:
    return item


def test_items_come_in_order_and_are_made_in_another_thread() -> None:
    source = Source(list(range(1000)))
    with Prefetch(source.run(), weight, 50) as ahead:
        assert list(ahead) == list(range(1000))
        assert next(ahead, None) is None
    assert source.makers.isdisjoint({threading.get_ident()})
    assert source.closed


def test_no_more_waits_than_may_weigh_and_one_that_weighs_more_comes_alone() -> None:
    source = Source([10] * 100 + [1000] + [10] * 100)
    taken = 0
    with Prefetch(source.run(), weight, 50) as ahead:
        for item in ahead:
            taken += item
            # What waits, one that is in the hand of the thread, and the one that is held here.
            assert source.made - taken <= 50 + max(10, 1000 if source.made > 1000 and taken < 2000 else 0)
    assert taken == sum(source.items)


def test_an_error_is_raised_after_all_that_came_before_it() -> None:
    source = Source([1, 2, 3], OSError("disk"))
    with Prefetch(source.run(), weight, 100) as ahead:
        assert [next(ahead) for _ in range(3)] == [1, 2, 3]
        for _ in range(2):
            with pytest.raises(OSError, match="disk"):
                next(ahead)


@pytest.mark.parametrize("most", [0, 5, 10**9])
def test_a_reader_that_leaves_ends_the_work(most: int) -> None:
    source = Source([1] * 100_000)
    with Prefetch(source.run(), weight, most) as ahead:
        assert next(ahead) == 1
    assert source.closed
    assert not [thread for thread in threading.enumerate() if thread.name == "backtrail-ahead"]
