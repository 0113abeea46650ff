"""An engine in one file: the whole store is one msgpack file, read for each call and rewritten by each change.

It shows how small the contract of `backtrail.engines.base` can be kept, not how to be fast: every call costs as much as
the store is large. A lock file makes it safe for threads and processes; a rename makes each change whole.
tests/engines/test_msgpack_engine.py binds the contract suite to it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

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
from backtrail.errors import Unavailable


class Contents(msgspec.Struct):
    """All that is in the file. Dicts keep the order in which branches were written."""

    heads: dict[str, Head] = {}
    branches: dict[bytes, Branch] = {}
    rows: dict[bytes, dict[int, NewRow]] = {}  #: branch -> step -> row
    marks: dict[bytes, dict[int, bytes]] = {}
    blobs: dict[str, dict[bytes, bytes]] = {}  #: pool -> name -> bytes
    leases: dict[str, Lease] = {}

    def heads_of(self, lineage: str) -> list[Head]:
        return sorted((head for head in self.heads.values() if head.lineage == lineage), key=lambda head: head.thread)

    def branches_of(self, lineage: str) -> list[Branch]:
        return [branch for branch in self.branches.values() if branch.lineage == lineage]

    def rows_of(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        if branch not in self.branches or self.branches[branch].lineage != lineage:
            return []
        found, marks = self.rows[branch], self.marks[branch]
        return [
            Row(step, row.id, row.meta, row.digest, marks.get(step), row.root, row.payload)
            for step, row in sorted(found.items())
            if first <= step <= last
        ]


class MsgpackEngine(Engine):
    """`MsgpackEngine("store.msgpack")`, to be passed to `backtrail.open`."""

    properties = Properties(name="msgpack", blocking=True, durable=True, shared=True)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._open = True

    @contextmanager
    def _contents(self, *, change: bool = False) -> Iterator[Contents]:
        """The store, for one caller at a time; written back if the block ends well. Else nothing has happened."""
        if not self._open:
            raise conflicts.closed("msgpack")
        try:
            with self._path.with_name(f"{self._path.name}-lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                data = self._path.read_bytes() if self._path.exists() else msgspec.msgpack.encode(Contents())
                contents = msgspec.msgpack.decode(data, type=Contents)
                yield contents
                if change:
                    fresh = self._path.with_name(f"{self._path.name}-new")
                    with fresh.open("wb") as file:
                        file.write(msgspec.msgpack.encode(contents))
                        file.flush()
                        os.fsync(file.fileno())
                    fresh.replace(self._path)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error}") from error

    # -- writing: refuse first, then apply -----------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        with self._contents(change=True) as here:
            fence = commit.fence
            if fence and (fence.name not in here.leases or here.leases[fence.name].token != fence.token):
                raise conflicts.fence_stale(fence)
            for swap in commit.swaps:
                head = here.heads.get(swap.thread)
                if (head and head.key) != swap.expect:
                    raise conflicts.moved(swap.thread)
            own = {branch.id for branch in here.branches_of(commit.lineage)}
            check_rows(commit, here.branches.__contains__, lambda branch: here.rows[branch] if branch in own else None)
            for branch in commit.branches:
                here.branches[branch.id], here.rows[branch.id], here.marks[branch.id] = branch, {}, {}
            for row in commit.rows:
                here.rows[row.branch][row.step] = row
            for at, step, mark in commit.marks:
                if mark is None:
                    here.marks.get(at, {}).pop(step, None)
                elif at in here.marks:
                    here.marks[at][step] = mark
            if commit.blobs:
                pool = here.blobs.setdefault(commit.lineage, {})
                pool.update({name: data for name, data in commit.blobs.items() if name not in pool})
            for swap in commit.swaps:
                if swap.new is None:
                    here.heads.pop(swap.thread, None)
                else:
                    here.heads[swap.thread] = swap.new

    async def drop(self, drop: Drop) -> None:
        with self._contents(change=True) as here:
            if {(head.thread, head.key) for head in here.heads_of(drop.lineage)} != set(drop.expect):
                raise conflicts.swept_meanwhile(drop.lineage)
            for branch in drop.branches:
                for part in (here.branches, here.rows, here.marks):
                    part.pop(branch, None)
            for branch, step in drop.rows:
                here.rows.get(branch, {}).pop(step, None)
                here.marks.get(branch, {}).pop(step, None)
            for branch, step in drop.bodies:
                if step in here.rows.get(branch, {}):
                    here.rows[branch][step] = here.rows[branch][step]._replace(root=b"", payload=b"")
            for name in drop.blobs:
                here.blobs.get(drop.lineage, {}).pop(name, None)

    # -- reading -------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        with self._contents() as here:
            return here.heads.get(thread)

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        with self._contents() as here:
            head = here.heads.get(thread)
            if head is None:
                return None
            rows = here.rows_of(head.lineage, head.branch, head.step, head.step)
            return head, rows[0]._replace(payload=b"") if rows else None

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        with self._contents() as here:
            heads = here.heads_of(lineage)
        return [head for head in heads if after is None or head.thread > after][slice(limit)]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        with self._contents() as here:
            index = HeadIndex(here.heads.values())
            return index.page(prefix=prefix, after=after, limit=limit, kind=kind, newest_first=newest_first)

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        with self._contents() as here:
            found = {head.lineage for head in here.heads.values()}
            found |= {branch.lineage for branch in here.branches.values()}
            found |= {pool for pool, blobs in here.blobs.items() if blobs}
            return sorted(name for name in found if after is None or name > after)[:limit]

    async def branches(self, lineage: str) -> list[Branch]:
        with self._contents() as here:
            return here.branches_of(lineage)

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        rows = await self.rows(lineage, branch, step, step)
        return rows[0]._replace(payload=b"") if rows else None

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        found = [Step(*row[:5]) for row in await self.rows(lineage, branch, first, last)]
        found = [step for step in found if step.mark is not None] if marked else found
        return found if newest is None else found[max(0, len(found) - newest) :]

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        return [(row.step, row.payload) for row in await self.rows(lineage, branch, first, last)]

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        with self._contents() as here:
            return here.rows_of(lineage, branch, first, last)

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        with self._contents() as here:
            rows = (row for branch in here.branches_of(lineage) for row in here.rows[branch.id].values())
            return [(row.branch, row.step, row.id) for row in rows if low <= row.id <= high][:limit]

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._contents() as here:
            held = here.blobs.get(pool, {})
            return {name: held[name] for name in ids if name in held}

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        with self._contents() as here:
            held = sorted(here.blobs.get(pool, {}).items())
            return [(name, len(data)) for name, data in held if after is None or name > after][:limit]

    # -- leases --------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        with self._contents(change=True) as here:
            now, held = time.time_ns() // 1000, here.leases.get(name)
            if held is not None and held.expires > now and held.owner != owner:
                return Taken(held.owner, held.expires)
            renews = held is not None and held.owner == owner and held.expires != RELEASED
            token = 1 if held is None else held.token if renews else held.token + 1
            here.leases[name] = Lease(name, owner, token, now + round(ttl * 1_000_000))
            return here.leases[name]

    async def release(self, name: str, owner: str) -> bool:
        with self._contents(change=True) as here:
            held = here.leases.get(name)
            if held is None or held.owner != owner or held.expires <= time.time_ns() // 1000:
                return False
            here.leases[name] = held._replace(expires=RELEASED)  # the record stays: the next owner's token is higher
            return True

    # -- the store itself ----------------------------------------------------------------------------------------

    async def ping(self) -> None:
        with self._contents():
            return

    async def stats(self) -> dict[str, int]:
        with self._contents() as here:
            return {
                "threads": len(here.heads),
                "branches": len(here.branches),
                "rows": sum(map(len, here.rows.values())),
                "blobs": sum(map(len, here.blobs.values())),
                "bytes": self._path.stat().st_size if self._path.exists() else 0,
            }

    async def compact(self) -> None:
        await self.ping()  # every change rewrites the file: there is nothing to give back

    async def close(self) -> None:
        self._open = False
