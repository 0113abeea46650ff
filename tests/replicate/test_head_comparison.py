"""The comparison of all heads of two sides, page by page."""

from __future__ import annotations

import random

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate.head_comparison import differing
from fix_flaky import Flaky


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_every_lineage_that_differs_is_found_whatever_the_pages(
    monkeypatch: pytest.MonkeyPatch, page: int, seed: int
) -> None:
    monkeypatch.setattr("backtrail.replicate.head_comparison._PAGE", page)
    dice = random.Random(seed)
    sides = MemoryEngine(), MemoryEngine()
    stores = [backtrail.open(side) for side in sides]
    for number in range(12):
        stores[0].thread(f"t{number}").save({"n": number})
    stores[0].sync_to(stores[1])
    assert finish(differing(*sides)) == []
    changed = set()
    for number in range(20):
        store, name = dice.choice(stores), f"t{number}"
        if dice.random() < 0.4:
            thread = store.thread(name)
            thread.delete() if thread.exists() and dice.random() < 0.5 else thread.save({"n": -1})
            changed.add(name)
    assert {*finish(differing(*sides))} == changed
    assert {*finish(differing(*sides[::-1]))} == changed


def test_a_thread_that_is_in_another_lineage_on_each_side_makes_both_differ() -> None:
    sides = MemoryEngine(), MemoryEngine()
    stores = [backtrail.open(side) for side in sides]
    stores[0].thread("one").save({"n": 1})
    stores[0].sync_to(stores[1])
    stores[0].thread("one").fork("two")
    stores[1].thread("two").save({"n": 2})
    assert {*finish(differing(*sides))} == {"one", "two"}


def test_equal_stores_of_one_page_are_compared_by_one_call_to_each_side() -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    assert finish(differing(*sides)) == []
    assert [side.calls for side in sides] == [["threads"], ["threads"]]
