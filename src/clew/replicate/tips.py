"""What a process saw of each thread last: what a save can build on while nobody can be asked.

It may be old, and for a save that is no harm: it hangs where the thread was seen last, and if others went on from
there, both are kept. It is also how a process knows that a save was planned before another one of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from clew.engines.base import Commit, Head, Row

_MOST = 4096  # threads
_MOST_BYTES = 32 * 1024 * 1024


class Tips:
    """The heads that were seen last, each with the row it stands on. Those of another generation are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tips: OrderedDict[str, tuple[Head, Row | None]] = OrderedDict()
        self._bytes = 0
        self._generation = 0

    def get(self, thread: str) -> tuple[Head, Row | None] | None:
        return self._tips.get(thread)

    def put(self, thread: str, tip: tuple[Head, Row | None] | None, generation: int) -> None:
        """Remember a tip, unless a newer one is known already."""
        with self._lock:
            if generation != self._generation:
                self._tips.clear()
                self._bytes, self._generation = 0, generation
            old = self._tips.pop(thread, None)
            if old is not None and tip is not None and _newer(old[0], tip[0]):
                tip = old
                self._bytes -= _weight(old)
            elif old is not None:
                self._bytes -= _weight(old)
            if tip is not None:
                self._tips[thread] = tip
                self._bytes += _weight(tip)
            while len(self._tips) > _MOST or self._bytes > _MOST_BYTES:
                self._bytes -= _weight(self._tips.popitem(last=False)[1])

    def learn(self, commit: Commit, generation: int) -> None:
        """A commit was made: its threads stand elsewhere now."""
        for swap in commit.swaps:
            row = None
            for one in commit.rows:
                if swap.new is not None and (one.branch, one.step) == (swap.new.branch, swap.new.step):
                    row = Row(one.step, one.id, one.meta, one.digest, None, one.root, b"")
            self.put(swap.thread, None if swap.new is None else (swap.new, row), generation)


def _newer(one: Head, other: Head) -> bool:
    return one.owner == other.owner and one.version > other.version


def _weight(tip: tuple[Head, Row | None]) -> int:
    head, row = tip
    return 512 + len(head.note) + (len(row.root) + len(row.meta) if row is not None else 0)
