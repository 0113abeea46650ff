"""The contract suite finds engines that break the contract: each of these breaks one sentence of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backtrail.engines.base import Branch, Commit, Drop, Head, Lease, Row, Step, Taken
from backtrail.engines.conflicts import Refused
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import BacktrailError
from backtrail.testing.contract import EngineContract

pytestmark = pytest.mark.slow  # the whole suite runs once for each broken engine


class Careless(MemoryEngine):
    """Applies what it can before it looks at the swaps."""

    async def commit(self, commit: Commit) -> None:
        await super().commit(Commit(commit.lineage, blobs=commit.blobs))
        await super().commit(commit)


class Overwriting(MemoryEngine):
    """The second writer of a step wins."""

    async def commit(self, commit: Commit) -> None:
        gone = [(row.branch, row.step) for row in commit.rows]
        heads = [(head.thread, head.key) for head in await self.heads(commit.lineage)]
        await super().drop(Drop(commit.lineage, heads, rows=gone))
        await super().commit(commit)


class Fenceless(MemoryEngine):
    """Does not look at the fence."""

    async def commit(self, commit: Commit) -> None:
        await super().commit(msgspec.structs.replace(commit, fence=None))


class Patterned(MemoryEngine):
    """Takes a prefix for a pattern."""

    async def threads(self, *, prefix: str = "", **options: Any) -> list[Head]:
        return await super().threads(prefix=prefix.split("_")[0].split("%")[0], **options)


class Unordered(MemoryEngine):
    """Gives branches in the order of their ids."""

    async def branches(self, lineage: str) -> list[Branch]:
        return sorted(await super().branches(lineage), key=lambda branch: branch.id)


class HalfOpen(MemoryEngine):
    """Leaves the last step of a range out."""

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        return await super().steps(lineage, branch, first, last - 1, newest=newest, marked=marked)


class Heavy(MemoryEngine):
    """Sends the payload with every row."""

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        rows = await self.rows(lineage, branch, step, step)
        return rows[0] if rows else None


class Empty(MemoryEngine):
    """Takes an empty byte string for nothing."""

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return {name: data for name, data in (await super().blobs(pool, ids)).items() if data}


class Rushing(MemoryEngine):
    """Sweeps without a look at the heads."""

    async def drop(self, drop: Drop) -> None:
        heads = [(head.thread, head.key) for head in await self.heads(drop.lineage)]
        await super().drop(msgspec.structs.replace(drop, expect=heads))


class Forgetful(MemoryEngine):
    """Begins with the first token again after a release."""

    async def release(self, name: str, owner: str) -> bool:
        given_back = await super().release(name, owner)
        if given_back:
            del self._leases[name]
        return given_back


class Generous(MemoryEngine):
    """Frees any lease for anybody."""

    async def release(self, name: str, owner: str) -> bool:
        held = self._leases.get(name)
        return await super().release(name, held.owner if held else owner)


class Renewing(MemoryEngine):
    """Gives a renewed lease a new token."""

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        await super().release(name, owner)
        return await super().lease(name, owner, ttl)


class Undying(MemoryEngine):
    """Can still be used when it is closed."""

    async def close(self) -> None:
        return


class Torn(MemoryEngine):
    """Ends byte strings at their first zero."""

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        found = await super().payloads(lineage, branch, first, last)
        return [(step, payload.split(b"\0")[0]) for step, payload in found]


class Lingering(MemoryEngine):
    """Does not forget a lineage that has nothing any more."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self._seen.add(commit.lineage)

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        await super().lineages()
        return sorted(name for name in self._seen if after is None or name > after)[slice(limit)]


BROKEN = [
    Careless, Overwriting, Fenceless, Patterned, Unordered, HalfOpen, Heavy, Empty, Rushing, Forgetful, Generous,
    Renewing, Undying, Torn, Lingering,
]  # fmt: skip


def failures(engine: type[MemoryEngine], directory: Path) -> list[str]:
    """The names of the cases that an engine does not pass."""

    class Bound(EngineContract):
        def make_engine(self, directory: Path) -> MemoryEngine:
            return engine()

    failed = []
    for name in dir(Bound):
        if name.startswith("test_"):
            try:
                getattr(Bound(), name)("direct", directory)
            except (AssertionError, BacktrailError, Refused, LookupError, TypeError, pytest.fail.Exception):
                failed.append(name)
    return failed


def test_the_memory_engine_passes_every_case(tmp_path: Path) -> None:
    assert failures(MemoryEngine, tmp_path) == []


@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
def test_a_broken_engine_is_found(engine: type[MemoryEngine], tmp_path: Path) -> None:
    found = failures(engine, tmp_path)
    assert found, f"{engine.__name__}: {engine.__doc__}"
    assert len(found) < 40, "one fault is not everything"


def test_an_engine_that_suspends_is_no_blocking_one(tmp_path: Path) -> None:
    class Suspending(MemoryEngine):
        async def head(self, thread: str) -> Head | None:
            await asyncio.sleep(0)
            return await super().head(thread)

    class Bound(EngineContract):
        def make_engine(self, directory: Path) -> MemoryEngine:
            return Suspending()

    with pytest.raises((AssertionError, RuntimeError)):
        Bound().test_a_commit_is_read_back_exactly("direct", tmp_path)
