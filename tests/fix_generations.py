"""Two stores that were written to in different generations of a mirror, without the mirror: for tests of merging."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit, Drop, Engine, Head, Swap
from backtrail.engines.capabilities import WritesInGenerations
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Unavailable
from backtrail.history.replication import MergeCodec
from backtrail.replicate import role_record
from backtrail.replicate.absorption import Merged
from backtrail.replicate.deleted_threads import write_tombstone
from backtrail.replicate.merge import merge
from backtrail.replicate.merge_rules import Rule
from fix_flaky import Flaky


@pytest.fixture
def many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows a lineage has, they are too many to come in one commit."""
    monkeypatch.setattr("backtrail.replicate.lineage_copy.ROWS", 1)
    monkeypatch.setattr("backtrail.replicate.lineage_copy._BATCH_ROWS", 1)


class InGeneration(WritesInGenerations):
    """What a mirror tells a store in one generation."""

    generation, may_drop, branch_prefix = 0, True, b""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.branch_prefix = role_record.branch_prefix(generation) + bytes(3)


class Lifetime:
    """The number of changes after which a process dies."""

    def __init__(self, left: int) -> None:
        self.left = left

    def side(self, engine: Engine) -> Dying:
        return Dying(engine, self)


class Dying(Flaky):
    """A side that gets no more changes than its lifetime allows. The last one is made, and not answered."""

    def __init__(self, engine: Engine, lifetime: Lifetime) -> None:
        super().__init__(engine)
        self._lifetime = lifetime

    async def _change(self, method: str, change: Commit | Drop) -> None:
        if self._lifetime.left > 0:
            await getattr(self.engine, method)(change)
        self._lifetime.left -= 1
        if self._lifetime.left <= 0:
            raise Unavailable("the process died, because a test says so")

    async def commit(self, commit: Commit) -> None:
        await self._change("commit", commit)

    async def drop(self, drop: Drop) -> None:
        await self._change("drop", drop)


class Sides:
    """The two sides of a merge: `target` is the active one."""

    def __init__(self) -> None:
        self.target, self.source = MemoryEngine(), MemoryEngine()

    def store(self, side: Engine, generation: int = 1) -> backtrail.Store:
        store = backtrail.open(side)
        context: Any = store._core.context
        context.mirror = InGeneration(generation)
        return store

    def thread(self, side: Engine, generation: int = 1, name: str = "t") -> Any:
        return self.store(side, generation).thread(name)

    def head(self, side: Engine, name: str = "t") -> Head:
        head = finish(side.head(name))
        assert head is not None
        return head

    def delete(self, side: Engine, generation: int = 1, name: str = "t") -> None:
        """Delete a thread as a mirror does while the other side is away: its rows are not freed."""
        head = self.head(side, name)
        finish(write_tombstone(side, head, generation))
        finish(side.commit(Commit(head.lineage, (Swap(name, head.key, None),))))

    def merge(
        self, generation: int = 1, lineage: str = "t", rule: Rule | None = None, *sides: Engine
    ) -> list[tuple[str, str]]:
        """Merge a lineage; the threads that diverged."""
        return self.merged(generation, lineage, rule, *sides).diverged

    def merged(self, generation: int, lineage: str = "t", rule: Rule | None = None, *sides: Engine) -> Merged:
        context: Any = self.store(self.target)._core.context
        target, source = sides or (self.target, self.source)
        return finish(merge(target, source, lineage, MergeCodec(context), generation=generation, rule=rule))

    def equal(self) -> dict[str, Any]:
        """Both sides are equal and intact; the states of all threads."""
        one, two = backtrail.open(self.target), backtrail.open(self.source)
        assert one.threads() == two.threads()
        found = {}
        for info in one.threads():
            here, there = one.thread(info.id), two.thread(info.id)
            assert here.history(all=True) == there.history(all=True)
            found[info.id] = here.load()
            assert found[info.id] == there.load()
        assert (one.verify().problems, two.verify().problems) == ((), ())
        return found
