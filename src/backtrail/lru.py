"""A bounded LRU cache, on which every other cache is built.

It is bounded by the number of entries and, if entries differ in size, by their total cost, in any unit of the caller's.
It has no lock: a cache shared by several threads needs its own, because its operations often take more than one call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """Entries by key, least recently used first. The newest entry always stays, however large it is."""

    __slots__ = ("_entries", "_max_cost", "_max_entries", "_on_evict", "cost")

    def __init__(
        self, max_entries: int, max_cost: int | None = None, on_evict: Callable[[V], object] | None = None
    ) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._max_entries = max_entries
        self._max_cost = max_cost
        self._on_evict = on_evict
        self.cost = 0  #: of all entries together

    def get(self, key: K) -> V | None:
        """The value under `key`, which counts as used now."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def peek(self, key: K) -> V | None:
        """The value under `key`, without using it. Safe beside a thread that changes the cache."""
        found = self._entries.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, cost: int = 0) -> None:
        """Keep `value` under `key` as the newest entry, and evict what no longer fits."""
        self.pop(key)
        self._entries[key] = (value, cost)
        self.cost += cost
        self._shrink()

    def grow(self, key: K, cost: int) -> None:
        """Add to the cost of an entry that was changed in place; it counts as used now."""
        value, before = self._entries[key]
        self._entries[key] = (value, before + cost)
        self._entries.move_to_end(key)
        self.cost += cost
        self._shrink()

    def pop(self, key: K) -> V | None:
        """Remove the entry and return its value. This is not an eviction, so `on_evict` is not called."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self.cost -= found[1]
        return found[0]

    def clear(self) -> None:
        """Evict everything."""
        while self._entries:
            self._evict()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _shrink(self) -> None:
        entries, limit = self._entries, self._max_cost
        while len(entries) > self._max_entries or (limit is not None and self.cost > limit and len(entries) > 1):
            self._evict()

    def _evict(self) -> None:
        value, cost = self._entries.popitem(last=False)[1]
        self.cost -= cost
        if self._on_evict is not None:
            self._on_evict(value)
