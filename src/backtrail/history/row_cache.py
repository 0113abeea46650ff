"""The rows that loads of a process read last, opened, so that the next load of a thread reads only those added since.

A row never changes, so a cached one stays valid. Whether a checkpoint exists, and which rows its state is made of, is
not cached: that comes from the root, which is read from the engine every time. A check of the store reads everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from backtrail.engines.process_fork import ForkSafe
from backtrail.lru import LRU

MAX_BRANCHES = 1024
MAX_BYTES = 32 * 1024 * 1024  # of all cached payloads together
MAX_BRANCH_BYTES = 16 * 1024 * 1024  # of one branch: a longer one would leave no room for others


class _Run:
    """The payloads, in bare frames, of the rows from step `first` on without a gap."""

    __slots__ = ("first", "frames", "size")

    def __init__(self, first: int, frames: list[bytes], size: int) -> None:
        self.first = first
        self.frames = frames
        self.size = size


class RowCache(ForkSafe):
    """One run of rows for each of the branches read last. Safe to share between threads."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: LRU[bytes, _Run] = LRU(MAX_BRANCHES, MAX_BYTES)

    @property
    def size(self) -> int:
        """Bytes of all cached payloads."""
        return self._runs.cost

    def __len__(self) -> int:
        return len(self._runs)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._runs.clear()

    def find(self, branch: bytes, first: int, last: int) -> Sequence[bytes]:
        """The payloads of the rows from `first` on, up to `last` or to the first one that is not cached."""
        with self._lock:
            run = self._runs.get(branch)
            if run is None or first < run.first:
                return ()
            return run.frames[first - run.first : last + 1 - run.first]

    def add(self, branch: bytes, first: int, frames: Sequence[bytes]) -> None:
        """Cache the payloads of the rows from `first` on. They continue the run that is cached, or replace it."""
        size = sum(map(len, frames))
        with self._lock:
            run = self._runs.peek(branch)
            if run is not None and first == run.first + len(run.frames):
                if run.size + size <= MAX_BRANCH_BYTES:
                    run.frames.extend(frames)
                    run.size += size
                    self._runs.grow(branch, size)
            elif size <= MAX_BRANCH_BYTES:
                self._runs.put(branch, _Run(first, list(frames), size), size)
