"""A record under a reserved name is changed by compare-and-swap only, and is in no listing of a user."""

from __future__ import annotations

from backtrail.engines.base import Commit, Head
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.reserved_names import RESERVED, user_threads
from backtrail.engines.reserved_record import record, swap, update

NAME = f"{RESERVED}test"


class Raced(MemoryEngine):
    """Lets somebody else be faster a few times."""

    races = 0

    async def commit(self, commit: Commit) -> None:
        if self.races:
            self.races -= 1
            before = await self.head(NAME)
            assert await swap(self._plain(), before, record(NAME, NAME, "test", b"theirs", before))
        await super().commit(commit)

    def _plain(self) -> MemoryEngine:
        plain = MemoryEngine()
        plain.__dict__ = self.__dict__ | {"races": 0}
        return plain


def counted(known: Head | None) -> Head:
    return record(NAME, NAME, "test", b"ours", known)


def test_a_record_is_made_replaced_and_deleted() -> None:
    engine = MemoryEngine()
    first = record(NAME, NAME, "test", b"1", created=5)
    assert finish(swap(engine, None, first))
    assert not finish(swap(engine, None, first))
    second = record(NAME, NAME, "test", b"2", first)
    assert (second.version, second.note) == (2, b"2")
    assert finish(swap(engine, first, second))
    assert not finish(swap(engine, first, second))
    assert finish(engine.head(NAME)) == second
    assert finish(user_threads(engine)) == []
    assert finish(swap(engine, second, None))
    assert finish(engine.head(NAME)) is None
    assert finish(swap(engine, None, None))


def test_an_update_looks_again_until_nobody_was_faster() -> None:
    engine = Raced()
    engine.races = 3
    assert finish(update(engine, NAME, counted))
    found = finish(engine.head(NAME))
    assert found is not None
    assert (found.version, found.note) == (4, b"ours")
    assert not finish(update(engine, NAME, lambda known: None))
    assert finish(engine.head(NAME)) == found
