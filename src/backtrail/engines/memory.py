"""`memory:`, an engine of dicts guarded by one lock.

The simplest implementation of the contract: a commit is checked completely before any of it is applied. Nothing
outlives the engine object; `store.copy_to(url)` copies its content to a durable store.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from backtrail.engines import conflicts
from backtrail.engines.base import (
    RELEASED,
    Branch,
    Commit,
    Drop,
    Engine,
    Head,
    Lease,
    NewRow,
    Properties,
    Row,
    Step,
    Taken,
)
from backtrail.engines.dict_engine import HeadIndex, check_rows

T = TypeVar("T")


class _Sizes:
    """The numbers of rows and blobs in the store, and the bytes of both."""

    def __init__(self) -> None:
        self.rows = self.blobs = self.bytes = 0


class _BranchRows:
    """The rows of one branch, and their marks. Keeps the store's sizes."""

    __slots__ = ("_sizes", "branch", "marks", "rows", "steps")

    def __init__(self, branch: Branch, sizes: _Sizes) -> None:
        self._sizes = sizes
        self.branch = branch
        self.steps: list[int] = []  # sorted, for ranges
        self.rows: dict[int, NewRow] = {}
        self.marks: dict[int, bytes] = {}

    def add(self, row: NewRow) -> None:
        self.rows[row.step] = row
        self._sizes.rows += 1
        self._sizes.bytes += _weight(row)
        insort(self.steps, row.step)

    def remove(self, step: int) -> None:
        self.say(step, None)
        at = bisect_left(self.steps, step)
        if at < len(self.steps) and self.steps[at] == step:
            del self.steps[at]
        row = self.rows.pop(step, None)
        if row is not None:
            self._sizes.rows -= 1
            self._sizes.bytes -= _weight(row)

    def remove_all(self) -> None:
        for step in [*self.rows, *self.marks]:
            self.remove(step)

    def say(self, step: int, mark: bytes | None) -> None:
        self._sizes.bytes += len(mark or b"") - len(self.marks.get(step, b""))
        if mark is not None:
            self.marks[step] = mark
        else:
            self.marks.pop(step, None)

    def empty(self, step: int) -> None:
        row = self.rows.get(step)
        if row is not None:
            self.rows[step] = light = row._replace(root=b"", payload=b"")
            self._sizes.bytes += _weight(light) - _weight(row)

    def weight(self) -> int:
        return sum(map(_weight, self.rows.values())) + sum(map(len, self.marks.values()))

    def between(self, first: int, last: int, newest: int | None = None, *, marked: bool = False) -> Iterator[NewRow]:
        steps = sorted(self.marks.keys() & self.rows.keys()) if marked else self.steps
        low, high = bisect_left(steps, first), bisect_right(steps, last)
        return map(self.rows.__getitem__, steps[low if newest is None else max(low, high - newest) : high])

    def whole(self, row: NewRow) -> Row:
        return Row(row.step, row.id, row.meta, row.digest, self.marks.get(row.step), row.root, row.payload)

    def light(self, step: int) -> Row | None:
        row = self.rows.get(step)
        return None if row is None else self.whole(row._replace(payload=b""))


def _weight(row: NewRow) -> int:
    return len(row.meta) + len(row.root) + len(row.payload) + 48  # its id, its digest and its position


class _Lineage:
    """Everything that is swept together."""

    __slots__ = ("blobs", "logs", "threads")

    def __init__(self) -> None:
        self.logs: dict[bytes, _BranchRows] = {}  # in the order they were written
        self.threads: set[str] = set()
        self.blobs: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self.logs or self.threads or self.blobs)


_NOTHING = _Lineage()


class MemoryEngine(Engine):
    """Keeps everything in this process, for tests and for stores that need not outlive it."""

    properties = Properties(name="memory", blocking=True, durable=False, shared=False)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = True
        self._index = HeadIndex()
        self._heads = self._index.heads
        self._lineages: dict[str, _Lineage] = {}
        self._lineage_names: list[str] | None = None  # sorted, if no lineage began or ended since the last listing
        self._branches: set[bytes] = set()
        self._sizes = _Sizes()
        self._leases: dict[str, Lease] = {}

    @contextmanager
    def _inside(self) -> Iterator[None]:
        with self._lock:
            if not self._open:
                raise conflicts.closed("memory")
            yield

    def _log(self, lineage: str, branch: bytes) -> _BranchRows | None:
        return self._lineages.get(lineage, _NOTHING).logs.get(branch)

    # -- writing ------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        with self._inside():
            self._check(commit)
            lineage = self._lineage(commit.lineage)
            heads = [(swap.thread, self._heads.get(swap.thread)) for swap in commit.swaps]
            marked = [(mark, lineage.logs[mark.branch]) for mark in commit.marks if mark.branch in lineage.logs]
            said = [(log, mark.step, log.marks.get(mark.step)) for mark, log in marked]
            try:
                self._apply(commit, lineage)
            except BaseException:  # an interrupt half-way: undo, because a commit is atomic
                for row in commit.rows:
                    if row.branch in lineage.logs:
                        lineage.logs[row.branch].remove(row.step)
                for branch in commit.branches:
                    lineage.logs.pop(branch.id, None)
                    self._branches.discard(branch.id)
                for log, step, mark in said:
                    log.say(step, mark)
                for thread, head in heads:
                    self._put(lineage, thread, head)
                self._recount()  # the interrupt may have come between a record and its count
                raise
            finally:
                if not lineage:
                    self._forget_lineage(commit.lineage)

    def _lineage(self, name: str) -> _Lineage:
        found = self._lineages.get(name)
        if found is None:
            found = self._lineages[name] = _Lineage()
            self._lineage_names = None
        return found

    def _forget_lineage(self, name: str) -> None:
        if self._lineages.pop(name, None) is not None:
            self._lineage_names = None

    def _recount(self) -> None:
        logs = [log for lineage in self._lineages.values() for log in lineage.logs.values()]
        blobs = [data for lineage in self._lineages.values() for data in lineage.blobs.values()]
        self._sizes.rows, self._sizes.blobs = sum(len(log.rows) for log in logs), len(blobs)
        self._sizes.bytes = sum(map(len, blobs)) + sum(log.weight() for log in logs)

    def _apply(self, commit: Commit, lineage: _Lineage) -> None:
        for branch in commit.branches:
            lineage.logs[branch.id] = _BranchRows(branch, self._sizes)
            self._branches.add(branch.id)
        for row in commit.rows:
            lineage.logs[row.branch].add(row)
        for mark in commit.marks:
            if mark.branch in lineage.logs:
                lineage.logs[mark.branch].say(mark.step, mark.data)
        for name, data in commit.blobs.items():
            if name not in lineage.blobs:
                lineage.blobs[name] = data
                self._sizes.blobs += 1
                self._sizes.bytes += len(data)
        for swap in commit.swaps:
            self._put(lineage, swap.thread, swap.new)

    def _put(self, lineage: _Lineage, thread: str, head: Head | None) -> None:
        self._index.put(thread, head)
        if head is None:
            lineage.threads.discard(thread)
        else:
            lineage.threads.add(thread)

    def _check(self, commit: Commit) -> None:
        """Find every reason to refuse before anything changes."""
        fence = commit.fence
        if fence is not None:
            lease = self._leases.get(fence.name)
            if lease is None or lease.token != fence.token:
                raise conflicts.fence_stale(fence)
        for swap in commit.swaps:
            head = self._heads.get(swap.thread)
            if (None if head is None else head.key) != swap.expect:
                raise conflicts.moved(swap.thread)
        logs = self._lineages.get(commit.lineage, _NOTHING).logs
        check_rows(commit, self._branches.__contains__, lambda branch: logs[branch].rows if branch in logs else None)

    async def drop(self, drop: Drop) -> None:
        with self._inside():
            lineage = self._lineages.get(drop.lineage, _NOTHING)
            if {(name, self._heads[name].key) for name in lineage.threads} != set(drop.expect):
                raise conflicts.swept_meanwhile(drop.lineage)
            for branch in drop.branches:
                log = lineage.logs.pop(branch, None)
                if log is not None:
                    log.remove_all()
                    self._branches.discard(branch)
            for branch, step in drop.rows:
                if branch in lineage.logs:
                    lineage.logs[branch].remove(step)
            for branch, step in drop.bodies:
                if branch in lineage.logs:
                    lineage.logs[branch].empty(step)
            for name in drop.blobs:
                data = lineage.blobs.pop(name, None)
                if data is not None:
                    self._sizes.blobs -= 1
                    self._sizes.bytes -= len(data)
            if not lineage:
                self._forget_lineage(drop.lineage)

    # -- reading ------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        with self._inside():
            return self._heads.get(thread)

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        with self._inside():
            head = self._heads.get(thread)
            if head is None:
                return None
            log = self._log(head.lineage, head.branch)
            return head, None if log is None else log.light(head.step)

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        with self._inside():
            names = (name for name in self._lineages.get(lineage, _NOTHING).threads if after is None or name > after)
            return [self._heads[name] for name in sorted(names)[slice(limit)]]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        with self._inside():
            return self._index.page(prefix=prefix, after=after, limit=limit, kind=kind, newest_first=newest_first)

    async def count(self, prefix: str = "") -> int:
        with self._inside():
            return self._index.count(prefix)

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        with self._inside():
            if self._lineage_names is None:
                self._lineage_names = sorted(self._lineages)
            first = 0 if after is None else bisect_right(self._lineage_names, after)
            return self._lineage_names[first : None if limit is None else first + limit]

    async def branches(self, lineage: str) -> list[Branch]:
        with self._inside():
            return [log.branch for log in self._lineages.get(lineage, _NOTHING).logs.values()]

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        with self._inside():
            log = self._log(lineage, branch)
            return None if log is None else log.light(step)

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        with self._inside():
            log = self._log(lineage, branch)
            if log is None:
                return []
            marks = log.marks
            rows = log.between(first, last, newest, marked=marked)
            return [Step(r.step, r.id, r.meta, r.digest, marks.get(r.step)) for r in rows]

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        with self._inside():
            log = self._log(lineage, branch)
            return [] if log is None else [(row.step, row.payload) for row in log.between(first, last)]

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        with self._inside():
            log = self._log(lineage, branch)
            return [] if log is None else [log.whole(row) for row in log.between(first, last)]

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        with self._inside():
            logs = self._lineages.get(lineage, _NOTHING).logs
            found = (
                (row.branch, row.step, row.id)
                for log in logs.values()
                for row in log.rows.values()
                if low <= row.id <= high
            )
            return _first(found, limit)

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._inside():
            held = self._lineages.get(pool, _NOTHING).blobs
            return {name: held[name] for name in ids if name in held}

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        with self._inside():
            held = self._lineages.get(pool, _NOTHING).blobs
            names = sorted(name for name in held if after is None or name > after)
            return [(name, len(held[name])) for name in names[slice(limit)]]

    # -- leases -------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        with self._inside():
            now = _now()
            held = self._leases.get(name)
            if held is not None and held.expires > now and held.owner != owner:
                return Taken(held.owner, held.expires)
            renews = held is not None and held.owner == owner and held.expires != RELEASED
            token = 1 if held is None else held.token if renews else held.token + 1
            lease = self._leases[name] = Lease(name, owner, token, now + round(ttl * 1_000_000))
            return lease

    async def release(self, name: str, owner: str) -> bool:
        with self._inside():
            held = self._leases.get(name)
            if held is None or held.owner != owner or held.expires <= _now():
                return False
            # The record stays, so that the next owner's token is higher.
            self._leases[name] = held._replace(expires=RELEASED)
            return True

    # -- the store ----------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        with self._inside():
            return

    async def stats(self) -> dict[str, int]:
        with self._inside():
            return {
                "threads": len(self._heads),
                "branches": len(self._branches),
                "rows": self._sizes.rows,
                "blobs": self._sizes.blobs,
                "bytes": self._sizes.bytes,
            }

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        with self._inside():
            found = [one for name, one in self._lineages.items() if low <= name and (high is None or name < high)]
            logs, blobs = [log for one in found for log in one.logs.values()], [one.blobs for one in found]
            return {
                "threads": sum(len(one.threads) for one in found),
                "branches": len(logs),
                "rows": sum(len(log.rows) for log in logs),
                "blobs": sum(map(len, blobs)),
                "bytes": sum(log.weight() for log in logs) + sum(len(data) for held in blobs for data in held.values()),
            }

    async def compact(self) -> None:
        with self._inside():
            return

    async def close(self) -> None:
        with self._lock:
            self._open = False
            self._index = HeadIndex()
            self._heads, self._lineages, self._branches, self._leases = self._index.heads, {}, set(), {}
            self._lineage_names, self._sizes = None, _Sizes()


def _first(found: Iterable[T], limit: int | None) -> list[T]:
    return list(islice(found, limit))


def _now() -> int:
    return time.time_ns() // 1000
