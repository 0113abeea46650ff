"""Damage to the table of stretches may hide rows, but nothing else, because every row names its branch."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backtrail.engines.base import LAST_STEP, Branch, Commit, Drop, Engine
from backtrail.engines.coroutines import finish as step
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.engines.sqlite import statements as sql
from backtrail.testing import sample_records


def woven(path: Path, dice: random.Random, steps: int = 24) -> tuple[SQLiteEngine, list[Branch]]:
    """A store of three branches that took turns, with some rows swept away."""
    engine = SQLiteEngine(path, durability="normal")
    branches = [sample_records.branch("t"), sample_records.branch("u"), sample_records.branch("v")]
    for branch in branches:
        step(engine.commit(sample_records.first(branch)))
    last = dict.fromkeys(range(3), 1)
    while min(last.values()) < steps:
        which = dice.randrange(3)
        rows = [sample_records.row(branches[which], last[which] + n) for n in range(1, dice.choice((2, 2, 4)))]
        last[which] = rows[-1].step
        step(engine.commit(Commit(branches[which].lineage, rows=rows)))
    for branch in branches:
        sweep(engine, branch, [number for number in range(2, steps) if dice.random() < 0.4])
    return engine, branches


def sweep(engine: Engine, branch: Branch, gone: list[int]) -> None:
    heads = [(head.thread, head.key) for head in step(engine.heads(branch.lineage))]
    step(engine.drop(Drop(branch.lineage, heads, rows=[(branch.id, number) for number in gone])))


def told(engine: Engine, branch: Branch) -> list[Any]:
    """Everything that an engine reads of a branch, in several ways."""
    where = (branch.lineage, branch.id)
    return [
        step(engine.rows(*where, 0, LAST_STEP)),
        step(engine.rows(*where, 5, 15)),
        [row for number in range(1, 30) if (row := step(engine.row(*where, number))) is not None],
        [
            found
            for found in step(engine.locate(branch.lineage, bytes(16), b"\xff" * 16, 1000))
            if found[0] == branch.id
        ],
    ]


def damage(path: Path, dice: random.Random) -> None:
    """Change or take away some of what the table says, to numbers and to what is none."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        found = connection.execute("SELECT branch, first FROM stretches").fetchall()
        for branch, first in dice.sample(found, min(len(found), dice.randint(1, 6))):
            column = dice.choice(("branch", "first", "pos", "pos", None))
            anything = [0, 1, 2, -1, sql.FAR, 2**63 - 1, -(2**63), 1.5, "x", b"\x01", dice.randint(1, 90)]
            what = "DELETE FROM stretches" if column is None else f"UPDATE OR IGNORE stretches SET {column} = ?"
            values = () if column is None else (dice.choice(anything),)
            connection.execute(f"{what} WHERE branch = ? AND first = ?", (*values, branch, first))


@pytest.mark.parametrize("seed", range(30))
def test_damaged_stretches_hide_rows_and_show_none_that_is_wrong(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    engine, branches = woven(tmp_path / "s.db", dice)
    before = {branch.id: told(engine, branch) for branch in branches}
    for _ in range(4):
        damage(tmp_path / "s.db", dice)
        for branch in branches:
            for now, was in zip(told(engine, branch), before[branch.id], strict=True):
                assert now == [found for found in was if found in now], "all of them right, once, and in order"
        sweep(engine, branches[0], [])  # looks after the last position, and takes nothing away
    step(engine.compact())
    assert {branch.id: told(engine, branch) for branch in branches} == before
    step(engine.close())


def test_rows_that_were_written_again_while_they_were_hidden_hide_no_others(tmp_path: Path) -> None:
    """A repair brings over what one side of a mirror seems to lack."""
    engine, (one, *_) = woven(tmp_path / "s.db", random.Random(1), steps=6)
    sweep(engine, one, list(range(2, 40)))
    rows = [sample_records.row(one, number) for number in range(2, 12)]
    step(engine.commit(Commit("t", rows=rows)))
    before = told(engine, one)
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM stretches WHERE branch = 1 AND first > 1")
    step(engine.commit(Commit("t", rows=rows[3:5])))
    step(engine.compact())
    assert told(engine, one) == before
    step(engine.close())


def test_after_compaction_a_branch_of_which_little_is_left_is_read_without_the_rows_of_others(tmp_path: Path) -> None:
    engine, (one, *_) = woven(tmp_path / "s.db", random.Random(2), steps=200)
    sweep(engine, one, list(range(2, 150)))
    before = told(engine, one)
    for _ in range(2):
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            ends = connection.execute("SELECT pos FROM stretches WHERE branch = 1 AND first = 2").fetchall()
        assert ends == [(sql.FAR,)], "the stretch of step 1 ends there"
        step(engine.compact())
        assert told(engine, one) == before
    step(engine.close())


def test_a_store_that_lost_all_of_its_rows_says_that_there_are_none(tmp_path: Path) -> None:
    engine, branches = woven(tmp_path / "s.db", random.Random(3))
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM steps")
    for branch in branches:
        assert told(engine, branch) == [[], [], [], []]
    step(engine.close())
