"""The outbox: the lineages that the follower lacks something of, bounded, in order, and never forgotten."""

from __future__ import annotations

import random
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit
from backtrail.replicate.outbox import Outbox
from backtrail.testing import sample_records
from fix_pairs import Pair


def save(thread: str, step: int = 1, blob: bytes = b"") -> Commit:
    at = sample_records.branch(thread)
    row = sample_records.row(at, step, payload=b"x" * 100, root=b"")
    return Commit(thread, rows=(row._replace(meta=b""),), blobs={blob: b"blob"} if blob else {})


def test_lineages_wait_in_the_order_in_which_they_came_to_lack_something() -> None:
    outbox = Outbox(100)
    for name in ("b", "a", "b", "c"):
        assert outbox.add(save(name))
    outbox.mark("a", "d")
    assert outbox.lineages() == ["b", "a", "c", "d"]
    assert (outbox.records, outbox.bytes, outbox.behind) == (4, 400, 2)
    assert outbox.seconds > 0


def test_what_is_taken_is_pending_until_it_has_arrived() -> None:
    outbox = Outbox(100)
    outbox.add(save("t", 1, b"one"))
    outbox.add(save("t", 2, b"two"))
    lacking = outbox.take("t")
    assert lacking is not None
    assert (lacking.saves, lacking.blobs, lacking.behind) == (2, {b"one", b"two"}, False)
    assert outbox.is_waiting("t")
    assert (outbox.lineages(), outbox.records) == ([], 2)
    outbox.add(save("t", 3))  # meanwhile: it waits for the next time
    outbox.arrived(lacking)
    assert (outbox.lineages(), outbox.records, outbox.bytes) == (["t"], 1, 100)
    outbox.arrived(outbox.take("t"))
    assert not outbox.is_waiting("t")
    assert (outbox.records, outbox.bytes, outbox.behind, outbox.seconds) == (0, 0, 0, 0.0)
    assert outbox.take("t") is None


def test_what_could_not_be_brought_is_merged_later() -> None:
    outbox = Outbox(100)
    outbox.add(save("t"))
    outbox.give_back("t", outbox.take("t"))
    assert (outbox.lineages(), outbox.records, outbox.behind) == (["t"], 0, 1)
    outbox.give_back("u", outbox.take("u"))  # a lineage that did not wait
    assert outbox.lineages() == ["t", "u"]


def test_too_many_saves_become_merges_and_none_is_forgotten() -> None:
    outbox = Outbox(3)
    assert [outbox.add(save(name)) for name in ("a", "b", "a", "c")] == [True, True, True, False]
    assert outbox.lineages() == ["a", "b", "c"]
    assert (outbox.records, outbox.bytes, outbox.behind) == (0, 0, 3)
    assert outbox.add(save("d"))
    assert (outbox.records, outbox.behind) == (1, 3)


def test_saves_to_a_lineage_that_is_merged_anyway_count_until_it_has_been() -> None:
    outbox = Outbox(100)
    outbox.mark("t")
    outbox.add(save("t"))
    lacking = outbox.take("t")
    assert lacking is not None
    assert lacking.behind
    assert (outbox.records, outbox.behind) == (1, 1)
    outbox.arrived(lacking)
    assert (outbox.records, outbox.behind) == (0, 0)


def test_a_lineage_that_is_under_way_and_waits_again_counts_once() -> None:
    outbox = Outbox(10)
    outbox.mark("t")
    lacking = outbox.take("t")
    outbox.mark("t")
    assert outbox.behind == 1
    outbox.arrived(lacking)
    assert outbox.behind == 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_in_async_mode_both_sides_become_equal_without_a_comparison(pair: Pair, seed: int) -> None:
    store = pair.open(replication="async", health_every=60.0)
    dice = random.Random(seed)
    store.thread("t").append("messages", [0])
    store.catch_up()
    changes: list[Any] = [
        lambda thread, n: thread.append("messages", [n, "text " * 60]),
        lambda thread, n: thread.append("messages", [n]),
        lambda thread, n: thread.save({"n": n, "messages": [n], "big": "large " * 1000}),
        lambda thread, n: thread.annotate(thread.step, label=f"label {n}") if thread.exists() else None,
        lambda thread, n: thread.rewind(1) if thread.exists() else None,
        lambda thread, n: thread.fork(f"fork-{n}") if thread.exists() else None,
        lambda thread, _: thread.delete() if thread.exists() and dice.random() < 0.3 else None,
    ]
    for n in range(120):
        try:
            dice.choice(changes)(store.thread(f"t{n % 3}"), n)
        except (backtrail.NotFound, backtrail.Conflict):
            assert n
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    pair.equal()
