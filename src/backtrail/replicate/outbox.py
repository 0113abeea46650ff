"""The outbox: commits for the follower, in the order they were made, and lineages that have to be compared.

Consecutive commits of one lineage are shipped as one, so replicating a busy thread costs a fraction of its saves.

The queue is bounded. When it is full, its commits are dropped and their lineages marked instead: the active side has
everything, so a comparison can always find what is missing.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import NamedTuple

from backtrail.engines.base import Commit, Mark, Position, Swap

_ROWS = 256  # in one shipment
_BYTES = 1024 * 1024


class QueuedCommit(NamedTuple):
    """A commit that waits to be shipped."""

    commit: Commit
    size: int
    since: float


class Shipment(NamedTuple):
    """Consecutive commits of one lineage, merged into one."""

    commit: Commit
    saves: int


class Outbox:
    """The queue of commits and the set of marked lineages. Safe to use from several threads; no method waits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._queues: OrderedDict[str, deque[QueuedCommit]] = OrderedDict()  # by lineage, the longest waiting first
        self._queued = 0
        self._bytes = 0
        self._under_way = 0  # taken from the queue, not yet arrived
        self._carried: str | None = None  # the lineage of those
        self._behind: dict[str, float] = {}  # lineage -> since when
        self._comparing: dict[str, float] = {}  # lineages that are being compared now

    def add(self, commit: Commit) -> bool:
        """Queue a commit; False if the queue is full (then its lineages have been marked)."""
        size = sum([len(row.payload) + len(row.root) + len(row.meta) for row in commit.rows])
        with self._lock:
            if commit.lineage in self._behind:
                return True
            queue = self._queues.get(commit.lineage)
            if queue is None:
                queue = self._queues[commit.lineage] = deque()
            queue.append(QueuedCommit(commit, size, time.monotonic()))
            self._queued += 1
            self._bytes += size
            if self._queued <= self._most:
                return True
            self._overflow()
            return False

    def _overflow(self) -> None:
        for lineage, queue in self._queues.items():
            self._behind.setdefault(lineage, queue[0].since)
        self._queues.clear()
        self._queued = self._bytes = 0

    def next(self) -> Shipment | None:
        """The commit that has waited longest and is not marked. It counts as pending until `arrived` is called."""
        with self._lock:
            while self._queues:
                lineage, queue = next(iter(self._queues.items()))
                if lineage in self._behind:
                    parcels = list(queue)
                    queue.clear()
                else:
                    parcels = _together(queue)
                if not queue:
                    del self._queues[lineage]
                self._queued -= len(parcels)
                self._bytes -= sum([parcel.size for parcel in parcels])
                if lineage not in self._behind:
                    self._under_way += len(parcels)
                    self._carried = lineage
                    return Shipment(_merged([parcel.commit for parcel in parcels]), len(parcels))
            return None

    def arrived(self, shipment: Shipment) -> None:
        """Remove a shipment: it is on the other side, or its lineage is marked."""
        with self._lock:
            self._under_way -= shipment.saves
            self._carried = None

    def expects(self, lineage: str) -> bool:
        """True if a commit of a lineage is on its way, which explains why the sides differ."""
        with self._lock:
            return lineage in self._queues or lineage == self._carried

    def mark(self, *lineages: str) -> None:
        """Mark these lineages for comparison."""
        with self._lock:
            for lineage in lineages:
                self._behind.setdefault(lineage, time.monotonic())

    def mark_all(self) -> None:
        """Mark all queued lineages for comparison instead, because the follower is unreachable."""
        with self._lock:
            self._overflow()

    def take_behind(self) -> list[str]:
        """The marked lineages, to be compared now: a commit made from now on is queued again."""
        with self._lock:
            self._comparing, self._behind = self._behind, {}
            return list(self._comparing)

    def compared(self, lineage: str) -> None:
        """Unmark a taken lineage: it is equal now."""
        with self._lock:
            self._comparing.pop(lineage, None)

    def give_back(self) -> None:
        """Mark unfinished taken lineages again."""
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
        return self._queued + self._under_way

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def seconds(self) -> float:
        """How long the oldest one has been waiting."""
        with self._lock:
            first = [next(iter(self._queues.values()))[0].since] if self._queues else []
            since = [*self._behind.values(), *self._comparing.values(), *first]
        return time.monotonic() - min(since) if since else 0.0


def _together(queue: deque[QueuedCommit]) -> list[QueuedCommit]:
    """Take from a queue the commits that can be merged: each continues from the heads that the one before left."""
    first = queue.popleft()
    parcels, size, rows = [first], first.size, len(first.commit.rows)
    stands = {swap.thread: swap.new for swap in first.commit.swaps}
    while queue and None not in stands.values():
        commit, more, _ = queue[0]
        size, rows = size + more, rows + len(commit.rows)
        if size > _BYTES or rows > _ROWS:
            break
        moves = {swap.thread: swap.new for swap in commit.swaps}
        if None in moves.values():
            break  # a deletion is shipped alone
        before = [(swap.expect, stands[swap.thread]) for swap in commit.swaps if swap.thread in stands]
        if any(head is None or head.key != expect for expect, head in before):
            break
        stands |= moves
        parcels.append(queue.popleft())
    return parcels


def _merged(commits: list[Commit]) -> Commit:
    """Consecutive commits, merged into one."""
    if len(commits) == 1:
        return commits[0]
    swaps: dict[str, Swap] = {}
    marks: dict[Position, Mark] = {}
    blobs: dict[bytes, bytes] = {}
    for commit in commits:
        for swap in commit.swaps:
            known = swaps.get(swap.thread)
            swaps[swap.thread] = swap if known is None else known._replace(new=swap.new)
        marks |= {(mark.branch, mark.step): mark for mark in commit.marks}
        blobs |= commit.blobs
    return Commit(
        commits[0].lineage,
        list(swaps.values()),
        [row for commit in commits for row in commit.rows],
        [branch for commit in commits for branch in commit.branches],
        list(marks.values()),
        blobs,
    )
