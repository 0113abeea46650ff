"""What the follower still lacks: commits in the order they were made, and lineages of which only a comparison can tell.

The queue is bounded. When it is full, its commits are let go and their lineages remembered instead: the active side has
everything, so what is missing can always be found by comparing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

from clew.engines.base import Commit


class Parcel(NamedTuple):
    """A commit on its way."""

    commit: Commit
    size: int
    since: float


class Pending:
    """Safe to use from several threads; nothing in it waits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._parcels: deque[Parcel] = deque()
        self._bytes = 0
        self._under_way = 0  # taken from the queue, and not yet arrived
        self._behind: dict[str, float] = {}  # lineage -> since when
        self._comparing: dict[str, float] = {}  # those that are being compared now

    def add(self, commit: Commit) -> bool:
        """Queue a commit; False if the queue is full (then its lineages have been marked)."""
        size = sum(len(row.payload) + len(row.root) + len(row.meta) for row in commit.rows)
        with self._lock:
            if commit.lineage in self._behind:
                return True
            self._parcels.append(Parcel(commit, size, time.monotonic()))
            self._bytes += size
            if len(self._parcels) <= self._most:
                return True
            self._overflow()
            return False

    def _overflow(self) -> None:
        for parcel in self._parcels:
            self._behind.setdefault(parcel.commit.lineage, parcel.since)
        self._parcels.clear()
        self._bytes = 0

    def next(self) -> Commit | None:
        """The oldest commit whose lineage is not marked. It counts as pending until `arrived` is called."""
        with self._lock:
            while self._parcels:
                parcel = self._parcels.popleft()
                self._bytes -= parcel.size
                if parcel.commit.lineage not in self._behind:
                    self._under_way += 1
                    return parcel.commit
            return None

    def arrived(self) -> None:
        """A commit that was taken is on the other side, or its lineage marked."""
        with self._lock:
            self._under_way -= 1

    def mark(self, *lineages: str) -> None:
        """These lineages have to be compared."""
        with self._lock:
            for lineage in lineages:
                self._behind.setdefault(lineage, time.monotonic())

    def mark_all(self) -> None:
        """The follower is away: what was queued will have to be compared."""
        with self._lock:
            self._overflow()

    def take_behind(self) -> list[str]:
        """The marked lineages, to be compared now: a commit made from now on is queued again."""
        with self._lock:
            self._comparing, self._behind = self._behind, {}
            return list(self._comparing)

    def compared(self, lineage: str) -> None:
        """One of those taken is equal now."""
        with self._lock:
            self._comparing.pop(lineage, None)

    def give_back(self) -> None:
        """Those taken that were not finished have to be compared again."""
        with self._lock:
            self._behind = {**self._behind, **self._comparing}
            self._comparing = {}

    def is_behind(self, lineage: str) -> bool:
        return lineage in self._behind or lineage in self._comparing

    @property
    def behind(self) -> int:
        with self._lock:
            return len(self._behind.keys() | self._comparing.keys())

    @property
    def records(self) -> int:
        return len(self._parcels) + self._under_way

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def seconds(self) -> float:
        """How long the oldest one has been waiting."""
        with self._lock:
            first = [self._parcels[0].since] if self._parcels else []
            since = [*self._behind.values(), *self._comparing.values(), *first]
        return time.monotonic() - min(since) if since else 0.0
