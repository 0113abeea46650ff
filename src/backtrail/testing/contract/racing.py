"""Many callers at once: threads for a blocking engine, tasks for one that awaits."""

from __future__ import annotations

import msgspec

from backtrail.engines.base import Commit, Engine, Swap
from backtrail.engines.conflicts import Refused
from backtrail.testing import call_modes, sample_records
from backtrail.testing.contract.binding import Binding, case

WRITERS = 8


class RacingCases(Binding):
    """Of racing commits one wins and the others are refused; no reader sees half a commit."""

    @case
    async def test_of_eight_that_write_the_same_step_one_wins(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        before = sample_records.head(at)
        for _ in range(5):
            after = sample_records.head(at, before.step + 1, before.version + 1)
            rows = [sample_records.row(at, after.step, payload=b"writer %d" % n) for n in range(WRITERS)]
            swap = Swap("t", before.key, after)
            answers = await call_modes.race([engine.commit(Commit("t", swaps=[swap], rows=[row])) for row in rows])
            winners = [row for row, answer in zip(rows, answers, strict=True) if answer is None]
            assert [type(answer) for answer in answers if answer is not None] == [Refused] * (WRITERS - 1)
            assert await engine.rows("t", at.id, after.step, after.step) == [
                sample_records.as_row(row) for row in winners
            ]
            before = after

    @case
    async def test_of_eight_that_begin_the_same_thread_one_wins(self, engine: Engine) -> None:
        begun = [sample_records.branch("t", n) for n in range(WRITERS)]
        answers = await call_modes.race([engine.commit(sample_records.first(at)) for at in begun])
        winners = [at for at, answer in zip(begun, answers, strict=True) if answer is None]
        assert [type(answer) for answer in answers if answer is not None] == [Refused] * (WRITERS - 1)
        assert await engine.branches("t") == winners
        assert await engine.head("t") == sample_records.head(winners[0])

    @case
    async def test_eight_writers_of_their_own_threads_do_not_disturb_each_other(self, engine: Engine) -> None:
        async def write(name: str) -> None:
            at = sample_records.branch(name)
            await engine.commit(sample_records.first(at))
            for n in range(1, 10):
                await engine.commit(sample_records.following(sample_records.head(at, n, n), at))

        names = [f"t{n}" for n in range(WRITERS)]
        assert await call_modes.race([write(name) for name in names]) == [None] * WRITERS
        for name in names:
            at = sample_records.branch(name)
            assert await engine.head(name) == sample_records.head(at, 10, 10)
            assert await engine.rows(name, at.id, 1, 99) == [
                sample_records.as_row(sample_records.row(at, n)) for n in range(1, 11)
            ]

    @case
    async def test_a_reader_never_sees_half_a_commit(self, engine: Engine) -> None:
        pair = [sample_records.branch("a", lineage="t"), sample_records.branch("b", lineage="t")]
        for at in pair:
            await engine.commit(sample_records.first(at))
        rounds = 30

        async def write() -> int:
            for n in range(1, rounds):
                both = [sample_records.following(sample_records.head(at, n, n), at) for at in pair]
                rows = [*both[0].rows, *both[1].rows]
                await engine.commit(msgspec.structs.replace(both[0], swaps=[*both[0].swaps, *both[1].swaps], rows=rows))
            return rounds

        async def read() -> int:
            torn = 0
            for _ in range(rounds):
                one, other = await engine.heads("t")
                torn += one.version != other.version
                tip = await engine.tip("a")
                torn += tip is None or tip[1] is None or tip[1].step != tip[0].step
            return torn

        assert await call_modes.race([write(), read(), read()]) == [rounds, 0, 0]
