"""`commit`: applied as a whole, or refused and nothing changed."""

from __future__ import annotations

import msgspec
import pytest

from backtrail.engines.base import Branch, Commit, Engine, Fence, Head, Lease, Mark, NewRow, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import LockLost
from backtrail.testing import sample_records
from backtrail.testing.contract.binding import Binding, case

EVERY_BYTE = bytes(range(256))
#: Sixteen names of sixteen bytes that hold every byte value once, and the two extremes.
NAMES = [*(EVERY_BYTE[n : n + 16] for n in range(0, 256, 16)), bytes(16), b"\xff" * 16]
AWKWARD = [
    "lock:x", "head:t", "{t}", "}{", "a:b", "a_b", "a/b", "../a", ".", "%", "_", "*", "?", "[a-z]", "\\", "'; --", '"',
    " ", "\n", "\t a", "ß", "é", "e\u0301", "日本語", "😀", "\U0010ffff", "\x7f", "x" * 512, "T", "t ", "0", "00",
]  # fmt: skip


async def refused(engine: Engine, commit: Commit, error: type[Exception] = Refused) -> None:
    """Check that a commit is refused and has changed nothing, although most of it could have been applied."""
    loaded = msgspec.structs.replace(
        commit,
        blobs={**commit.blobs, b"only with the commit": b"!"},
        branches=[*commit.branches, sample_records.branch("t", 77)],
        marks=[*commit.marks, Mark(sample_records.branch("t").id, 1, b"only with the commit")],
    )
    before = await sample_records.everything(engine, "t"), await sample_records.everything(engine, "other")
    with pytest.raises(error):
        await engine.commit(loaded)
    assert (await sample_records.everything(engine, "t"), await sample_records.everything(engine, "other")) == before


class WritingCases(Binding):
    """Commits that are applied whole, and every reason to refuse one."""

    @case
    async def test_a_commit_is_read_back_exactly(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        assert await engine.head("t") == sample_records.head(at, 3)
        assert await engine.branches("t") == [at]
        assert await engine.rows("t", at.id, 1, 3) == [
            sample_records.as_row(sample_records.row(at, n)) for n in (1, 2, 3)
        ]

    @case
    async def test_a_commit_appends_to_a_branch_and_moves_its_head(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        for n in range(1, 12):
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
        assert await engine.head("t") == sample_records.head(at, 12, 12)
        assert [row.step for row in await engine.rows("t", at.id, 1, 99)] == list(range(1, 13))

    @case
    async def test_one_commit_may_hold_several_branches_threads_rows_marks_and_blobs(self, engine: Engine) -> None:
        one, two = (
            sample_records.branch("t", 1),
            sample_records.branch("u", 2, lineage="t", origin=(sample_records.branch("t").id, 2)),
        )
        rows = [
            sample_records.row(one, 1),
            sample_records.row(two, 3),
            sample_records.row(one, 2),
            sample_records.row(two, 4),
            sample_records.row(two, 5),
        ]
        await engine.commit(
            Commit(
                "t",
                swaps=[Swap("t", None, sample_records.head(one, 2)), Swap("u", None, sample_records.head(two, 5))],
                rows=rows,
                branches=[one, two],
                marks=[Mark(one.id, 2, b"m"), Mark(two.id, 3, b"n")],
                blobs={b"a": b"1", b"b": b"2"},
            )
        )
        assert await engine.heads("t") == [sample_records.head(one, 2), sample_records.head(two, 5)]
        assert await engine.branches("t") == [one, two]
        assert await engine.rows("t", one.id, 0, 9) == [
            sample_records.as_row(rows[0]),
            sample_records.as_row(rows[2], b"m"),
        ]
        assert await engine.rows("t", two.id, 0, 9) == [
            sample_records.as_row(rows[1], b"n"),
            sample_records.as_row(rows[3]),
            sample_records.as_row(rows[4]),
        ]
        assert await engine.blobs("t", [b"a", b"b"]) == {b"a": b"1", b"b": b"2"}

    @case
    async def test_a_commit_may_move_a_head_alone(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        back = sample_records.head(at, 1, 2, note=b"rewound")
        await engine.commit(Commit("t", swaps=[Swap("t", sample_records.head(at, 3).key, back)]))
        assert await engine.head("t") == back
        assert len(await engine.rows("t", at.id, 1, 3)) == 3

    @case
    async def test_a_commit_may_ask_that_a_head_stands_still(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        head, other = sample_records.head(at, 3), sample_records.head(at, 2, 2)
        await engine.commit(Commit("t", swaps=[Swap("t", head.key, head)], marks=[Mark(at.id, 1, b"said")]))
        with pytest.raises(Refused):
            await engine.commit(Commit("t", swaps=[Swap("t", other.key, other)], marks=[Mark(at.id, 1, None)]))
        assert await engine.head("t") == head
        assert [step.mark for step in await engine.steps("t", at.id, 1, 3)] == [b"said", None, None]

    @case
    async def test_a_commit_may_hold_rows_or_blobs_or_nothing_and_no_swap(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(Commit("t", branches=[at]))
        await engine.commit(Commit("t", rows=[sample_records.row(at, 1)]))
        await engine.commit(Commit("t", blobs={b"a": b"1"}))
        await engine.commit(Commit("t"))
        assert await engine.head("t") is None
        assert await engine.row("t", at.id, 1) == sample_records.as_row(sample_records.row(at, 1), payload=False)
        assert await engine.blobs("t", [b"a"]) == {b"a": b"1"}

    @case
    async def test_a_head_is_deleted_and_its_thread_can_begin_again(self, engine: Engine) -> None:
        at, again = sample_records.branch("t"), sample_records.branch("t", 2)
        await engine.commit(sample_records.first(at))
        await engine.commit(Commit("t", swaps=[Swap("t", sample_records.head(at).key, None)]))
        assert await engine.head("t") is None
        assert await engine.tip("t") is None
        assert await engine.threads() == []
        assert len(await engine.rows("t", at.id, 1, 1)) == 1, "deleting a head takes nothing else away"
        await engine.commit(sample_records.first(again))
        assert await engine.head("t") == sample_records.head(again)

    @case
    async def test_every_field_of_a_head_and_a_branch_is_kept_exactly(self, engine: Engine) -> None:
        for n, thread in enumerate(["plain", "日本語 😀", "a:{b}"]):
            at = Branch(NAMES[n], f"lineage of {thread}", thread, NAMES[-1 - n], (NAMES[n + 3], 2**31 - n), EVERY_BYTE)
            head = Head(
                thread=thread,
                lineage=at.lineage,
                owner=at.owner,
                branch=at.id,
                step=2**31 - 1 - n,
                version=2**53 + 1 + n,
                kind="séance",
                created=2**53 + 3,
                updated=2**53 - 9 + n,
                count=2**40 + n,
                size=2**53 + 5,
                note=EVERY_BYTE,
            )
            await engine.commit(Commit(at.lineage, swaps=[Swap(thread, None, head)], branches=[at]))
            assert await engine.head(thread) == head
            assert await engine.heads(at.lineage) == [head]
            assert await engine.branches(at.lineage) == [at]
            moved = msgspec.structs.replace(head, version=head.version + 1)
            await engine.commit(Commit(at.lineage, swaps=[Swap(thread, head.key, moved)]))
            assert await engine.head(thread) == moved

    @case
    async def test_awkward_thread_names_never_meet(self, engine: Engine) -> None:
        for n, name in enumerate(AWKWARD):
            await engine.commit(
                msgspec.structs.replace(
                    sample_records.first(sample_records.branch(name, n)), blobs={b"k": name.encode()}
                )
            )
        for n, name in enumerate(AWKWARD):
            at = sample_records.branch(name, n)
            assert await engine.tip(name) == (
                sample_records.head(at),
                sample_records.as_row(sample_records.row(at, 1), payload=False),
            )
            assert await engine.branches(name) == [at]
            assert await engine.blobs(name, [b"k"]) == {b"k": name.encode()}
        assert [head.thread for head in await engine.threads()] == sorted(AWKWARD)
        assert await engine.lineages() == sorted(AWKWARD)

    @case
    async def test_names_of_any_bytes_and_values_of_any_bytes_are_kept(self, engine: Engine) -> None:
        rows = {}
        for n, name in enumerate(NAMES):
            at = Branch(name, "t", "t", NAMES[-1 - n])
            rows[name] = NewRow(name, n + 1, NAMES[n - 3], EVERY_BYTE, NAMES[n - 5], EVERY_BYTE[::-1], EVERY_BYTE * 3)
            commit = Commit("t", rows=[rows[name]], branches=[at], marks=[Mark(name, n + 1, EVERY_BYTE)])
            await engine.commit(msgspec.structs.replace(commit, blobs={name: EVERY_BYTE + name, name * 2: name}))
        for n, name in enumerate(NAMES):
            assert await engine.rows("t", name, 0, 99) == [sample_records.as_row(rows[name], EVERY_BYTE)]
            assert await engine.payloads("t", name, n + 1, n + 1) == [(n + 1, EVERY_BYTE * 3)]
            assert await engine.blobs("t", [name, name * 2]) == {name: EVERY_BYTE + name, name * 2: name}
        assert [branch.id for branch in await engine.branches("t")] == NAMES
        assert [name for name, _ in await engine.blob_ids("t")] == sorted([*NAMES, *(name * 2 for name in NAMES)])

    @case
    async def test_empty_byte_strings_are_kept_and_are_not_nothing(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        bare = NewRow(at.id, 1, bytes(16), b"", bytes(16), b"", b"")
        await engine.commit(Commit("t", rows=[bare], branches=[at], marks=[Mark(at.id, 1, b"")], blobs={b"e": b""}))
        assert await engine.rows("t", at.id, 1, 1) == [sample_records.as_row(bare, b"")]
        assert await engine.steps("t", at.id, 1, 1) == [sample_records.as_step(bare, b"")]
        assert await engine.blobs("t", [b"e"]) == {b"e": b""}
        assert await engine.blob_ids("t") == [(b"e", 0)]

    @case
    async def test_large_values_are_kept(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        large = EVERY_BYTE * (5 * 2**12)
        rows = [sample_records.row(at, 1, payload=large, root=large[1:]), sample_records.row(at, 2)]
        await engine.commit(Commit("t", rows=rows, branches=[at], blobs={b"large": large[2:]}))
        assert await engine.rows("t", at.id, 1, 2) == [sample_records.as_row(row) for row in rows]
        assert await engine.blobs("t", [b"large"]) == {b"large": large[2:]}
        assert await engine.blob_ids("t") == [(b"large", len(large) - 2)]

    # -- marks and blobs ----------------------------------------------------------------------------------------

    @case
    async def test_the_newest_mark_counts_and_a_mark_can_be_taken_away(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        for marks, expected in [
            ([Mark(at.id, 2, b"one")], [None, b"one", None]),
            ([Mark(at.id, 2, b"two"), Mark(at.id, 3, b"three")], [None, b"two", b"three"]),
            ([Mark(at.id, 2, None), Mark(at.id, 1, None)], [None, None, b"three"]),
            ([Mark(at.id, 2, b"four")], [None, b"four", b"three"]),
        ]:
            await engine.commit(Commit("t", marks=marks))
            assert [step.mark for step in await engine.steps("t", at.id, 1, 3)] == expected
            assert [row.mark for row in await engine.rows("t", at.id, 1, 3)] == expected
            single = [await engine.row("t", at.id, n) for n in (1, 2, 3)]
            assert [row.mark for row in single if row] == expected
            tip = await engine.tip("t")
            assert tip is not None
            assert tip[1] is not None
            assert tip[1].mark == expected[2]

    @case
    async def test_a_blob_that_exists_is_left_as_it_is(self, engine: Engine) -> None:
        await engine.commit(Commit("t", blobs={b"a": b"first", b"b": b"b"}))
        await engine.commit(Commit("t", blobs={b"a": b"second", b"c": b"c"}))
        assert await engine.blobs("t", [b"a", b"b", b"c"]) == {b"a": b"first", b"b": b"b", b"c": b"c"}

    @case
    async def test_a_blob_belongs_to_the_pool_of_its_lineage(self, engine: Engine) -> None:
        await engine.commit(Commit("t", blobs={b"a": b"in t"}))
        await engine.commit(Commit("u", blobs={b"a": b"in u"}))
        assert await engine.blobs("t", [b"a"]) == {b"a": b"in t"}
        assert await engine.blobs("u", [b"a"]) == {b"a": b"in u"}
        assert await engine.blobs("v", [b"a"]) == {}

    # -- refusals -----------------------------------------------------------------------------------------------

    @case
    async def test_a_swap_that_expects_no_thread_is_refused_where_there_is_one(self, engine: Engine) -> None:
        await engine.commit(sample_records.first(sample_records.branch("t")))
        await refused(engine, sample_records.first(sample_records.branch("t", 2)))

    @case
    async def test_a_swap_that_expects_a_head_is_refused_where_there_is_none(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(Commit("t", branches=[at]))
        await refused(engine, sample_records.following(sample_records.head(at), at))
        await refused(engine, Commit("t", swaps=[Swap("t", sample_records.head(at).key, None)]))

    @case
    async def test_a_swap_is_refused_unless_branch_step_and_version_are_the_ones_there(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        branch, step, version = sample_records.head(at, 3).key
        for wrong in [
            (branch, step, version + 1),
            (branch, step - 1, version),
            (sample_records.name16("x"), step, version),
        ]:
            await refused(
                engine,
                Commit("t", swaps=[Swap("t", wrong, sample_records.head(at, 3, 2))], rows=[sample_records.row(at, 4)]),
            )
            await refused(engine, Commit("t", swaps=[Swap("t", wrong, None)]))

    @case
    async def test_one_wrong_swap_among_right_ones_refuses_them_all(self, engine: Engine) -> None:
        at, other = sample_records.branch("t"), sample_records.branch("u", lineage="t")
        await engine.commit(sample_records.first(at))
        await engine.commit(sample_records.first(other))
        right = Swap("t", sample_records.head(at).key, sample_records.head(at, 2, 2))
        wrong = Swap("u", sample_records.head(other, 9).key, sample_records.head(other, 1, 2))
        for swaps in [right, wrong], [wrong, right]:
            await refused(engine, Commit("t", swaps=swaps, rows=[sample_records.row(at, 2)]))

    @case
    async def test_a_taken_step_is_refused(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at, 3))
        for steps in [3], [1], [3, 4], [2, 4]:
            await refused(engine, Commit("t", rows=[sample_records.row(at, n, payload=b"other") for n in steps]))
        swap = Swap("t", sample_records.head(at, 3).key, sample_records.head(at, 3, 2))
        await refused(engine, Commit("t", swaps=[swap], rows=[sample_records.row(at, 3, payload=b"other")]))

    @case
    async def test_a_taken_branch_id_is_refused_wherever_it_was_taken(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        await refused(engine, Commit("t", branches=[at]))
        elsewhere = msgspec.structs.replace(at, lineage="other", thread="other")
        await engine.commit(sample_records.first(sample_records.branch("other")))
        before = await sample_records.everything(engine, "other")
        with pytest.raises(Refused):
            await engine.commit(
                Commit("other", branches=[sample_records.branch("other", 2), elsewhere], blobs={b"x": b"x"})
            )
        assert await sample_records.everything(engine, "other") == before

    @case
    async def test_a_row_for_a_branch_that_is_nowhere_is_refused(self, engine: Engine) -> None:
        at, gone = sample_records.branch("t"), sample_records.branch("t", 9)
        await engine.commit(sample_records.first(at))
        await refused(engine, Commit("t", rows=[sample_records.row(gone, 1)]))
        await refused(engine, Commit("t", rows=[sample_records.row(at, 2), sample_records.row(gone, 1)]))

    @case
    async def test_a_commit_behind_a_stale_fence_is_refused(self, engine: Engine) -> None:
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        following = sample_records.following(sample_records.head(at), at)
        await refused(engine, msgspec.structs.replace(following, fence=Fence("never taken", 1)), LockLost)
        first = await engine.lease("the lock", "me", 60)
        assert await engine.release("the lock", "me")
        second = await engine.lease("the lock", "you", 60)
        assert isinstance(first, Lease)
        assert isinstance(second, Lease)
        for token in first.token, second.token + 1, 0:
            await refused(engine, msgspec.structs.replace(following, fence=Fence("the lock", token)), LockLost)
