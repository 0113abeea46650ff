"""`drop`: deletes what a sweep found, if the heads are still those that the sweep read."""

from __future__ import annotations

import pytest

from backtrail.engines.base import Commit, Drop, Engine, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.testing import sample_records
from backtrail.testing.contract.binding import Binding, case


class SweepingCases(Binding):
    """Rows, bodies, branches and blobs are deleted; a missing record is not an error; a moved head refuses all of
    it."""

    @case
    async def test_whole_rows_go_with_their_marks(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 4))
        await engine.commit(Commit("t", marks=[Mark(at.id, 2, b"m"), Mark(at.id, 3, b"n")]))
        await engine.drop(Drop("t", [("t", sample_records.head(at, 4).key)], rows=[(at.id, 1), (at.id, 2)]))
        left = [
            sample_records.as_row(sample_records.row(at, 3), b"n"),
            sample_records.as_row(sample_records.row(at, 4)),
        ]
        assert await engine.rows("t", at.id, 1, 9) == left
        assert await engine.row("t", at.id, 2) is None
        found = await engine.locate("t", bytes(16), b"\xff" * 16, 9)
        assert sorted(step for _, step, _ in found) == [3, 4]

    @case
    async def test_bodies_go_and_the_light_half_stays(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        await engine.commit(Commit("t", marks=[Mark(at.id, 2, b"m")]))
        await engine.drop(Drop("t", [("t", sample_records.head(at, 3).key)], bodies=[(at.id, 1), (at.id, 2)]))
        rows = [sample_records.row(at, n) for n in (1, 2, 3)]
        assert await engine.steps("t", at.id, 1, 3) == [
            sample_records.as_step(rows[0]),
            sample_records.as_step(rows[1], b"m"),
            sample_records.as_step(rows[2]),
        ]
        assert await engine.rows("t", at.id, 1, 3) == [
            sample_records.as_row(rows[0]._replace(root=b"", payload=b"")),
            sample_records.as_row(rows[1]._replace(root=b"", payload=b""), b"m"),
            sample_records.as_row(rows[2]),
        ]
        assert await engine.payloads("t", at.id, 1, 3) == [(1, b""), (2, b""), (3, rows[2].payload)]
        light = await engine.row("t", at.id, 1)
        assert light == sample_records.as_row(rows[0]._replace(root=b"", payload=b""))

    @case
    async def test_a_row_whose_body_went_is_still_taken(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 2))
        await engine.drop(Drop("t", [("t", sample_records.head(at, 2).key)], bodies=[(at.id, 1)]))
        with pytest.raises(Refused):
            await engine.commit(Commit("t", rows=[sample_records.row(at, 1, payload=b"other")]))

    @case
    async def test_branches_go_with_all_their_rows_and_marks(self, engine: Engine) -> None:
        old, new = sample_records.branch("t"), sample_records.branch("t", 2)
        await engine.commit(sample_records.first(old, 3))
        moved = sample_records.head(new, 1, 2)
        swap = Swap("t", sample_records.head(old, 3).key, moved)
        await engine.commit(
            Commit("t", swaps=[swap], rows=[sample_records.row(new, 1)], branches=[new], marks=[Mark(old.id, 1, b"m")])
        )
        await engine.drop(Drop("t", [("t", moved.key)], branches=[old.id]))
        assert await engine.branches("t") == [new]
        assert await engine.rows("t", old.id, 0, 9) == []
        assert await engine.steps("t", old.id, 0, 9) == []
        assert await engine.rows("t", new.id, 0, 9) == [sample_records.as_row(sample_records.row(new, 1))]
        with pytest.raises(Refused):
            await engine.commit(Commit("t", rows=[sample_records.row(old, 4)]))

    @case
    async def test_blobs_go_from_the_pool_of_the_lineage_only(self, engine: Engine) -> None:
        await engine.commit(Commit("t", blobs={b"a": b"1", b"b": b"2"}))
        await engine.commit(Commit("u", blobs={b"a": b"1"}))
        await engine.drop(Drop("t", [], blobs=[b"a"]))
        assert await engine.blob_ids("t") == [(b"b", 1)]
        assert await engine.blobs("t", [b"a"]) == {}
        assert await engine.blobs("u", [b"a"]) == {b"a": b"1"}
        await engine.commit(Commit("t", blobs={b"a": b"again"}))
        assert await engine.blobs("t", [b"a"]) == {b"a": b"again"}

    @case
    async def test_what_is_not_there_is_no_error(self, engine: Engine) -> None:
        at, nowhere = sample_records.branch("t"), sample_records.name16("nowhere")
        await engine.commit(sample_records.first(at))
        before = await sample_records.everything(engine, "t")
        expect = [("t", sample_records.head(at).key)]
        nothing = Drop("t", expect, [(nowhere, 1), (at.id, 9)], [(nowhere, 1), (at.id, 9)], [nowhere], [b"nowhere"])
        await engine.drop(nothing)
        await engine.drop(nothing)
        await engine.drop(Drop("no such lineage", [], branches=[nowhere], blobs=[b"a"]))
        assert await sample_records.everything(engine, "t") == before

    @case
    async def test_a_head_that_moved_appeared_or_went_stops_the_sweep(self, engine: Engine) -> None:
        at, fork = sample_records.branch("t"), sample_records.branch("fork", lineage="t")
        await engine.commit(sample_records.first(at, 3))
        await engine.commit(Commit("t", blobs={b"a": b"1"}))
        seen = [("t", sample_records.head(at, 3).key)]

        async def stopped(expect: list[tuple[str, tuple[bytes, int, int]]]) -> None:
            before = await sample_records.everything(engine, "t")
            with pytest.raises(Refused):
                await engine.drop(Drop("t", expect, [(at.id, 1)], [(at.id, 2)], [fork.id], [b"a"]))
            assert await sample_records.everything(engine, "t") == before

        await stopped([])
        await stopped([("t", sample_records.head(at, 2).key)])
        await stopped([("t", sample_records.head(at, 3, 2).key)])
        await stopped([("other", sample_records.head(at, 3).key)])
        await stopped([*seen, ("fork", sample_records.head(fork).key)])
        await engine.commit(sample_records.first(fork))
        await stopped(seen)
        both = [*seen, ("fork", sample_records.head(fork).key)]
        await engine.commit(sample_records.following(sample_records.head(at, 3), at))
        await stopped(both)
        await engine.commit(Commit("t", swaps=[Swap("fork", sample_records.head(fork).key, None)]))
        await stopped(both)
        await engine.drop(Drop("t", [("t", sample_records.head(at, 4, 2).key)], rows=[(at.id, 1)]))
        assert [row.step for row in await engine.rows("t", at.id, 1, 9)] == [2, 3, 4]

    @case
    async def test_the_order_of_the_expected_heads_does_not_matter(self, engine: Engine) -> None:
        heads = []
        for name in "c", "a", "b":
            at = sample_records.branch(name, lineage="t")
            await engine.commit(sample_records.first(at))
            heads.append((name, sample_records.head(at).key))
        await engine.commit(Commit("t", blobs={b"a": b"1"}))
        await engine.drop(Drop("t", heads, blobs=[b"a"]))
        assert await engine.blob_ids("t") == []

    @case
    async def test_heads_of_another_lineage_do_not_matter(self, engine: Engine) -> None:
        await engine.commit(Commit("t", blobs={b"a": b"1"}))
        await engine.commit(sample_records.first(sample_records.branch("other")))
        await engine.drop(Drop("t", [], blobs=[b"a"]))
        assert await engine.lineages() == ["other"]
