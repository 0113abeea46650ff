"""The bounded LRU cache on which all other caches are built."""

from __future__ import annotations

from backtrail.lru import LRU


def test_the_least_recently_used_entry_goes_first() -> None:
    cache: LRU[str, int] = LRU(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1  # used: now b is the oldest
    cache.put("c", 3)
    assert "b" not in cache
    assert (cache.get("a"), cache.get("c"), len(cache)) == (1, 3, 2)


def test_a_peek_does_not_count_as_use() -> None:
    cache: LRU[str, int] = LRU(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.peek("a") == 1
    cache.put("c", 3)
    assert cache.peek("a") is None


def test_entries_are_evicted_until_the_cost_fits_but_never_the_newest() -> None:
    gone: list[str] = []
    cache: LRU[str, str] = LRU(10, max_cost=100, on_evict=gone.append)
    cache.put("a", "A", 60)
    cache.put("b", "B", 60)
    assert (gone, cache.cost) == (["A"], 60)
    cache.put("c", "C", 500)
    assert (gone, cache.cost, len(cache)) == (["A", "B"], 500, 1)


def test_an_entry_that_grows_in_place_evicts_others() -> None:
    cache: LRU[str, list[int]] = LRU(10, max_cost=10)
    cache.put("a", [1], 4)
    cache.put("b", [1], 4)
    cache.grow("a", 4)
    assert "b" not in cache
    assert cache.cost == 8


def test_replacing_or_taking_out_an_entry_gives_its_cost_back_without_evicting_it() -> None:
    gone: list[int] = []
    cache: LRU[str, int] = LRU(10, max_cost=100, on_evict=gone.append)
    cache.put("a", 1, 50)
    cache.put("a", 2, 30)
    assert (cache.cost, cache.pop("a"), cache.cost, cache.pop("a"), gone) == (30, 2, 0, None, [])


def test_clearing_evicts_everything() -> None:
    gone: list[int] = []
    cache: LRU[str, int] = LRU(10, on_evict=gone.append)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.clear()
    assert (gone, len(cache), cache.cost) == ([1, 2], 0, 0)
