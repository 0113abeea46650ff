"""The histories that the inspector shows, kept from one request to the next.

A browser that watches a thread asks for its history after each change. Most changes are saves that follow the head:
then only the new checkpoints are read. After any other change the whole history is read again. A thread's version says
which it was, because it grows by one with every change: so many new versions, new steps and new checkpoints as each
other are saves that follow each other.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from backtrail import Checkpoint, Store, ThreadInfo
from backtrail.lru import LRU
from backtrail.render.graph import Graph
from backtrail.server.responses import ChartPointJson

_MAX_HISTORIES = 16
_MAX_CHECKPOINTS = 100_000  # of all histories together; the one that was read last is kept whatever its length
_MAX_POINTS = 400  # of a chart
_AHEAD = 64  # checkpoints that may be saved between two reads


class SizeChart:
    """The bytes that each step wrote, and the size of the state after it, in at most a few hundred points. Each stands
    for some steps, and has the one of them that wrote most and the longest time since the step before."""

    def __init__(self, checkpoints: Iterable[Checkpoint]) -> None:
        self.steps = 0
        self.written = 0
        self.size = 0  #: of the newest state
        self._per_point = 1
        self._points: list[tuple[Checkpoint, float]] = []  # with the longest time since the step before
        self._before: Checkpoint | None = None
        self.extend(checkpoints)

    def extend(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Add steps, oldest first."""
        for checkpoint in checkpoints:
            since = (checkpoint.created_at - self._before.created_at).total_seconds() if self._before else 0.0
            self._before = checkpoint
            point = (checkpoint, max(0.0, since))
            if self.steps % self._per_point == 0:
                self._points.append(point)
            else:
                self._points[-1] = _merged(self._points[-1], point)
            self.steps += 1
            self.written += checkpoint.written
            self.size = checkpoint.size
            if len(self._points) > _MAX_POINTS:
                pairs = (self._points[i : i + 2] for i in range(0, len(self._points), 2))
                self._points = [_merged(pair[0], pair[-1]) for pair in pairs]
                self._per_point *= 2

    def points(self) -> list[ChartPointJson]:
        """The points, oldest first."""
        return [
            {"step": one.step, "written": one.written, "size": one.size, "seconds": seconds}
            for one, seconds in self._points
        ]


def _merged(a: tuple[Checkpoint, float], b: tuple[Checkpoint, float]) -> tuple[Checkpoint, float]:
    return (a[0] if a[0].written >= b[0].written else b[0]), max(a[1], b[1])


class History:
    """The history of a thread as it was at `info`. `layout` is another number whenever it was read anew: while it is
    the same, checkpoints were only added."""

    _layouts = itertools.count(secrets.randbits(40))  # a page that is still open may know those of an earlier server

    def __init__(self, info: ThreadInfo, checkpoints: Iterable[Checkpoint]) -> None:
        self.info = info
        self.layout = next(self._layouts)
        self.graph = Graph(checkpoints, info.head)
        self.chart = SizeChart(self.graph.trail())

    def added(self, info: ThreadInfo) -> int:
        """How many checkpoints were saved up to `info`, if nothing else happened; 0 if something did."""
        count = info.version - self.info.version
        steps, own = info.step - self.info.step, info.count - self.info.count
        return count if count == steps == own and not info.damage else 0

    def extend(self, info: ThreadInfo, checkpoints: list[Checkpoint]) -> None:
        """Add what was saved since."""
        self.info = info
        self.graph.extend(checkpoints)
        self.chart.extend(checkpoints)


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()  # requests run in several threads
        self.history: History | None = None


class HistoryCache:
    """Histories by thread, with what rewinds left behind (or without: `trail`). `thread_info` reads a thread's entry in
    the listing."""

    def __init__(self, store: Store, thread_info: Callable[[str], ThreadInfo]) -> None:
        self._store = store
        self._thread_info = thread_info
        self._lock = threading.Lock()  # around the entries
        self._entries: LRU[tuple[str, bool], _Entry] = LRU(_MAX_HISTORIES, _MAX_CHECKPOINTS)

    @contextmanager
    def read(self, thread: str, trail: bool = False) -> Iterator[History]:
        """The history of a thread as it is now. Nobody changes it inside the `with` block."""
        key = (thread, trail)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._entries.put(key, entry := _Entry())
        with entry.lock:
            info = self._thread_info(thread)
            if entry.history is None or (entry.history.info != info and not self._extend(entry.history, info)):
                entry.history = History(info, self._read_whole(info, trail))
            with self._lock:
                self._entries.put(key, entry, len(entry.history.graph))
            yield entry.history

    def _read_whole(self, info: ThreadInfo, trail: bool) -> list[Checkpoint]:
        """The whole history, without what this thread saved after `info` was read: that is added with the next one."""
        found = self._store.thread(info.id).history(all=not trail, salvage=True)
        return [c for c in found if c.thread_id != info.id or c.created_at <= info.updated_at]

    def _extend(self, history: History, info: ThreadInfo) -> bool:
        """Add the checkpoints since then, if that is all that changed."""
        count = history.added(info)
        if not count:
            return False
        page = self._store.thread(info.id).history(limit=count + 1 + _AHEAD, salvage=True)
        ids = [checkpoint.id for checkpoint in page]
        if history.info.head not in ids or info.head not in ids:
            return False
        newer = page[ids.index(history.info.head) + 1 : ids.index(info.head) + 1]
        if len(newer) != count:
            return False
        history.extend(info, newer)
        return True
