"""Copying a lineage: everything comes before the heads, except for the rows that are held back for their commit."""

from __future__ import annotations

import pytest

from backtrail.engines.base import LAST_STEP, Commit, Drop, Engine, Mark, Position, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate import lineage_copy
from backtrail.replicate.lineage_copy import Copied, CountingEngine, LineageRecords, copy_blobs, copy_rows
from backtrail.testing import sample_records

OWN = sample_records.branch("t")
many = pytest.mark.usefixtures("many_rows")


@pytest.fixture
def source() -> MemoryEngine:
    """A thread of ten rows with a mark on the third and the last, and three blobs."""
    engine = MemoryEngine()
    finish(engine.commit(sample_records.first(OWN, 10)))
    marks = [Mark(OWN.id, 3, b"third"), Mark(OWN.id, 10, b"tenth")]
    finish(engine.commit(Commit("t", marks=marks, blobs={bytes([n]): bytes(n) for n in range(3)})))
    return engine


def copied(source: Engine, target: Engine, *hold: Position) -> Commit:
    return finish(copy_rows(source, target, "t", {OWN: range(1, 11)}, (), hold))


def steps(side: MemoryEngine) -> list[int]:
    return [step.step for step in finish(side.steps("t", OWN.id, 0, LAST_STEP))]


def test_a_few_rows_all_come_with_the_heads(source: MemoryEngine) -> None:
    target = MemoryEngine()
    held = copied(source, target)
    assert [row.step for row in held.rows] == list(range(1, 11))
    assert (held.branches, len(held.marks)) == ([OWN], 2)
    assert finish(target.branches("t")) == []


def test_a_few_rows_that_are_large_do_not(source: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_copy, "_BATCH", 60)
    target = MemoryEngine()
    held = copied(source, target)
    assert 1 <= len(held.rows) < 10
    assert steps(target) == [n for n in range(1, 11) if n not in {row.step for row in held.rows}]


@many
def test_the_last_row_of_a_branch_and_those_of_heads_are_held_back(source: MemoryEngine) -> None:
    target = MemoryEngine()
    held = copied(source, target, (OWN.id, 4))
    assert steps(target) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert [row.step for row in held.rows] == [4, 10]
    assert held.marks == [Mark(OWN.id, 10, b"tenth")]
    assert held.branches == []
    assert finish(target.steps("t", OWN.id, 3, 3))[0].mark == b"third"
    assert finish(target.heads("t")) == []


@many
def test_the_held_rows_complete_the_copy(source: MemoryEngine) -> None:
    target = MemoryEngine()
    counted = Copied()
    counting = CountingEngine(target, counted)
    finish(copy_blobs(source, counting, "t"))
    held = copied(source, counting)
    head = finish(source.head("t"))
    finish(target.commit(Commit("t", [Swap("t", None, head)], held.rows, held.branches, held.marks)))
    assert finish(sample_records.everything(target, "t")) == finish(sample_records.everything(source, "t"))
    assert counted.records == 9 + 3


def test_a_branch_of_one_row_is_held_back_with_its_row() -> None:
    source, target = MemoryEngine(), MemoryEngine()
    finish(source.commit(sample_records.first(OWN, 1)))
    held = finish(copy_rows(source, target, "t", {OWN: [1]}, (), ()))
    assert (held.branches, [row.step for row in held.rows]) == ([OWN], [1])
    assert finish(target.branches("t")) == []


@many
def test_a_branch_that_a_sweep_removes_before_the_heads_come_is_refused_with_them(source: MemoryEngine) -> None:
    target = MemoryEngine()
    held = copied(source, target)
    finish(target.drop(Drop("t", (), branches=[OWN.id])))  # no head needs it yet
    head = finish(source.head("t"))
    with pytest.raises(Refused):
        finish(target.commit(Commit("t", [Swap("t", None, head)], held.rows, held.branches, held.marks)))
    assert finish(target.head("t")) is None


def test_rows_that_a_sweep_removed_since_they_were_counted_are_not_passed_over(source: MemoryEngine) -> None:
    head = finish(source.head("t"))
    assert head is not None
    finish(source.drop(Drop("t", [("t", head.key)], rows=[(OWN.id, 1)])))
    with pytest.raises(Refused, match="look again"):
        copied(source, MemoryEngine())


def test_only_blobs_that_are_missing_are_copied(source: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_copy, "_BATCH", 1)
    target, told = MemoryEngine(), list[tuple[int, int]]()
    finish(target.commit(Commit("t", blobs={b"\1": bytes(1)})))
    counted = Copied(progress=lambda records, size: told.append((records, size)))
    finish(copy_blobs(source, CountingEngine(target, counted), "t"))
    assert finish(target.blob_ids("t")) == finish(source.blob_ids("t"))
    assert (counted.records, counted.bytes) == (2, 2)
    assert told[-1] == (2, 2)


def test_records_that_are_read_while_a_head_moves_are_refused(source: MemoryEngine) -> None:
    head = finish(source.head("t"))
    assert head is not None
    records = finish(LineageRecords.read(source, "t", {"t": head}))
    found = records.step((OWN.id, 3))
    assert found is not None
    assert (found.step, found.mark) == (3, b"third")
    assert records.step((OWN.id, 11)) is records.step((b"another", 1)) is None
    finish(source.commit(sample_records.following(head, OWN)))
    with pytest.raises(Refused, match="look again"):
        finish(LineageRecords.read(source, "t", {"t": head}))
