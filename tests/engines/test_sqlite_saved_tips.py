"""A tip that this process saved is found without a query, and never once anybody has changed it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from backtrail.engines.base import Branch, Commit, Drop, Head, Mark, Swap
from backtrail.engines.sqlite import SQLiteEngine, ordinary_save
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SQLiteEngine]:
    opened = SQLiteEngine(tmp_path / "a.db", durability="normal")
    yield opened
    step(opened.close())


def save(engine: SQLiteEngine, branch: Branch, version: int) -> Head:
    step(engine.commit(sample_records.following(sample_records.head(branch, version, version), branch)))
    return sample_records.head(branch, version + 1, version + 1)


def saved(branch: Branch, number: int) -> object:
    return (
        sample_records.head(branch, number, number),
        sample_records.as_row(sample_records.row(branch, number), payload=False),
    )


def test_a_tip_that_was_saved_here_is_read_with_no_query(engine: SQLiteEngine) -> None:
    branch = sample_records.branch("one")
    step(engine.commit(sample_records.first(branch)))
    for version in (1, 2):  # the first look at the number of other connections' commits only learns it
        save(engine, branch, version)
        step(engine.tip("one"))
    save(engine, branch, 3)
    statements: list[str] = []
    assert engine._writer._connection is not None
    engine._writer._connection.connection.set_trace_callback(statements.append)
    assert step(engine.tip("one")) == saved(branch, 4)
    assert statements == ["PRAGMA data_version"]


def test_a_save_of_another_process_is_seen_at_once(engine: SQLiteEngine) -> None:
    branch = sample_records.branch("one")
    step(engine.commit(sample_records.first(branch)))
    other = SQLiteEngine(engine.path, durability="normal")
    for version in range(1, 9):
        save(engine if version % 3 else other, branch, version)
        for reader in (engine, other):
            assert step(reader.tip("one")) == saved(branch, version + 1)
    step(other.close())


def test_a_save_that_is_interrupted_after_its_commit_leaves_no_old_tip(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = sample_records.branch("one")
    step(engine.commit(sample_records.first(branch)))
    for version in (1, 2):
        save(engine, branch, version)
        step(engine.tip("one"))
    commit_first = ordinary_save.save

    def interrupted(cursor: sqlite3.Cursor, values: object) -> bool:
        commit_first(cursor, values)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ordinary_save, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save(engine, branch, 3)
    assert step(engine.tip("one")) == saved(branch, 4)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_two_processes_do_each_finds_the_tip_that_is_stored(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    engines = [SQLiteEngine(tmp_path / "a.db", durability="normal") for _ in range(2)]
    heads: dict[str, Head] = {}
    for turn in range(150):
        name, engine = chance.choice("abc"), chance.choice(engines)
        branch, head = sample_records.branch(name), heads.get(name)
        what = chance.random()
        if head is None:
            step(engine.commit(sample_records.first(branch)))
            heads[name] = sample_records.head(branch)
        elif what < 0.1:
            step(engine.commit(Commit(name, marks=[Mark(branch.id, head.step, b"mark %d" % turn)])))
        elif what < 0.2:
            moved = msgspec.structs.replace(head, version=head.version + 1, note=b"moved")
            step(engine.commit(Commit(name, [Swap(name, head.key, moved)])))
            heads[name] = moved
        elif what < 0.3:
            step(engine.drop(Drop(name, [(name, head.key)], bodies=[(branch.id, head.step)])))
        else:
            commit = sample_records.following(head, branch)
            step(engine.commit(commit))
            assert commit.swaps[0].new is not None
            heads[name] = commit.swaps[0].new
        fresh = SQLiteEngine(tmp_path / "a.db", durability="normal", create=False)
        for thread in heads:
            assert [step(one.tip(thread)) for one in engines] == [step(fresh.tip(thread))] * 2, turn
        step(fresh.close())
    for one in engines:
        step(one.close())
