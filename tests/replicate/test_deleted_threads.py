"""Tombstones: they tell a thread that was deleted from one that a side never had, and are cleared when that is over."""

from __future__ import annotations

import time
from types import SimpleNamespace

import msgspec
import pytest

from backtrail.engines.base import Commit, Head, Swap, next_version
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Corrupt
from backtrail.replicate.deleted_threads import (
    Deletions,
    Fate,
    Tombstone,
    clear_tombstones,
    fate,
    find_deletions,
    write_tombstone,
)
from backtrail.testing import sample_records

OWN = sample_records.branch("t")
ANOTHER = b"another".ljust(16)


def head(generation: int, changes: int = 1, owner: bytes = OWN.owner) -> Head:
    version = next_version(changes - 1, generation)
    return msgspec.structs.replace(sample_records.head(OWN, 1, version), owner=owner)


def stones(side: MemoryEngine) -> int:
    return len(finish(side.threads()))


@pytest.mark.parametrize(
    ("written", "own", "others", "expected"),
    [
        (head(1), None, 0, Fate.ALIVE),
        (head(2), None, 1, Fate.ALIVE),
        (head(2), None, 2, Fate.ALIVE),
        (head(1), None, 2, Fate.OUSTED),
        (head(1, 3), Tombstone(1, head(1, 3).version, "t"), 0, Fate.DEAD),
        (head(1, 2), Tombstone(2, head(1, 3).version, "t"), 0, Fate.DEAD),  # it moved on before it was deleted
        (head(2, 4), Tombstone(1, head(1, 3).version, "t"), 0, Fate.NEWER),
        (head(1, 4), Tombstone(1, head(1, 3).version, "t"), 0, Fate.NEWER),
        (head(1, 4), Tombstone(2, head(1, 3).version, "t"), 0, Fate.UNSEEN),
        (head(1, 2), Tombstone(2, head(2, 9).version, "t"), 0, Fate.UNSEEN),  # by its number it would be older
    ],
)
def test_the_fate_of_a_head(written: Head, own: Tombstone | None, others: int, expected: Fate) -> None:
    assert fate(written, Deletions(own, {ANOTHER: others} if others else {})) is expected


def test_a_tombstone_is_found_by_name_and_incarnation() -> None:
    side = MemoryEngine()
    finish(write_tombstone(side, head(1, 3), 1))
    finish(write_tombstone(side, head(2, 1, ANOTHER), 3))
    found = finish(find_deletions((side,), head(2)))
    assert found == Deletions(Tombstone(1, head(1, 3).version, "t"), {ANOTHER: 3})
    elsewhere = msgspec.structs.replace(head(1), thread="another name")
    assert finish(find_deletions((side,), elsewhere)) == Deletions(None, {})


def test_a_tombstone_tells_which_rows_went_with_the_thread() -> None:
    side = MemoryEngine()
    finish(side.commit(sample_records.first(OWN)))
    tip, undone = (sample_records.branch("t", n, origin=(OWN.id, 1)) for n in (2, 3))
    rows = [sample_records.row(tip, 2), sample_records.row(tip, 3), sample_records.row(undone, 2)]
    finish(side.commit(Commit("t", rows=rows, branches=[tip, undone])))
    finish(write_tombstone(side, sample_records.head(tip, 3, head(1, 2).version), 1))
    assert not finish(find_deletions((side,), head(1))).knew((OWN.id, 1))  # it is still there
    finish(side.commit(Commit("t", [Swap("t", sample_records.head(OWN, 1).key, None)])))
    deletions = finish(find_deletions((side,), head(1)))
    assert deletions.own is not None
    assert dict(deletions.own.known) == {tip.id: 3, OWN.id: 1, undone.id: 2}
    assert [deletions.knew((tip.id, step)) for step in (2, 3, 4)] == [True, True, False]
    assert [deletions.knew((undone.id, step)) for step in (2, 3)] == [True, False]
    assert deletions.knew((b"a later branch", 2)) is False


def test_a_tombstone_of_a_thread_with_many_branches_says_that_it_does_not_name_them_all() -> None:
    side = MemoryEngine()
    finish(side.commit(sample_records.first(OWN)))
    many = [sample_records.branch("t", n, origin=(OWN.id, 1)) for n in range(2, 102)]
    rows = [sample_records.row(branch, 2) for branch in many]
    finish(side.commit(Commit("t", rows=rows, branches=many)))
    finish(write_tombstone(side, sample_records.head(OWN, 1, head(1, 2).version), 1))
    finish(side.commit(Commit("t", [Swap("t", sample_records.head(OWN, 1).key, None)])))
    deletions = finish(find_deletions((side,), head(1)))
    assert deletions.knew((OWN.id, 1)) is True
    assert deletions.knew((many[-1].id, 2)) is True
    assert deletions.knew((many[-1].id, 3)) is False
    assert deletions.knew((many[0].id, 2)) is None


def test_of_several_tombstones_of_an_incarnation_the_newest_counts() -> None:
    one, two = MemoryEngine(), MemoryEngine()
    finish(write_tombstone(one, head(1, 5), 3))
    finish(write_tombstone(one, head(1, 2), 1))  # an older one does not replace it
    finish(write_tombstone(two, head(1, 4), 2))
    assert stones(one) == 1
    newest = Tombstone(3, head(1, 5).version, "t")
    assert finish(find_deletions((one, two), head(1))).own == newest
    finish(write_tombstone(two, head(1, 6), 4))
    assert finish(find_deletions((one, two), head(1))).own == Tombstone(4, head(1, 6).version, "t")


def test_a_tombstone_is_void_while_its_side_has_the_thread() -> None:
    side = MemoryEngine()
    finish(side.commit(sample_records.first(OWN)))
    finish(write_tombstone(side, head(1), 1))
    assert finish(find_deletions((side,), head(1))) == Deletions(None, {})
    assert finish(find_deletions((side,), head(1, 1, ANOTHER))) == Deletions(None, {})


def test_a_tombstone_is_cleared_when_it_is_old_and_neither_side_has_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side, other = MemoryEngine(), MemoryEngine()
    finish(write_tombstone(side, head(1), 1))
    finish(other.commit(sample_records.first(OWN)))
    finish(clear_tombstones(side, other))
    assert stones(side) == 1
    later = time.time_ns() + 3601 * 10**9
    monkeypatch.setattr("backtrail.replicate.deleted_threads.time", SimpleNamespace(time_ns=lambda: later))
    finish(clear_tombstones(side, other))
    assert stones(side) == 1  # the other side still has it
    finish(clear_tombstones(side, MemoryEngine()))
    assert stones(side) == 0


def test_a_damaged_tombstone_is_damage_and_no_deletion() -> None:
    side = MemoryEngine()
    finish(write_tombstone(side, head(1), 1))
    [stone] = finish(side.threads())
    damaged = msgspec.structs.replace(stone, note=b"\xc1", version=stone.version + 1)
    finish(side.commit(Commit(stone.lineage, (Swap(stone.thread, stone.key, damaged),))))
    with pytest.raises(Corrupt, match="tombstone"):
        finish(find_deletions((side,), head(1)))
