"""`threads` and `lineages`: by name or by age, in pages, never by pattern."""

from __future__ import annotations

import msgspec

from backtrail.engines.base import Commit, Drop, Engine, Head, Swap
from backtrail.testing import sample_records
from backtrail.testing.contract.binding import Binding, case

NAMES = [
    "a", "a%", "a%b", "a_", "a_b", "ab", "a*", "a*b", "a?", "a[b]", "a\\", "a\\b", "a\\%", "A", "a\u007f", "aé",
    "a\uffff", "a😀", "a😀b", "a\U0010ffff", "a\U0010ffff\U0010ffff", "b", "é", "日本", "日本語", "😀", "\U0010ffff",
    "user:1", "user:10", "user:2",
]  # fmt: skip


async def begin(engine: Engine, name: str, updated: int = 0, kind: str = "thread") -> Head:
    """A thread with one step."""
    at = sample_records.branch(name)
    head = sample_records.head(at, kind=kind, updated=updated)
    await engine.commit(
        Commit(at.lineage, swaps=[Swap(name, None, head)], rows=[sample_records.row(at, 1)], branches=[at])
    )
    return head


class ListingCases(Binding):
    """Listings of threads and lineages, and their order."""

    @case
    async def test_threads_come_by_name_in_the_order_of_code_points(self, engine: Engine) -> None:
        heads = {name: await begin(engine, name) for name in reversed(NAMES)}
        assert await engine.threads() == [heads[name] for name in sorted(NAMES)]

    @case
    async def test_a_prefix_is_text_and_never_a_pattern(self, engine: Engine) -> None:
        for name in NAMES:
            await begin(engine, name)
        for prefix in [*NAMES, "", "%", "_", "*", "?", "a[", "u", "user:", "user:1", "nobody", "\\", "a\\\\"]:
            found = [head.thread for head in await engine.threads(prefix=prefix)]
            assert found == sorted(name for name in NAMES if name.startswith(prefix)), prefix

    @case
    async def test_threads_come_in_pages(self, engine: Engine) -> None:
        for name in NAMES:
            await begin(engine, name)
        for prefix in "", "a", "a\\":
            expected, found, after = sorted(name for name in NAMES if name.startswith(prefix)), [], None
            while page := await engine.threads(prefix=prefix, after=after, limit=3):
                assert len(page) <= 3
                found += [head.thread for head in page]
                after = found[-1]
            assert found == expected
        assert await engine.threads(limit=0) == []
        assert await engine.threads(after="\U0010ffff") == []
        between = await engine.threads(after="aa", limit=1)
        assert [head.thread for head in between] == ["ab"], "`after` need not exist"

    @case
    async def test_a_prefix_and_an_after_outside_of_it(self, engine: Engine) -> None:
        for name in "a1", "b1", "b2", "c1":
            await begin(engine, name)
        for after, expected in [("a1", ["b1", "b2"]), ("b1", ["b2"]), ("c1", []), ("", ["b1", "b2"])]:
            assert [head.thread for head in await engine.threads(prefix="b", after=after)] == expected

    @case
    async def test_newest_first_goes_by_the_last_change_and_then_by_name(self, engine: Engine) -> None:
        times = {"a": 5, "b": 9, "c": 5, "d": 1, "e": 9, "f": 2**53 - 1, "g": 2**53 - 2, "é": 5}
        for name, updated in times.items():
            await begin(engine, name, updated)
        newest = sorted(times, key=lambda name: (times[name], name), reverse=True)
        assert [head.thread for head in await engine.threads(newest_first=True)] == newest
        found: list[str] = []
        while page := await engine.threads(newest_first=True, limit=2, after=found[-1] if found else None):
            found += [head.thread for head in page]
        assert found == newest
        assert await engine.threads(newest_first=True, limit=0) == []
        assert await engine.threads(newest_first=True, after="never there") == []

    @case
    async def test_a_thread_that_moves_becomes_the_newest(self, engine: Engine) -> None:
        heads = [await begin(engine, name, updated) for name, updated in (("a", 10), ("b", 20), ("c", 30))]
        moved = msgspec.structs.replace(heads[0], updated=40, version=2)
        await engine.commit(Commit("a", swaps=[Swap("a", heads[0].key, moved)]))
        assert await engine.threads(newest_first=True) == [moved, heads[2], heads[1]]
        await engine.commit(Commit("c", swaps=[Swap("c", heads[2].key, None)]))
        assert await engine.threads(newest_first=True) == [moved, heads[1]]

    @case
    async def test_a_kind_is_found_in_either_order(self, engine: Engine) -> None:
        kinds = {"s1": "session", "r1": "run", "s2": "session", "t1": "thread", "s3": "session"}
        for n, (name, kind) in enumerate(kinds.items(), 1):
            await begin(engine, name, n * 10, kind)
        assert [head.thread for head in await engine.threads(kind="session")] == ["s1", "s2", "s3"]
        assert [head.thread for head in await engine.threads(kind="session", after="s1", limit=1)] == ["s2"]
        assert [head.thread for head in await engine.threads(kind="session", newest_first=True)] == ["s3", "s2", "s1"]
        after_another_kind = await engine.threads(kind="session", newest_first=True, after="t1")
        assert [head.thread for head in after_another_kind] == ["s2", "s1"]
        assert [head.thread for head in await engine.threads(kind="run", prefix="r", newest_first=True)] == ["r1"]
        assert await engine.threads(kind="nothing") == []

    @case
    async def test_a_thread_may_change_its_kind(self, engine: Engine) -> None:
        at, before = sample_records.branch("t"), await begin(engine, "t", 10)
        await begin(engine, "u", 20)
        after = msgspec.structs.replace(sample_records.head(at, 2, 2), kind="session", updated=30)
        await engine.commit(Commit("t", swaps=[Swap("t", before.key, after)], rows=[sample_records.row(at, 2)]))
        assert (
            await engine.threads(kind="session") == await engine.threads(kind="session", newest_first=True) == [after]
        )
        assert [head.thread for head in await engine.threads(kind="thread")] == ["u"]
        assert [head.thread for head in await engine.threads(newest_first=True)] == ["t", "u"]

    @case
    async def test_a_prefix_is_text_in_the_order_of_age_too(self, engine: Engine) -> None:
        for n, name in enumerate(["a_1", "ab1", "a_2", "b"], 1):
            await begin(engine, name, n)
        assert [head.thread for head in await engine.threads(prefix="a_", newest_first=True)] == ["a_2", "a_1"]
        page = await engine.threads(prefix="a", newest_first=True, after="a_2", limit=5)
        assert [head.thread for head in page] == ["ab1", "a_1"]

    @case
    async def test_lineages_are_those_that_still_have_something(self, engine: Engine) -> None:
        await begin(engine, "with a head")
        await engine.commit(Commit("with a branch", branches=[sample_records.branch("with a branch")]))
        await engine.commit(Commit("with a blob", blobs={b"a": b"1"}))
        await engine.commit(Commit("ünïcode", blobs={b"a": b"1"}))
        await begin(engine, "fork", 0)
        names = ["fork", "with a blob", "with a branch", "with a head", "ünïcode"]
        assert await engine.lineages() == names
        assert await engine.lineages(limit=2) == names[:2]
        assert await engine.lineages(after=names[1], limit=2) == names[2:4]
        assert await engine.lineages(after="with") == names[1:]
        assert await engine.lineages(limit=0) == []
        await engine.drop(Drop("with a blob", [], blobs=[b"a"]))
        await engine.drop(Drop("with a branch", [], branches=[sample_records.branch("with a branch").id]))
        assert await engine.lineages() == ["fork", "with a head", "ünïcode"]
        at = sample_records.branch("fork")
        await engine.commit(Commit("fork", swaps=[Swap("fork", sample_records.head(at).key, None)]))
        assert "fork" in await engine.lineages(), "its branch is still there"
        await engine.drop(Drop("fork", [], branches=[at.id]))
        assert await engine.lineages() == ["with a head", "ünïcode"]
