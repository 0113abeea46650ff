"""Prefetching: items come in order, only so many wait, and the thread ends when the reader leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from backtrail.workspace.prefetch import Prefetch


class Source:
    """Yields items whose size is their value; records how much was made, and by which threads."""

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


def size(item: int) -> int:
    return item


def test_items_come_in_order_and_are_made_in_another_thread() -> None:
    source = Source(list(range(1000)))
    with Prefetch(source.run(), size, 50) as prefetched:
        assert list(prefetched) == list(range(1000))
        assert next(prefetched, None) is None
    assert source.makers.isdisjoint({threading.get_ident()})
    assert source.closed


def test_waiting_items_stay_below_the_limit_and_a_larger_one_comes_alone() -> None:
    source = Source([10] * 100 + [1000] + [10] * 100)
    taken = 0
    with Prefetch(source.run(), size, 50) as prefetched:
        for item in prefetched:
            taken += item
            # The waiting items, one that the thread has made but not handed over, and the one that is taken here.
            assert source.made - taken <= 50 + max(10, 1000 if source.made > 1000 and taken < 2000 else 0)
    assert taken == sum(source.items)


def test_an_error_is_raised_after_all_that_came_before_it() -> None:
    source = Source([1, 2, 3], OSError("disk"))
    with Prefetch(source.run(), size, 100) as prefetched:
        assert [next(prefetched) for _ in range(3)] == [1, 2, 3]
        for _ in range(2):
            with pytest.raises(OSError, match="disk"):
                next(prefetched)


@pytest.mark.parametrize("max_size", [0, 5, 10**9])
def test_a_reader_that_leaves_ends_the_work(max_size: int) -> None:
    source = Source([1] * 100_000)
    with Prefetch(source.run(), size, max_size) as prefetched:
        assert next(prefetched) == 1
    assert source.closed
    assert not [thread for thread in threading.enumerate() if thread.name == "backtrail-prefetch"]
