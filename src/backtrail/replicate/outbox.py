"""The outbox: the lineages of which the follower lacks something, in the order in which they came to lack it.

It holds no commits. The active side has everything, so what is missing can always be read there: the newest saves, or,
if more may have happened, what a merge finds.
"""

from __future__ import annotations

import threading
import time

import msgspec

from backtrail.engines.base import Commit


class Lacking(msgspec.Struct, eq=False):
    """What the follower lacks of one lineage."""

    lineage: str
    since: float
    saves: int = 0  #: commits to be shipped
    size: int = 0  #: of them, in bytes
    blobs: set[bytes] = set()  #: written by them
    behind: bool = False  #: the lineage has to be merged: more may be missing than these commits

    def add(self, other: Lacking) -> None:
        self.since = min(self.since, other.since)
        self.saves += other.saves
        self.size += other.size
        self.blobs |= other.blobs
        self.behind |= other.behind


class Outbox:
    """The lineages that wait for the follower. Safe to use from several threads; no method waits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, Lacking] = {}
        self._under_way: list[Lacking] = []
        self._saves = 0  # in both

    def add(self, commit: Commit) -> bool:
        """Add a commit; False if that made too many, and their lineages are merged instead."""
        self._put(Lacking(commit.lineage, time.monotonic(), 1, commit.size, set(commit.blobs)))
        if self.records <= self._most:
            return True
        self.mark_all()
        return False

    def mark(self, *lineages: str) -> None:
        """Have these lineages merged."""
        for lineage in lineages:
            self._put(Lacking(lineage, time.monotonic(), behind=True))

    def mark_all(self) -> None:
        """Have all waiting lineages merged, whatever they wait for."""
        with self._lock:
            for lineage, lacking in self._waiting.items():
                self._saves -= lacking.saves
                self._waiting[lineage] = Lacking(lineage, lacking.since, behind=True)

    def _put(self, lacking: Lacking) -> None:
        with self._lock:
            self._saves += lacking.saves
            known = self._waiting.setdefault(lacking.lineage, lacking)
            if known is not lacking:
                known.add(lacking)

    def lineages(self) -> list[str]:
        """The waiting lineages, the longest waiting first."""
        with self._lock:
            return list(self._waiting)

    def take(self, lineage: str) -> Lacking | None:
        """What a lineage waits for: it counts as pending until `arrived` or `give_back` is called, and what is added
        from now on waits for the next time. None if it does not wait."""
        with self._lock:
            lacking = self._waiting.pop(lineage, None)
            if lacking is not None:
                self._under_way.append(lacking)
            return lacking

    def arrived(self, lacking: Lacking | None) -> None:
        """The follower has everything that was taken."""
        with self._lock:
            self._under_way = [one for one in self._under_way if one is not lacking]
            self._saves -= 0 if lacking is None else lacking.saves

    def give_back(self, lineage: str, lacking: Lacking | None) -> None:
        """What was taken could not be brought to the follower: the lineage is merged later."""
        self.arrived(lacking)
        self.mark(lineage)

    def is_waiting(self, lineage: str) -> bool:
        """True if the follower lacks something of a lineage."""
        return lineage in self._waiting or any(one.lineage == lineage for one in self._under_way)

    def _all(self) -> list[Lacking]:
        with self._lock:
            return [*self._waiting.values(), *self._under_way]

    @property
    def records(self) -> int:
        """Commits to be shipped."""
        return self._saves

    @property
    def bytes(self) -> int:
        return sum(lacking.size for lacking in self._all())

    @property
    def behind(self) -> int:
        """Lineages to be merged. One that is under way may wait again."""
        return len({lacking.lineage for lacking in self._all() if lacking.behind})

    @property
    def seconds(self) -> float:
        """For how long the follower has lacked something."""
        since = min((lacking.since for lacking in self._all()), default=None)
        return 0.0 if since is None else time.monotonic() - since
