"""The store as a whole: ping, stats, compact, close; a durable store outlives the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from backtrail.engines.base import Commit, Drop, Engine, Fence, Lease, Mark, Swap, Taken
from backtrail.engines.conflicts import Refused
from backtrail.errors import LockLost, Unavailable
from backtrail.testing import call_modes, sample_records
from backtrail.testing.contract.binding import Binding, case


class LifetimeCases(Binding):
    """ping, stats, compact, close."""

    @case
    async def test_a_place_that_is_open_answers(self, engine: Engine) -> None:
        await engine.ping()
        assert engine.properties.name

    @case
    async def test_a_blocking_engine_is_not_awaited(self, engine: Engine) -> None:
        assert engine.properties.blocking == ("awaited" not in self.modes)

    @case
    async def test_stats_count_what_is_there(self, engine: Engine) -> None:
        empty = await engine.stats()
        assert {name: empty[name] for name in ("threads", "branches", "rows", "blobs")} == dict.fromkeys(
            ("threads", "branches", "rows", "blobs"), 0
        )
        await engine.commit(sample_records.first(sample_records.branch("t"), 3))
        await engine.commit(sample_records.first(sample_records.branch("u"), 2))
        await engine.commit(
            Commit("t", branches=[sample_records.branch("t", 2)], blobs={b"a": bytes(100_000), b"b": b""})
        )
        full = await engine.stats()
        assert {name: full[name] for name in ("threads", "branches", "rows", "blobs")} == {
            "threads": 2,
            "branches": 3,
            "rows": 5,
            "blobs": 2,
        }
        assert full["bytes"] >= empty["bytes"]

    @case
    async def test_compacting_changes_nothing_that_can_be_read(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.compact()
        await engine.commit(sample_records.first(at, 3))
        await engine.commit(Commit("t", marks=[Mark(at.id, 2, b"m")], blobs={b"a": b"1", b"b": b"2"}))
        await engine.drop(Drop("t", [("t", sample_records.head(at, 3).key)], rows=[(at.id, 1)], blobs=[b"b"]))
        before = await sample_records.everything(engine, "t")
        await engine.compact()
        assert await sample_records.everything(engine, "t") == before
        await engine.commit(sample_records.following(sample_records.head(at, 3), at))
        assert len(await engine.rows("t", at.id, 1, 9)) == 3

    @case
    async def test_a_closed_engine_is_unavailable_and_closing_twice_is_no_error(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        await engine.close()
        await engine.close()
        name = at.id
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: engine.commit(Commit("t", blobs={b"a": b"1"})),
            lambda: engine.drop(Drop("t", [])),
            lambda: engine.head("t"),
            lambda: engine.tip("t"),
            lambda: engine.heads("t"),
            engine.threads,
            engine.lineages,
            lambda: engine.branches("t"),
            lambda: engine.row("t", name, 1),
            lambda: engine.steps("t", name, 1, 1),
            lambda: engine.payloads("t", name, 1, 1),
            lambda: engine.rows("t", name, 1, 1),
            lambda: engine.locate("t", bytes(16), b"\xff" * 16, 1),
            lambda: engine.blobs("t", [b"a"]),
            lambda: engine.blob_ids("t"),
            lambda: engine.lease("x", "me", 1),
            lambda: engine.release("x", "me"),
            engine.ping,
            engine.stats,
            engine.compact,
        ]
        for call in calls:
            with pytest.raises(Unavailable):
                await call()


class DurableCases(Binding):
    """Stores that outlive an engine, and two engines on one store."""

    @case
    async def test_everything_is_there_when_the_store_is_opened_again(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 5))
        await engine.commit(Commit("t", marks=[Mark(at.id, 2, b"m")], blobs={b"a": b"1", b"b": b"2"}))
        await engine.commit(sample_records.first(sample_records.branch("u", lineage="t", origin=(at.id, 2))))
        await engine.drop(
            Drop("t", [(h.thread, h.key) for h in await engine.heads("t")], rows=[(at.id, 1)], bodies=[(at.id, 3)])
        )
        before = await sample_records.everything(engine, "t")
        await engine.close()
        again = self.open()
        assert await sample_records.everything(again, "t") == before
        assert await again.tip("t") == (
            sample_records.head(at, 5),
            sample_records.as_row(sample_records.row(at, 5), payload=False),
        )

    @case
    async def test_a_lease_and_its_token_outlive_the_engine(self, engine: Engine) -> None:
        mine = await engine.lease("x", "me", 300)
        assert isinstance(mine, Lease)
        await engine.close()
        again = self.open()
        assert await again.lease("x", "you", 300) == Taken("me", mine.expires)
        assert await again.release("x", "me") is True
        yours = await again.lease("x", "you", 300)
        assert isinstance(yours, Lease)
        assert yours.token > mine.token

    @case
    async def test_what_one_engine_committed_another_sees_at_once(self, engine: Engine) -> None:
        other, at = self.open(), sample_records.branch("t")
        assert await other.head("t") is None
        await engine.commit(sample_records.first(at))
        for n in range(1, 6):
            writer, reader = (engine, other) if n % 2 else (other, engine)
            assert await reader.tip("t") == (
                sample_records.head(at, n, n),
                sample_records.as_row(sample_records.row(at, n), payload=False),
            )
            await writer.commit(sample_records.following(sample_records.head(at, n, n), at))
        assert await other.threads() == await engine.threads() == [sample_records.head(at, 6, 6)]

    @case
    async def test_a_branch_swept_by_one_engine_is_gone_for_the_other(self, engine: Engine) -> None:
        other, old, new = self.open(), sample_records.branch("t"), sample_records.branch("t", 2)
        await engine.commit(sample_records.first(old))
        assert await other.payloads("t", old.id, 1, 1)
        moved = sample_records.head(new, 1, 2)
        await engine.commit(
            Commit(
                "t",
                swaps=[Swap("t", sample_records.head(old).key, moved)],
                rows=[sample_records.row(new, 1)],
                branches=[new],
            )
        )
        await other.drop(Drop("t", [("t", moved.key)], branches=[old.id]))
        with pytest.raises(Refused):
            await engine.commit(Commit("t", rows=[sample_records.row(old, 2)]))
        assert await engine.payloads("t", old.id, 1, 9) == []
        assert await engine.branches("t") == [new]

    @case
    async def test_of_two_engines_that_write_the_same_step_one_wins(self, engine: Engine) -> None:
        engines, at = [engine, self.open()], sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        for n in range(1, 11):
            before, after = sample_records.head(at, n, n), sample_records.head(at, n + 1, n + 1)
            rows = [sample_records.row(at, n + 1, payload=b"engine %d" % k) for k in range(4)]
            swap = Swap("t", before.key, after)
            answers = await call_modes.race(
                [engines[k % 2].commit(Commit("t", swaps=[swap], rows=[row])) for k, row in enumerate(rows)]
            )
            winners = [row for row, answer in zip(rows, answers, strict=True) if answer is None]
            assert [type(answer) for answer in answers if answer is not None] == [Refused] * 3
            assert await engines[1].rows("t", at.id, n + 1, n + 1) == [sample_records.as_row(row) for row in winners]

    @case
    async def test_a_fence_taken_by_one_engine_holds_for_the_other(self, engine: Engine) -> None:
        other, at = self.open(), sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        mine = await engine.lease("x", "me", 300)
        assert isinstance(mine, Lease)
        await other.commit(Commit("t", blobs={b"a": b"1"}, fence=Fence("x", mine.token)))
        assert await other.release("x", "me")
        assert isinstance(await other.lease("x", "you", 300), Lease)
        with pytest.raises(LockLost):
            await engine.commit(Commit("t", blobs={b"b": b"2"}, fence=Fence("x", mine.token)))
        assert await engine.blobs("t", [b"a", b"b"]) == {b"a": b"1"}
