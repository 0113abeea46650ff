"""Listings and counts of a SQLite store: the work does not grow with the number of threads, nor a save's pages."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import backtrail
from backtrail.engines.base import LAST_STEP, Commit, Engine, Head, Mark, Swap
from backtrail.engines.namespace import NamespaceEngine
from backtrail.engines.sqlite import head_table, ordinary_save
from backtrail.engines.sqlite import statements as sql
from backtrail.engines.sqlite.engine import SQLiteEngine
from backtrail.engines.sqlite.reader_pool import ReaderPool
from backtrail.engines.sqlite.writer import GroupCommitWriter
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step
from fix_children import kill_at_work


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteEngine]:
    """An engine that keeps few threads unsorted, so that a small store behaves like a large one."""
    monkeypatch.setattr(head_table, "UNSORTED", 16)
    monkeypatch.setattr(head_table, "SORTED", 4)
    opened = SQLiteEngine(tmp_path / "a.db", durability="normal")
    yield opened
    step(opened.close())


def begin(engine: Engine, names: range) -> None:
    for number in names:
        at = sample_records.branch(f"t{number:05}")
        kind = "thread" if number % 5 else "run"
        head = sample_records.head(at, kind=kind, updated=1_000_000 + number)
        step(engine.commit(Commit(at.lineage, [Swap(at.thread, None, head)], [sample_records.row(at, 1)], [at])))


def work(engine: SQLiteEngine, call: Callable[[], object]) -> int:
    """The instructions that SQLite's virtual machine executes for a call."""
    executed = 0

    def count() -> int:
        nonlocal executed
        executed += 1
        return 0

    step(engine.ping())  # so that there is an idle connection, and one alone
    (connection,) = engine._readers._idle
    connection.set_progress_handler(count, 1)
    call()
    connection.set_progress_handler(None, 0)
    return executed


PAGES: dict[str, Callable[[SQLiteEngine], object]] = {
    "the newest": lambda engine: step(engine.threads(newest_first=True, limit=10)),
    "a page in the middle": lambda engine: step(engine.threads(newest_first=True, limit=10, after="t00100")),
    "the newest of a kind": lambda engine: step(engine.threads(newest_first=True, limit=3, kind="run")),
    "a kind by name": lambda engine: step(engine.threads(limit=3, kind="run")),
    "a page by name": lambda engine: step(engine.threads(limit=10, after="t00100")),
    "the newest with a common prefix": lambda engine: step(engine.threads(newest_first=True, limit=5, prefix="t0")),
    "a count": lambda engine: step(engine.count()),
    "the figures": lambda engine: step(engine.stats()),
}


def test_a_page_of_threads_and_a_count_cost_the_same_in_a_store_ten_times_as_large(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backtrail.engines.sqlite.engine.SEARCHED", 32)
    begin(engine, range(200))
    before = {name: work(engine, lambda: page(engine)) for name, page in PAGES.items()}  # noqa: B023 - called at once
    begin(engine, range(200, 2000))
    after = {name: work(engine, lambda: page(engine)) for name, page in PAGES.items()}  # noqa: B023 - called at once
    assert {name: after[name] for name in PAGES if after[name] > 1.5 * before[name] + 50} == {}, before


def test_the_newest_page_of_a_namespace_costs_a_page_however_many_threads_it_and_others_have(
    engine: SQLiteEngine,
) -> None:
    one, other = NamespaceEngine(engine, "one"), NamespaceEngine(engine, "other")
    pages: dict[str, Callable[[], list[Head]]] = {
        "the newest": lambda: step(one.threads(newest_first=True, limit=10)),
        "of a kind": lambda: step(one.threads(newest_first=True, limit=3, kind="run")),
        "a page in the middle": lambda: step(one.threads(newest_first=True, limit=10, after="t00100")),
    }
    begin(one, range(200))
    newest = [f"t{number:05}" for number in range(199, -1, -1)]
    assert [head.thread for head in pages["the newest"]()] == newest[:10]
    assert [head.thread for head in pages["of a kind"]()] == ["t00195", "t00190", "t00185"]
    assert [head.thread for head in pages["a page in the middle"]()] == [
        f"t{number:05}" for number in range(99, 89, -1)
    ]
    before = {name: work(engine, page) for name, page in pages.items()}
    begin(other, range(5000, 6000))
    begin(one, range(200, 2000))
    begin(other, range(6000, 6100))
    after = {name: work(engine, page) for name, page in pages.items()}
    assert [head.thread for head in pages["the newest"]()] == [f"t{number:05}" for number in range(1999, 1989, -1)]
    assert all(after[name] < 1.5 * before[name] + 50 for name in pages), (before, after)


def test_the_end_of_a_long_branch_costs_its_end(engine: SQLiteEngine) -> None:
    at = sample_records.branch("long")
    step(engine.commit(sample_records.first(at, 200)))
    mark = Mark(at.id, 190, b"m")
    step(engine.commit(Commit("long", marks=[mark])))
    asked: list[tuple[str, tuple[int, ...]]] = [
        (sql.LAST_STEP_OF, (195,)),
        (sql.LAST_STEP_OF, (1,)),
        (sql.NEWEST_STEPS, (1, 200, 5)),
        (sql.MARKED_STEPS, (1, 200)),
    ]
    short = [work(engine, lambda: engine._readers.fetch(one, (1, *values))) for one, values in asked]  # noqa: B023
    step(engine.commit(sample_records.following(sample_records.head(at, 200), at, 2000)))
    asked[0], asked[2], asked[3] = (
        (sql.LAST_STEP_OF, (2195,)),
        (sql.NEWEST_STEPS, (1, 2200, 5)),
        (sql.MARKED_STEPS, (1, 2200)),
    )
    long = [work(engine, lambda: engine._readers.fetch(one, (1, *values))) for one, values in asked]  # noqa: B023
    assert all(after < 2 * before for before, after in zip(short, long, strict=True)), (short, long)
    begin(engine, range(3))  # rows of other branches follow
    for first in 1, 2000, 2200, 2201, 2300, 5000:
        found = [one.step for one in step(engine.steps("long", at.id, first, LAST_STEP))]
        assert found == list(range(first, 2201))


def test_every_listing_has_an_index(engine: SQLiteEngine) -> None:
    begin(engine, range(3))
    listings = {
        sql.THREADS: 3,
        sql.THREADS_OF_KIND: 4,
        sql.NEWEST: 2,
        sql.NEWEST_AFTER: 4,
        sql.NEWEST_INSIDE: 5,
        sql.NEWEST_INSIDE_AFTER: 5,
        sql.HEADS: 3,
        sql.LINEAGES: 2,
    }
    for statement, values in listings.items():
        plan = [row[3] for row in engine._readers.fetch(f"EXPLAIN QUERY PLAN {statement}", [None] * values)]
        assert not [line for line in plan if line.startswith("SCAN") and "heads" in line], plan
        if statement in (sql.NEWEST_INSIDE, sql.NEWEST_INSIDE_AFTER):
            assert sum("heads_in_namespace" in line for line in plan) == 2, plan


def test_saves_of_a_thread_in_use_change_nothing_but_its_head(engine: SQLiteEngine) -> None:
    begin(engine, range(100))
    at = sample_records.branch("t00099")
    head = step(engine.threads(prefix="t00099"))[0]
    step(engine.commit(sample_records.following(head, at)))  # this one makes it unsorted
    assert engine._writer._connection is not None
    statements: list[str] = []
    engine._writer._connection.connection.set_trace_callback(statements.append)
    for version in 2, 3:
        step(engine.commit(sample_records.following(sample_records.head(at, version, version), at)))
    assert len(set(statements)) == 2, "one for each save"
    for table in ("heads", "stretches", "counts", "branches"):
        assert not any(f" {table} " in statement for statement in statements)
    assert {"kind", "listed"}.isdisjoint(ordinary_save._MOVED), "an index would be written"


def test_the_order_holds_however_many_threads_are_unsorted(engine: SQLiteEngine) -> None:
    begin(engine, range(120))
    heads = {head.thread: head for head in step(engine.threads())}
    chance, now = random.Random(3), 2_000_000
    for turn in range(400):
        old = heads[chance.choice(list(heads))]
        now += chance.choice((-3, 0, 1, 2))  # clocks of several machines do not agree
        new: Head | None = msgspec.structs.replace(
            old, updated=now, version=old.version + 1, kind=chance.choice(("thread", "run", old.kind, old.kind))
        )
        if turn % 20 == 0:
            new = None
        step(engine.commit(Commit(old.lineage, swaps=[Swap(old.thread, old.key, new)])))
        heads.pop(old.thread)
        if new is not None:
            heads[old.thread] = new
        if turn % 50 == 0:
            newest = sorted(heads.values(), key=lambda head: (head.updated, head.thread), reverse=True)
            assert step(engine.threads(newest_first=True)) == newest
            assert step(engine.threads(newest_first=True, limit=30, after=newest[20].thread)) == newest[21:51]
            ones = [head for head in newest if head.thread.startswith("t0001")]
            assert step(engine.threads(newest_first=True, limit=30, prefix="t0001")) == ones
            assert step(engine.check()) == []
    (unsorted,) = engine._readers.fetch("SELECT max(n) FROM counts WHERE what = 'unsorted'", ())[0]
    assert unsorted <= 16
    assert step(engine.count()) == len(heads)


def test_a_prefix_that_few_threads_have_is_found_among_many_newer_ones(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backtrail.engines.sqlite.engine.SEARCHED", 20)
    begin(engine, range(100))
    found = step(engine.threads(newest_first=True, limit=4, prefix="t0000"))
    assert [head.thread for head in found] == ["t00009", "t00008", "t00007", "t00006"]
    found = step(engine.threads(newest_first=True, limit=4, prefix="t0000", after="t00008", kind="thread"))
    assert [head.thread for head in found] == ["t00007", "t00006", "t00004", "t00003"]


def test_counts_that_are_wrong_are_reported_by_verify_and_mended_by_a_repair(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db") as store:
        for number in range(5):
            store.thread(f"t{number}").save({"n": number})
        store.session("s").append({"role": "user", "content": "x" * 5000})
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("UPDATE counts SET n = n + 7 WHERE what IN ('threads', 'missing rows', 'branches')")
        connection.execute("DELETE FROM counts WHERE what = 'unsorted'")
        connection.execute("UPDATE heads SET listed = 12 WHERE thread = 't3'")
        connection.commit()
    with backtrail.open(tmp_path / "a.db") as store:
        found = {damage.where for damage in store.verify().problems}
        assert found == {
            "the number of rows",
            "the number of branches",
            "the number of threads of the kind thread",
            "the number of threads of the kind session",
            "the number of unsorted of the kind thread",
            "the number of unsorted of the kind session",
            "the number of threads in the order of age",
        }
        assert {damage.where for damage in store.verify(repair=True).problems} == found
        assert store.verify().ok
        assert store.count() == 6
        assert [info.id for info in store.threads(newest_first=True)] == ["s", "t4", "t3", "t2", "t1", "t0"]


CHILD = """
import sys, backtrail
store = backtrail.open(sys.argv[1], durability="normal")
for number in range(100_000):
    thread = store.thread(f"{sys.argv[2]}{number % 40}")
    thread.append("items", [number])
    if number % 7 == 0:
        thread.rewind(1)
        thread.append("items", ["again"])
    if number % 5 == 0:
        thread.delete()
    if number == 60:
        print("busy", flush=True)
    if number % 50 == 0:
        store.prune()
"""


def test_counts_are_exact_after_several_processes_were_killed_at_work(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    step(SQLiteEngine(path).close())
    kill_at_work(CHILD, [str(path), "a"], [str(path), "b"])
    with backtrail.open(path) as store:
        assert store.verify().ok
        assert store.count() == len(store.threads()) == len(store.threads(newest_first=True)) > 0


def test_verify_and_prune_ask_a_few_times_for_each_small_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.db")
    with backtrail.open(path, durability="normal") as store:
        for number in range(30):
            store.thread(f"t{number}").save({"n": number})
    asked = 0
    for reader, name in ((GroupCommitWriter, "read"), (ReaderPool, "fetch")):
        original = getattr(reader, name)

        def counting(self: Any, *args: Any, _original: Any = original, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return _original(self, *args, **options)

        monkeypatch.setattr(reader, name, counting)
    with backtrail.open(path) as store:
        asked = 0
        assert store.verify().ok
        assert asked <= 30 * 5 + 10  # heads, branches, blobs, the last step, rows
    with backtrail.open(path) as store:
        asked = 0
        store.prune(backtrail.Retention(keep_last=1), dry_run=True)
        assert asked <= 30 * 4 + 10
