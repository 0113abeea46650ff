"""The last head of each thread that this process saw: saves build on it while no side is reachable.

It may be old, which does no harm: if others continued from it, both saves are kept. It also shows that a save was
planned before another save of this process.
"""

from __future__ import annotations

import threading

from backtrail.engines.base import Commit, Head, Row
from backtrail.lru import LRU

Tip = tuple[Head, Row | None]
_MOST = 4096  # threads
_MOST_BYTES = 32 * 1024 * 1024


class HeadCache:
    """The heads that were seen last, each with its row and the generation in which it was seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tips: LRU[str, tuple[Tip, int]] = LRU(_MOST, _MOST_BYTES)

    def get(self, thread: str) -> Tip | None:
        found = self._tips.peek(thread)
        return None if found is None else found[0]

    def put(self, thread: str, tip: Tip | None, generation: int, *, sure: bool = False) -> None:
        """Store a tip, unless a newer one is known; `sure`: even then."""
        with self._lock:
            old = self._tips.pop(thread)
            new = None if tip is None else (tip, generation)
            if old is not None and new is not None and not sure and _newer(old, new):
                new = old
            if new is not None:
                self._tips.put(thread, new, _weight(new[0]))

    def learn(self, commit: Commit, generation: int) -> None:
        """Store the heads of a commit that was made."""
        for swap in commit.swaps:
            row = None
            for one in commit.rows:
                if swap.new is not None and (one.branch, one.step) == swap.new.position:
                    row = Row(one.step, one.id, one.meta, one.digest, None, one.root, b"")
            self.put(swap.thread, None if swap.new is None else (swap.new, row), generation, sure=True)


def _newer(one: tuple[Tip, int], other: tuple[Tip, int]) -> bool:
    """True if `one` is newer. Versions count only within one generation: all heads of a later generation are newer."""
    (here, _), (there, _) = one[0], other[0]
    return here.owner == there.owner and (one[1], here.version) > (other[1], there.version)


def _weight(tip: Tip) -> int:
    head, row = tip
    return 512 + len(head.note) + (len(row.root) + len(row.meta) if row is not None else 0)
