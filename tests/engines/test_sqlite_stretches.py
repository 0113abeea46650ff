"""Stretches locate the rows of a branch: rows are stored in the order they were written."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backtrail.engines.base import LAST_STEP, Branch, Commit, Drop, Engine, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish as step
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.engines.sqlite import statements as sql
from backtrail.testing import sample_records


def counted(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def begin(engine: Engine, *branches: Branch) -> None:
    for branch in branches:
        step(engine.commit(sample_records.first(branch)))


def add(engine: Engine, branch: Branch, number: int) -> None:
    step(engine.commit(Commit(branch.lineage, rows=[sample_records.row(branch, number)])))


def seen(engine: Engine, branch: Branch) -> dict[str, Any]:
    """All that an engine tells about the rows of a branch, asked for in several ways."""
    where = (branch.lineage, branch.id)
    return {
        "all": step(engine.steps(*where, 0, LAST_STEP)),
        "rows": step(engine.rows(*where, 1, 40)),
        "some": step(engine.payloads(*where, 3, 7)),
        "one": [step(engine.row(*where, number)) for number in range(1, 12)],
        "located": sorted(step(engine.locate(branch.lineage, bytes(16), b"\xff" * 16, 1000))),
        "tip": step(engine.tip(branch.thread)),
    }


def test_a_branch_that_is_written_alone_has_one_stretch(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db")
    one, other = sample_records.branch("one"), sample_records.branch("other")
    begin(engine, one)
    for number in range(2, 40):
        add(engine, one, number)
    assert counted(tmp_path / "s.db", "stretches") == 1
    begin(engine, other)
    add(engine, one, 40)
    add(engine, one, 41)
    assert counted(tmp_path / "s.db", "stretches") == 3
    assert [found.step for found in step(engine.steps("one", one.id, 1, LAST_STEP))] == list(range(1, 42))
    assert [found for found, _ in step(engine.payloads("one", one.id, 38, 41))] == [38, 39, 40, 41]
    step(engine.close())


def test_stretches_of_which_nothing_is_left_go_and_a_range_over_them_stays_right(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db")
    one, other = sample_records.branch("one"), sample_records.branch("other")
    begin(engine, one, other)
    for number in range(2, 30):
        add(engine, one, number)
        add(engine, other, number)
    head = step(engine.head("one"))
    assert head is not None
    gone = [(one.id, number) for number in range(2, 29)]
    step(engine.drop(Drop("one", expect=[("one", head.key)], rows=gone)))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        number = connection.execute("SELECT n FROM branches WHERE lineage = 'one'").fetchone()[0]
        kept = connection.execute("SELECT first FROM stretches WHERE branch = ? ORDER BY first", (number,)).fetchall()
    assert kept == [(1,), (2,), (29,)]
    assert [found.step for found in step(engine.steps("one", one.id, 1, LAST_STEP))] == [1, 29]
    assert [found for found, _ in step(engine.payloads("one", one.id, 1, 29))] == [1, 29]
    assert len(step(engine.steps("other", other.id, 1, LAST_STEP))) == 29
    add(engine, one, 30)
    assert [found.step for found in step(engine.steps("one", one.id, 2, 31))] == [29, 30]
    step(engine.close())


@pytest.mark.parametrize("name", ["EMPTY_STRETCHES", "DELETE_EMPTY_STRETCHES"])
def test_a_sweep_looks_at_the_stretches_of_the_steps_that_it_drops(tmp_path: Path, name: str) -> None:
    work = []
    for length in 40, 400:
        path = tmp_path / f"{length}.db"
        engine = SQLiteEngine(path, durability="normal")
        one, other = sample_records.branch("one"), sample_records.branch("other")
        begin(engine, one, other)
        for number in range(2, length):
            add(engine, one, number)
            add(engine, other, number)
        step(engine.close())
        executed = 0

        def count() -> int:
            nonlocal executed
            executed += 1
            return 0

        with closing(sqlite3.connect(path)) as connection:
            connection.set_progress_handler(count, 1)
            connection.execute(getattr(sql, name), (1, length // 2, length // 2 + 5))
        work.append(executed)
    assert work[1] < 1.5 * work[0]


def test_no_position_is_used_twice(tmp_path: Path) -> None:
    """Else a gap that a sweep has left could fill up with rows of somebody else."""
    engine = SQLiteEngine(tmp_path / "s.db")
    one, other = sample_records.branch("one"), sample_records.branch("other")
    begin(engine, one)
    add(engine, one, 2)
    add(engine, one, 3)
    head = step(engine.head("one"))
    assert head is not None
    expect = [("one", head.key)]
    step(engine.drop(Drop("one", expect=expect, rows=[(one.id, 3)])))
    assert step(engine.stats())["rows"] == 2
    begin(engine, other)
    add(engine, one, 3)
    assert step(engine.stats())["rows"] == 4
    assert [found.step for found in step(engine.steps("one", one.id, 1, LAST_STEP))] == [1, 2, 3]
    step(engine.drop(Drop("one", expect=expect, rows=[(one.id, 3)])))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT pos FROM steps WHERE branch = 0").fetchall() == [(5,)], "one keeper, not two"
    step(engine.close())


def test_compaction_finds_stretches_that_were_lost_and_joins_those_that_touch(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db")
    one, other = sample_records.branch("one"), sample_records.branch("other")
    begin(engine, one, other)
    for number in range(2, 12):
        add(engine, one, number)
        add(engine, other, number)
    before = [seen(engine, branch) for branch in (one, other)]
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM stretches WHERE first BETWEEN 3 AND 8")
        connection.execute("UPDATE stretches SET pos = pos + 2 WHERE first = 1")
    assert [seen(engine, branch) for branch in (one, other)] != before
    step(engine.compact())
    assert [seen(engine, branch) for branch in (one, other)] == before
    step(engine.close())


def test_a_row_that_is_there_is_refused_also_when_others_were_written_since(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db")
    one, other = sample_records.branch("one"), sample_records.branch("other")
    begin(engine, one, other)
    add(engine, one, 2)
    begin(engine, sample_records.branch("third"))
    for number in (1, 2):
        with pytest.raises(Refused):
            add(engine, one, number)
    assert len(step(engine.steps("one", one.id, 1, LAST_STEP))) == 2
    step(engine.close())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_written_and_swept_in_whatever_order_reads_like_in_memory(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    engines: list[Engine] = [SQLiteEngine(tmp_path / "s.db", durability="normal"), MemoryEngine()]
    branches = [sample_records.branch("t", n) for n in range(1, 4)] + [
        sample_records.branch("u"),
        sample_records.branch("v"),
    ]
    last = dict.fromkeys(range(len(branches)), 0)
    started: set[str] = set()
    for _ in range(120):
        which = dice.randrange(len(branches))
        branch = branches[which]
        commits: list[Commit] = []
        if last[which] == 0:
            last[which] = 1
            swap = [] if branch.thread in started else [Swap(branch.thread, None, sample_records.head(branch))]
            started.add(branch.thread)
            commits.append(Commit(branch.lineage, swap, [sample_records.row(branch, 1)], [branch]))
        elif dice.random() < 0.75:
            first = last[which] + dice.choice((1, 1, 1, 2, 4))  # copies of swept branches leave steps out
            rows = [sample_records.row(branch, number) for number in range(first, first + dice.choice((1, 1, 3)))]
            last[which] = rows[-1].step
            commits.append(Commit(branch.lineage, rows=rows))
        elif dice.random() < 0.4:
            marks = [Mark(branch.id, dice.randint(1, last[which]), dice.choice((b"said", None)))]
            commits.append(Commit(branch.lineage, marks=marks))
        for engine in engines:
            for commit in commits:
                step(engine.commit(commit))
        if not commits:
            gone = [(branch.id, dice.randint(2, last[which] + 1)) for _ in range(dice.randint(1, 6))]
            bodies = [(branch.id, dice.randint(1, last[which]))]
            whole = [branch.id] if which in (1, 2) and dice.random() < 0.3 else []
            for engine in engines:
                heads = [(head.thread, head.key) for head in step(engine.heads(branch.lineage))]
                step(engine.drop(Drop(branch.lineage, heads, rows=gone, bodies=bodies, branches=whole)))
            if whole:
                last[which] = 0
            elif (branch.id, last[which]) in gone and dice.random() < 0.5:
                last[which] -= 1  # and is written anew, as a repair does
        if dice.random() < 0.1:
            step(engines[0].compact())  # tells anew where everything is
        for watched in branches:
            sqlite, memory = (seen(engine, watched) for engine in engines)
            assert sqlite == memory
    assert step(engines[0].stats())["rows"] == step(engines[1].stats())["rows"]
    for engine in engines:
        step(engine.close())
