"""Versions of heads: they count changes, and the newer generation of a mirror is always the higher version."""

from __future__ import annotations

import pytest

import backtrail
from backtrail.engines.base import changes_of, generation_of, next_version
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from fix_flaky import Flaky


def test_without_a_mirror_versions_count_from_one() -> None:
    version = 0
    for changes in range(1, 5):
        version = next_version(version)
        assert (version, changes_of(version), generation_of(version)) == (changes, changes, 0)


def test_a_change_in_a_newer_generation_outranks_any_number_of_older_ones() -> None:
    old = 1_000_000
    for _ in range(3):
        old = next_version(old, 1)
    new = next_version(next_version(0, 1), 2)
    assert new > old
    assert (generation_of(old), changes_of(old)) == (1, 1_000_003)
    assert (generation_of(new), changes_of(new)) == (2, 2)


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_generation_never_goes_back(generation: int) -> None:
    version = next_version(next_version(0, 2), generation)
    assert (generation_of(version), changes_of(version)) == (2, 2)


def test_a_mirror_writes_its_generation_into_the_versions_of_heads() -> None:
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, health_every=60.0, failback_after=60.0)
    found = []
    for side in (primary, replica):
        store.thread("t").append("messages", [1])
        head = finish(side.engine.head("t"))
        assert head is not None
        found.append((generation_of(head.version), changes_of(head.version)))
        primary.up = False
    assert found == [(1, 1), (2, 2)]
    store.close()
