"""Reads: exactly what was written, in order, and nothing for records that do not exist."""

from __future__ import annotations

import msgspec

from backtrail.engines.base import Branch, Commit, Drop, Engine, Mark, NewRow, Swap
from backtrail.testing import sample_records
from backtrail.testing.contract.binding import Binding, case

LOW, HIGH = bytes(16), b"\xff" * 16


class ReadingCases(Binding):
    """head, tip, heads, branches, row, steps, payloads, rows, locate, blobs, blob_ids."""

    @case
    async def test_what_is_not_there_is_nothing(self, engine: Engine) -> None:
        await engine.commit(sample_records.first(sample_records.branch("other")))
        name = sample_records.name16("nowhere")
        assert await engine.head("t") is None
        assert await engine.tip("t") is None
        assert await engine.heads("t") == []
        assert await engine.branches("t") == []
        assert await engine.row("t", name, 1) is None
        assert await engine.steps("t", name, 0, 9) == []
        assert await engine.payloads("t", name, 0, 9) == []
        assert await engine.rows("t", name, 0, 9) == []
        assert await engine.locate("t", LOW, HIGH, 9) == []
        assert await engine.blobs("t", [b"a"]) == {}
        assert await engine.blobs("t", []) == {}
        assert await engine.blob_ids("t") == []
        assert await engine.row("other", sample_records.branch("other").id, 2) is None

    @case
    async def test_the_tip_is_the_head_and_its_row_without_the_payload(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        assert await engine.tip("t") == (
            sample_records.head(at, 3),
            sample_records.as_row(sample_records.row(at, 3), payload=False),
        )
        back = sample_records.head(at, 2, 2)
        await engine.commit(
            Commit("t", swaps=[Swap("t", sample_records.head(at, 3).key, back)], marks=[Mark(at.id, 2, b"m")])
        )
        assert await engine.tip("t") == (back, sample_records.as_row(sample_records.row(at, 2), b"m", payload=False))

    @case
    async def test_the_tip_of_a_thread_may_lie_in_the_branch_of_another(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 2))
        fork = msgspec.structs.replace(sample_records.head(at, 1), thread="fork", owner=sample_records.name16("fork"))
        await engine.commit(Commit("t", swaps=[Swap("fork", None, fork)]))
        assert await engine.tip("fork") == (fork, sample_records.as_row(sample_records.row(at, 1), payload=False))
        assert await engine.heads("t") == [fork, sample_records.head(at, 2)]

    @case
    async def test_the_tip_of_a_head_without_a_row_has_none(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(Commit("t", swaps=[Swap("t", None, sample_records.head(at, 7))], branches=[at]))
        assert await engine.tip("t") == (sample_records.head(at, 7), None)

    @case
    async def test_a_row_is_read_without_its_payload(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 2))
        assert await engine.row("t", at.id, 1) == sample_records.as_row(sample_records.row(at, 1), payload=False)
        assert await engine.row("t", at.id, 3) is None

    @case
    async def test_a_range_holds_both_its_ends_and_only_what_exists(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 5))
        await engine.drop(Drop("t", [("t", sample_records.head(at, 5).key)], rows=[(at.id, 3)]))
        for first, last, there in [
            (1, 5, [1, 2, 4, 5]),
            (2, 4, [2, 4]),
            (0, 99, [1, 2, 4, 5]),
            (3, 3, []),
            (5, 5, [5]),
            (4, 2, []),
            (6, 9, []),
            (2, 2**31, [2, 4, 5]),
        ]:
            rows = [sample_records.row(at, n) for n in there]
            assert await engine.steps("t", at.id, first, last) == [sample_records.as_step(row) for row in rows]
            assert await engine.payloads("t", at.id, first, last) == [(row.step, row.payload) for row in rows]
            assert await engine.rows("t", at.id, first, last) == [sample_records.as_row(row) for row in rows]

    @case
    async def test_the_newest_steps_of_a_range_and_those_with_a_mark_can_be_read_alone(self, engine: Engine) -> None:
        at, other = sample_records.branch("t"), sample_records.branch("t", 2)
        await engine.commit(sample_records.first(at, 40))
        marks = [Mark(at.id, step, b"m") for step in (3, 7, 39)]
        await engine.commit(Commit("t", rows=[sample_records.row(other, 1)], branches=[other], marks=marks))
        await engine.commit(Commit("t", marks=[Mark(other.id, 1, b"m"), Mark(at.id, 7, None), Mark(at.id, 8, b"m")]))
        gone = [(at.id, step) for step in (38, *range(9, 37))]
        head = await engine.head("t")
        assert head is not None
        await engine.drop(Drop("t", [("t", head.key)], rows=gone))
        whole = await engine.steps("t", at.id, 1, 2**31)
        assert [one.step for one in whole] == [1, 2, 3, 4, 5, 6, 7, 8, 37, 39, 40]
        for first, last in ((1, 2**31), (2, 39), (4, 7), (1, 3), (9, 36), (41, 99), (5, 2)):
            there = [one for one in whole if first <= one.step <= last]
            marked = [one for one in there if one.mark is not None]
            assert await engine.steps("t", at.id, first, last, marked=True) == marked
            for newest in 0, 1, 2, 3, 20:
                expected = there[max(0, len(there) - newest) :]
                assert await engine.steps("t", at.id, first, last, newest=newest) == expected
                expected = marked[max(0, len(marked) - newest) :]
                assert await engine.steps("t", at.id, first, last, newest=newest, marked=True) == expected

    @case
    async def test_a_branch_may_begin_anywhere_and_is_read_in_the_order_of_numbers(self, engine: Engine) -> None:
        at = sample_records.branch("t", origin=(sample_records.name16("parent"), 7))
        rows = [sample_records.row(at, n) for n in range(8, 1208)]
        await engine.commit(Commit("t", rows=rows[:700], branches=[at]))
        await engine.commit(Commit("t", rows=rows[700:]))
        assert await engine.steps("t", at.id, 1, 2**31) == [sample_records.as_step(row) for row in rows]
        assert await engine.payloads("t", at.id, 9, 1101) == [(row.step, row.payload) for row in rows[1:1094]]
        assert await engine.rows("t", at.id, 98, 102) == [sample_records.as_row(row) for row in rows[90:95]]

    @case
    async def test_branches_come_in_the_order_they_were_written(self, engine: Engine) -> None:
        names = [b"\xff" * 16, bytes(16), b"\x80" * 16, b"\x01" * 16, b"\x7f" * 16]
        written = [Branch(name, "t", f"thread {n}", bytes([n]) * 16) for n, name in enumerate(names)]
        await engine.commit(Commit("t", branches=written[:2]))
        for one in written[2:]:
            await engine.commit(Commit("t", branches=[one]))
            await engine.commit(Commit("elsewhere", branches=[sample_records.branch("elsewhere", one.id[0])]))
        assert await engine.branches("t") == written

    @case
    async def test_heads_are_those_of_one_lineage_by_thread(self, engine: Engine) -> None:
        names = ["b", "a", "c", "ä", "B"]
        for name in names:
            await engine.commit(sample_records.first(sample_records.branch(name, lineage="t")))
        await engine.commit(sample_records.first(sample_records.branch("other")))
        assert await engine.heads("t") == [
            sample_records.head(sample_records.branch(name, lineage="t")) for name in sorted(names)
        ]
        assert [head.thread for head in await engine.heads("other")] == ["other"]
        for after in (None, "", "B", "a", "aa", "ä", "ö"):
            there = [name for name in sorted(names) if after is None or name > after]
            for limit in None, 0, 1, 2, 9:
                page = await engine.heads("t", after=after, limit=limit)
                assert [head.thread for head in page] == there[slice(limit)]

    @case
    async def test_locate_finds_the_rows_of_a_lineage_by_a_range_of_ids(self, engine: Engine) -> None:
        one, two, other = sample_records.branch("t"), sample_records.branch("t", 2), sample_records.branch("other")

        def numbered(at: Branch, step: int, n: int) -> NewRow:
            return sample_records.row(at, step)._replace(id=n.to_bytes(16, "big"))

        rows = [numbered(one, 1, 256), numbered(one, 2, 255), numbered(two, 1, 257), numbered(one, 3, 2**127)]
        await engine.commit(Commit("t", rows=rows, branches=[one, two]))
        await engine.commit(Commit("other", rows=[numbered(other, 1, 256)], branches=[other]))
        for low, high, found in [
            (0, 2**128 - 1, [0, 1, 2, 3]),
            (255, 257, [0, 1, 2]),
            (256, 256, [0]),
            (256, 257, [0, 2]),
            (0, 254, []),
            (258, 2**127 - 1, []),
            (2**127, 2**128 - 1, [3]),
            (257, 256, []),
        ]:
            there = await engine.locate("t", low.to_bytes(16, "big"), high.to_bytes(16, "big"), 10)
            assert sorted(there) == sorted((rows[n].branch, rows[n].step, rows[n].id) for n in found)
        everywhere = [(row.branch, row.step, row.id) for row in rows]
        for limit in 1, 2, 3:
            some = await engine.locate("t", LOW, HIGH, limit)
            assert len(set(some)) == len(some) == limit
            assert set(some) <= set(everywhere)

    @case
    async def test_blobs_gives_those_that_exist_among_the_ids(self, engine: Engine) -> None:
        held = {n.to_bytes(32, "big"): b"blob %d" % n for n in range(1500)}
        await engine.commit(Commit("t", blobs=held))
        ids = list(held)
        assert await engine.blobs("t", ids) == held
        assert await engine.blobs("t", [ids[7], b"no", ids[3], ids[7]]) == {ids[7]: b"blob 7", ids[3]: b"blob 3"}

    @case
    async def test_of_many_blobs_in_one_commit_those_that_exist_are_left_and_the_others_come(
        self, engine: Engine
    ) -> None:
        ids = [n.to_bytes(32, "big") for n in range(150)]
        held = dict.fromkeys(ids[10:130:3], b"first")
        await engine.commit(Commit("t", blobs=held))
        await engine.commit(Commit("t", blobs=dict.fromkeys(ids, b"second")))
        assert await engine.blobs("t", ids) == dict.fromkeys(ids, b"second") | held
        assert [id for id, _ in await engine.blob_ids("t")] == ids

    @case
    async def test_blob_ids_come_in_order_and_in_pages(self, engine: Engine) -> None:
        held = {bytes([n]) * (n % 3 + 1): bytes(n) for n in (0, 9, 255, 128, 13, 10, 65)}
        await engine.commit(Commit("t", blobs=held))
        whole = [(name, len(held[name])) for name in sorted(held)]
        assert await engine.blob_ids("t") == whole
        assert await engine.blob_ids("t", limit=3) == whole[:3]
        assert await engine.blob_ids("t", limit=0) == []
        assert await engine.blob_ids("t", after=whole[2][0]) == whole[3:]
        assert await engine.blob_ids("t", after=whole[2][0], limit=2) == whole[3:5]
        assert await engine.blob_ids("t", after=b"\xff" * 32) == []
        assert await engine.blob_ids("u") == []
