"""An ordinary save is one statement, and has the same effect as the statements that do any other commit."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backtrail.engines.base import Branch, Commit, Drop, Head, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.sqlite import SQLiteEngine, transactions
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step

TABLES = ("heads", "steps", "stretches", "branches", "counts", "marks")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SQLiteEngine]:
    opened = SQLiteEngine(tmp_path / "a.db", durability="normal")
    yield opened
    step(opened.close())


def contents(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in TABLES}


def trace(engine: SQLiteEngine) -> list[str]:
    """The statements that the writer runs from now on; one that fires a trigger is there once for each of its parts."""
    statements: list[str] = []
    assert engine._writer._connection is not None
    engine._writer._connection.connection.set_trace_callback(statements.append)
    return statements


def save(engine: SQLiteEngine, branch: Branch, version: int) -> None:
    step(engine.commit(sample_records.following(sample_records.head(branch, version, version), branch)))


def test_a_save_is_one_statement_and_threads_that_take_turns_are_no_exception(engine: SQLiteEngine) -> None:
    one, other = sample_records.branch("one"), sample_records.branch("other")
    for branch in (one, other):
        step(engine.commit(sample_records.first(branch)))
    statements = trace(engine)
    for version in range(1, 5):
        for branch in (one, other):
            statements.clear()
            save(engine, branch, version)
            assert len(set(statements)) == 1
            assert statements[0].startswith("INSERT INTO ordinary_save")
    save(engine, other, 5)  # right after its last row: no stretch begins
    for branch, last in ((one, 5), (other, 6)):
        assert [row.step for row in step(engine.rows(branch.lineage, branch.id, 1, 99))] == list(range(1, last + 1))


def test_a_save_is_one_statement_in_a_process_that_has_just_opened_the_store(tmp_path: Path) -> None:
    branch = sample_records.branch("one")
    first = SQLiteEngine(tmp_path / "a.db", durability="normal")
    step(first.commit(sample_records.first(branch)))
    step(first.close())
    again = SQLiteEngine(tmp_path / "a.db", durability="normal")
    step(again.rows(branch.lineage, branch.id, 1, 1))  # what a load reads tells the number of the branch
    statements = trace(again)
    save(again, branch, 1)
    assert len(set(statements)) == 1
    step(again.close())


def test_a_refused_save_changes_nothing_and_says_why(engine: SQLiteEngine) -> None:
    branch = sample_records.branch("one")
    step(engine.commit(sample_records.first(branch)))
    save(engine, branch, 1)
    before = contents(engine.path)
    with pytest.raises(Refused, match="one"):
        save(engine, branch, 1)  # its head is two versions on
    old = sample_records.head(branch, 2, 2)
    new = msgspec.structs.replace(old, step=2, version=3)
    with pytest.raises(Refused, match="step"):
        step(engine.commit(Commit("one", [Swap("one", old.key, new)], [sample_records.row(branch, 2)])))
    assert contents(engine.path) == before
    save(engine, branch, 2)


def test_a_save_to_a_branch_that_another_process_dropped_is_refused(engine: SQLiteEngine) -> None:
    one, other = sample_records.branch("one"), sample_records.branch("other")
    for branch in (one, other):
        step(engine.commit(sample_records.first(branch)))
    second = SQLiteEngine(engine.path, durability="normal")
    head = sample_records.head(one)
    step(second.drop(Drop("one", [("one", head.key)], branches=[one.id])))
    step(second.close())
    before = contents(engine.path)
    with pytest.raises(Refused):
        save(engine, one, 1)
    assert contents(engine.path) == before


@pytest.mark.parametrize("seed", range(6))
def test_the_statement_leaves_the_same_tables_as_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, used = random.Random(seed), 0
    at_once = transactions.write_at_once

    def counted(cursor: sqlite3.Cursor, writing: transactions.Writing) -> bool:
        nonlocal used
        done = at_once(cursor, writing)
        used += done
        return done

    monkeypatch.setattr(transactions, "write_at_once", counted)
    quick = SQLiteEngine(tmp_path / "quick.db", durability="normal")
    slow = SQLiteEngine(tmp_path / "slow.db", durability="normal")
    heads: dict[str, Head] = {}
    for turn in range(120):
        name = chance.choice("abc")
        branch = sample_records.branch(name)
        head = heads.get(name)
        change: Commit | Drop
        if head is None:
            change = sample_records.first(branch)
            heads[name] = sample_records.head(branch)
        elif chance.random() < 0.15:
            gone = [(branch.id, number) for number in range(1, head.step + 1) if chance.random() < 0.3]
            change = Drop(branch.lineage, [(name, head.key)], rows=gone)
        else:
            change = sample_records.following(head, branch)
            moved = change.swaps[0].new
            assert moved is not None
            heads[name] = moved
        for engine in (quick, slow):
            with monkeypatch.context() as patch:
                if engine is slow:
                    patch.setattr(transactions, "write_at_once", None)
                step(engine.drop(change) if isinstance(change, Drop) else engine.commit(change))
        assert contents(quick.path) == contents(slow.path), turn
    assert used > 50
    for engine in (quick, slow):
        step(engine.close())
