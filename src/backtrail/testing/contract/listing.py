"""`threads` and `lineages`: by name or by age, in pages, never by pattern."""

from __future__ import annotations

import random

import msgspec
import pytest

from backtrail.engines.base import Commit, Drop, Engine, Head, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.reserved_names import NAMESPACE_END, RESERVED
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
    async def test_the_order_of_age_holds_through_many_changes(self, engine: Engine) -> None:
        chance, heads, now = random.Random(7), dict[str, Head](), 1000  # noqa: S311
        for turn in range(150):
            name, now = f"t{chance.randrange(25):02}", now + chance.choice((0, 1, 5))
            old = heads.pop(name, None)
            if old is None:
                heads[name] = await begin(engine, name, now, chance.choice(("thread", "session")))
            else:
                kind = chance.choice((old.kind, old.kind, "run"))
                moved = msgspec.structs.replace(old, updated=now, version=old.version + 1, kind=kind)
                gone = turn % 10 == 0
                await engine.commit(Commit(name, swaps=[Swap(name, old.key, None if gone else moved)]))
                if gone:
                    await engine.drop(Drop(name, [], branches=[old.branch]))
                else:
                    heads[name] = moved
        newest = sorted(heads.values(), key=lambda head: (head.updated, head.thread), reverse=True)
        assert await engine.threads(newest_first=True) == newest
        for kind in "thread", "session", "run":
            found: list[Head] = []
            while page := await engine.threads(
                newest_first=True, limit=3, kind=kind, after=found[-1].thread if found else None
            ):
                found += page
            assert found == [head for head in newest if head.kind == kind]
        assert await engine.count() == len(heads)
        assert await engine.check() == []

    @case
    async def test_the_newest_of_a_namespace_are_found_among_those_of_others(self, engine: Engine) -> None:
        chance, heads, now = random.Random(11), dict[str, Head](), 1000  # noqa: S311
        prefixes = ["", f"{RESERVED}a{NAMESPACE_END}", f"{RESERVED}ab{NAMESPACE_END}", f"{RESERVED}é{NAMESPACE_END}"]
        for turn in range(120):
            name, now = f"{chance.choice(prefixes)}t{chance.randrange(8)}", now + chance.choice((0, 1, 5))
            old = heads.pop(name, None)
            if old is None:
                at = sample_records.branch(name, turn)
                heads[name] = head = sample_records.head(at, kind=chance.choice(("thread", "session")), updated=now)
                await engine.commit(
                    Commit(name, [Swap(name, None, head)], rows=[sample_records.row(at, 1)], branches=[at])
                )
            elif turn % 10 == 0:
                await engine.commit(Commit(name, swaps=[Swap(name, old.key, None)]))
            else:
                at, step = sample_records.branch(name), old.step + 1
                kind = chance.choice((old.kind, old.kind, "run"))
                heads[name] = head = msgspec.structs.replace(
                    old, updated=now, step=step, version=old.version + 1, kind=kind
                )
                row = sample_records.row(at, step)._replace(branch=old.branch)
                await engine.commit(Commit(name, [Swap(name, old.key, head)], rows=[row]))
        newest = sorted(heads.values(), key=lambda head: (head.updated, head.thread), reverse=True)
        for prefix in [*prefixes[1:], prefixes[1] + "t", RESERVED, f"{RESERVED}none{NAMESPACE_END}"]:
            for only in None, "thread", "session", "run":
                found: list[Head] = []
                while page := await engine.threads(
                    newest_first=True, limit=3, prefix=prefix, kind=only, after=found[-1].thread if found else None
                ):
                    found += page
                own = [head for head in newest if head.thread.startswith(prefix)]
                assert found == [head for head in own if only in (None, head.kind)], (prefix, only)

    @case
    async def test_threads_are_counted_by_prefix(self, engine: Engine) -> None:
        assert await engine.count() == 0
        for name in NAMES:
            await begin(engine, name)
        for prefix in ["", "a", "a%", "a_", "日本", "user:", "nobody", "\U0010ffff"]:
            assert await engine.count(prefix) == sum(name.startswith(prefix) for name in NAMES), prefix
        at = sample_records.branch("ab")
        await engine.commit(Commit("ab", swaps=[Swap("ab", sample_records.head(at).key, None)]))
        assert await engine.count() == len(NAMES) - 1
        with pytest.raises(Refused):
            await engine.commit(sample_records.first(sample_records.branch("b", 2)))
        assert await engine.count() == len(NAMES) - 1

    @case
    async def test_the_figures_are_exact_after_sweeps_and_refusals(self, engine: Engine) -> None:
        names = [f"t{number}" for number in range(6)]
        for name in names:
            at, head = sample_records.branch(name), await begin(engine, name)
            for step in range(2, 6):
                new = msgspec.structs.replace(head, step=step, version=step)
                rows = [sample_records.row(at, step)]
                await engine.commit(Commit(name, [Swap(name, head.key, new)], rows, blobs={bytes([step]): b"x" * step}))
                head = new
            with pytest.raises(Refused):
                await engine.commit(
                    Commit(name, rows=[sample_records.row(at, 5, payload=b"2")], blobs={b"never": b"there"})
                )
        figures = await engine.stats()
        assert [figures[what] for what in ("threads", "branches", "rows", "blobs")] == [6, 6, 30, 24]
        for name in names[3:]:  # the last ones written, and some in the middle
            head = (await engine.heads(name))[0]
            await engine.drop(
                Drop(name, [(name, head.key)], rows=[(head.branch, 2), (head.branch, 3)], blobs=[b"\2", b"\5", b"no"])
            )
            await engine.drop(Drop(name, [(name, head.key)], rows=[(head.branch, 2)]))
        head = (await engine.heads("t5"))[0]
        await engine.commit(Commit("t5", swaps=[Swap("t5", head.key, None)]))
        await engine.drop(Drop("t5", [], branches=[head.branch], blobs=[b"\3", b"\4"]))
        figures = await engine.stats()
        assert [figures[what] for what in ("threads", "branches", "rows", "blobs")] == [5, 5, 21, 16]
        await begin(engine, "afterwards")
        refill = sample_records.branch("t4")
        await engine.commit(Commit("t4", rows=[sample_records.row(refill, 2)], blobs={b"new": b"1"}))
        figures = await engine.stats()
        assert [figures[what] for what in ("threads", "branches", "rows", "blobs")] == [6, 6, 23, 17]
        assert await engine.check() == []

    @case
    async def test_the_figures_of_some_lineages_are_those_of_no_other(self, engine: Engine) -> None:
        for size, name in enumerate(["a", "b", "b fork", "bb", "c", "é", f"{RESERVED}n{NAMESPACE_END}b", RESERVED], 1):
            lineage = name.removesuffix(" fork")
            at = sample_records.branch(name, lineage=lineage)
            blobs = {bytes([number]): b"x" * 100 for number in range(size)}
            first = sample_records.first(at, size)
            await engine.commit(msgspec.structs.replace(first, blobs=blobs))
        whole = await engine.stats()
        for low, high, expected in [
            ("", None, [8, 8, 36, 34]),  # the fork and its parent share two blobs
            ("", RESERVED, [6, 6, 21, 19]),
            ("b", "c", [3, 3, 9, 7]),
            ("b", "b\x01", [2, 2, 5, 3]),
            ("bb", None, [5, 5, 30, 30]),
            (f"{RESERVED}n{NAMESPACE_END}", f"{RESERVED}n\x20", [1, 1, 7, 7]),
            ("x", "y", [0, 0, 0, 0]),
        ]:
            found = await engine.stats_between(low, high)
            assert [found[what] for what in ("threads", "branches", "rows", "blobs")] == expected, (low, high)
            assert (found["bytes"] > 100 * expected[3]) == (expected[0] > 0)
        assert [whole[what] for what in ("threads", "branches", "rows")] == [8, 8, 36]

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
