"""The last head of each thread that this process saw: saves build on it while no side is reachable.

It may be old, which does no harm: if others continued from it, both saves are kept.
"""

from __future__ import annotations

import threading

from backtrail.engines.base import Commit, Head, Position, Row
from backtrail.lru import LRU

Tip = tuple[Head, Row | None]
_MOST = 4096  # threads
_MOST_BYTES = 32 * 1024 * 1024


class HeadCache:
    """The heads that were seen last, each with its row."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tips: LRU[str, Tip] = LRU(_MOST, _MOST_BYTES)

    def get(self, thread: str) -> Tip | None:
        return self._tips.peek(thread)

    def put(self, thread: str, tip: Tip | None, *, sure: bool = False) -> None:
        """Store a tip, unless a newer one is known; `sure`: even then."""
        with self._lock:
            old = self._tips.pop(thread)
            if old is not None and tip is not None and not sure and old[0].owner == tip[0].owner:
                tip = max(tip, old, key=lambda one: one[0].version)
            if tip is not None:
                self._tips.put(thread, tip, _weight(tip))

    def learn(self, commit: Commit) -> list[str]:
        """Store the heads of a commit that was made; returns the threads that were moved to a row which is not known: a
        fork is usually at the row of the thread that it was made from, an annotated thread where it was."""
        known = [tip for swap in commit.swaps if (tip := self.get(swap.thread)) is not None and tip[1] is not None]
        rows: dict[Position, Row | None] = {head.position: row for head, row in known}
        for new in commit.rows:
            rows[new.branch, new.step] = Row(new.step, new.id, new.meta, new.digest, None, new.root, b"")
        unknown: list[str] = []
        for swap in commit.swaps:
            if swap.new is None:
                self.put(swap.thread, None, sure=True)
                continue
            row = rows.get(swap.new.position)
            self.put(swap.thread, (swap.new, row), sure=True)
            if row is None:
                unknown.append(swap.thread)
        return unknown


def _weight(tip: Tip) -> int:
    head, row = tip
    return 512 + len(head.note) + (len(row.root) + len(row.meta) if row is not None else 0)
