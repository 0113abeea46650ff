"""The outbox: a bounded queue in order; consecutive commits are shipped as one."""

from __future__ import annotations

import random
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit, Head, Mark, Swap
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate.outbox import Outbox
from backtrail.testing import sample_records
from fix_pairs import Pair


def chain(thread: str, length: int) -> list[Commit]:
    """Commits that each add a step to a thread."""
    at = sample_records.branch(thread)
    commits = [sample_records.first(at)]
    for step in range(1, length):
        before = sample_records.head(at, step, step)
        commits.append(
            Commit(
                at.lineage,
                (Swap(thread, before.key, sample_records.head(at, step + 1, step + 1)),),
                (sample_records.row(at, step + 1),),
                marks=(Mark(at.id, step, b"%d" % step),),
                blobs={b"%d" % step: b"blob"},
            )
        )
    return commits


def shipped(pending: Outbox) -> list[tuple[Commit, int]]:
    found = []
    while (shipment := pending.next()) is not None:
        found.append((shipment.commit, shipment.saves))
        pending.arrived(shipment)
    return found


def test_commits_of_a_thread_go_together_and_do_the_same_as_one_by_one() -> None:
    pending, singly, together = Outbox(1000), MemoryEngine(), MemoryEngine()
    commits = [chain("a", 6), chain("b", 4)]
    for n in range(6):
        for one in commits:
            for commit in one[n : n + 1]:
                pending.add(commit)
                finish(singly.commit(commit))
    assert pending.records == 10
    found = shipped(pending)
    assert [(commit.lineage, saves) for commit, saves in found] == [("a", 6), ("b", 4)]
    for commit, _ in found:
        finish(together.commit(commit))
    for name in ("a", "b"):
        at = sample_records.branch(name)
        assert finish(together.head(name)) == finish(singly.head(name))
        assert finish(together.rows(name, at.id, 1, 9)) == finish(singly.rows(name, at.id, 1, 9))
        assert finish(together.blob_ids(name)) == finish(singly.blob_ids(name))
    assert (pending.records, pending.bytes, pending.seconds) == (0, 0, 0.0)


def test_a_deletion_goes_by_itself_and_what_does_not_follow_waits() -> None:
    pending = Outbox(1000)
    one, two, three = chain("t", 3)
    gone = Commit("t", (Swap("t", _head(three).key, None),))
    for commit in (one, two, three, gone, one, three):
        pending.add(commit)
    assert [saves for _, saves in shipped(pending)] == [3, 1, 1, 1]


def _head(commit: Commit) -> Head:
    head = commit.swaps[0].new
    assert head is not None
    return head


def test_a_shipment_is_bounded() -> None:
    pending = Outbox(10_000)
    for commit in chain("t", 600):
        pending.add(commit)
    assert [saves for _, saves in shipped(pending)] == [256, 256, 88]
    at, large = sample_records.branch("t"), b"x" * 700_000
    for step in range(1, 4):
        before = sample_records.head(at, step, step)
        rows = (sample_records.row(at, step + 1, payload=large),)
        pending.add(Commit("t", (Swap("t", before.key, sample_records.head(at, step + 1, step + 1)),), rows))
    assert [saves for _, saves in shipped(pending)] == [1, 1, 1]


def test_what_is_marked_is_not_shipped_and_a_full_queue_is_marked() -> None:
    pending = Outbox(5)
    for commit in chain("a", 3):
        pending.add(commit)
    pending.mark("a")
    for commit in chain("b", 2):
        pending.add(commit)
    assert [commit.lineage for commit, _ in shipped(pending)] == ["b"]
    assert (pending.behind, pending.records) == (1, 0)
    assert [pending.add(commit) for commit in chain("c", 6)] == [True] * 5 + [False]
    assert (pending.behind, pending.records, pending.bytes) == (2, 0, 0)


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
