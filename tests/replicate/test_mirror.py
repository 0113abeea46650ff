"""A mirror of two engines: every acknowledged commit reaches both; if a side fails, the other takes over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Commit, Mark
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.sqlite import SQLiteEngine
from fix_flaky import Flaky
from fix_pairs import Pair

LONG = "text that is long enough to be kept in pieces " * 8


def test_sync_means_on_both_when_acknowledged(pair: Pair) -> None:
    store = pair.open()
    thread = store.thread("t")
    for n in range(5):
        thread.append("messages", [f"{n} {LONG}"])
        assert len(pair.alone(pair.replica).thread("t").load()["messages"]) == n + 1
    thread.annotate(2, label="two")
    thread.rewind(3)
    thread.fork("f")
    thread.save({"big": LONG * 1000})
    store.thread("gone").save({"n": 1})
    store.thread("gone").delete()
    pair.equal()
    assert store.status().lag_records == store.status().behind == 0


def test_async_is_acknowledged_by_the_primary_and_shipped_in_order(pair: Pair) -> None:
    store = pair.open(replication="async")
    thread = store.thread("t")
    for n in range(50):
        thread.append("messages", [n])
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    pair.equal()


def test_a_replica_that_is_away_is_caught_up_when_it_is_back(pair: Pair) -> None:
    store = pair.open()
    thread = store.thread("t")
    thread.save({"n": 1})
    pair.replica.up = False
    thread.save({"n": 2})
    store.thread("new").append("messages", [LONG])
    status = store.status()
    assert not status.replica.healthy
    assert status.behind == 2
    assert status.active == "primary"
    pair.replica.up = True
    pair.until(store, lambda status: status.replica.healthy and not status.behind)
    pair.equal()


def test_a_replica_that_is_required_and_away_refuses(pair: Pair) -> None:
    store = pair.open(replica_required=True)
    thread = store.thread("t")
    thread.save({"n": 1})
    pair.replica.up = False
    for _ in range(2):
        with pytest.raises(backtrail.Unavailable, match="replica_required"):
            thread.save({"n": 2}, expect=thread.head)
    pair.replica.up = True
    pair.until(store, lambda status: status.replica.healthy and not status.behind)
    thread.load()
    thread.save({"n": 3})
    pair.equal()


def test_all_operations_fail_over_alike(pair: Pair) -> None:
    store = pair.open(failback_after=60.0)
    thread = store.thread("t")
    first = thread.save({"n": 1}, label="first")
    pair.primary.up = False
    assert thread.load() == {"n": 1}
    assert store.status().active == "replica"
    assert [info.id for info in store.threads()] == ["t"]
    assert thread.find(label="first") == [first]
    assert thread.save({"n": 2}).parent_id == first.id
    store.thread("t2").save({"n": 1})
    store.thread("t2").delete()
    assert store.thread("t").exists()
    assert store.status().failovers == 1
    assert pair.alone(pair.replica).thread("t").load() == {"n": 2}


def test_a_save_in_the_middle_of_which_the_primary_dies_is_done_on_the_replica(pair: Pair) -> None:
    store = pair.open(failback_after=60.0)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    pair.primary.lose_answers = 1
    thread.append("messages", ["two"])
    assert thread.load()["messages"] == ["one", "two"]
    assert store.status().active == "replica"


def test_answers_are_no_reason_to_fail_over(pair: Pair) -> None:
    store = pair.open()
    thread = store.thread("t")
    with pytest.raises(backtrail.ThreadNotFound):
        thread.load()
    saved = thread.save({"n": 1})
    thread.save({"n": 2})
    with pytest.raises(backtrail.Conflict):
        thread.save({"n": 3}, expect=saved)
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.load(99)
    status = store.status()
    assert (status.active, status.failovers) == ("primary", 0)


def test_failback_ships_what_was_written_meanwhile_and_brings_no_delete_back(pair: Pair) -> None:
    store = pair.open()
    for name in ("kept", "doomed", "annotated"):
        store.thread(name).append("messages", [LONG])
    pair.primary.up = False
    kept = store.thread("kept")
    kept.append("messages", ["meanwhile"])
    kept.rewind(1)
    kept.append("messages", ["after a rewind"])
    store.thread("annotated").annotate(1, label="said meanwhile")
    store.thread("doomed").delete()
    store.thread("new").save({"n": "made meanwhile"})
    pair.primary.up = True
    status = pair.until(store, lambda status: status.active == "primary" and not status.behind)
    assert (status.failovers, status.failbacks, status.diverged) == (1, 1, 0)
    assert status.generation == 3
    assert [info.id for info in store.threads()] == ["annotated", "kept", "new"]
    assert store.thread("kept").load()["messages"] == [LONG, "after a rewind"]
    assert store.thread("annotated").get(1).label == "said meanwhile"
    kept.load()
    kept.append("messages", ["home again"])
    pair.equal()


def test_what_the_primary_had_not_shipped_is_kept_as_a_thread_of_its_own(pair: Pair) -> None:
    store = pair.open(replication="async", health_every=30.0, failback_after=0.05)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    store.catch_up()
    pair.replica.up = False
    unshipped = thread.append("messages", ["only the primary has this"])
    lonely = store.thread("only-here").save({"n": 1})
    pair.until(store, lambda status: not status.replica.healthy and not status.lag_records)
    pair.primary.up, pair.replica.up = False, True
    thread.append("messages", ["the replica goes on"])
    pair.primary.up = True
    status = pair.until(store, lambda status: status.active == "primary" and not status.behind)
    assert status.diverged == 1
    assert thread.load()["messages"] == ["one", "the replica goes on"]
    assert [checkpoint.id for checkpoint in store.thread("t#diverged-1").history()][-1] == unshipped.id
    assert store.thread("t#diverged-1").load()["messages"] == ["one", "only the primary has this"]
    assert store.thread("only-here").head == lonely
    assert [info.id for info in store.threads()] == ["only-here", "t", "t#diverged-1"]
    pair.equal()


def made_twice(pair: Pair, **options: Any) -> Any:
    """A store in which a thread was made on the primary, and one of the same name on the replica."""
    store = pair.open(replication="async", health_every=30.0, **options)
    store.thread("other").save({"n": 0})
    store.catch_up()
    pair.replica.up = False
    store.thread("t").save({"made": "on the primary"})
    pair.until(store, lambda status: not status.replica.healthy and not status.lag_records)
    pair.primary.up, pair.replica.up = False, True
    store.thread("t").save({"made": "on the replica"}, expect=None)
    return store


def test_two_threads_of_one_name_made_on_two_sides_are_both_kept(pair: Pair) -> None:
    store = made_twice(pair, failback_after=0.05)
    pair.primary.up = True
    pair.until(store, lambda status: status.active == "primary" and not status.behind)
    assert store.thread("t").load() == {"made": "on the replica"}
    assert store.thread("t#diverged-1").load() == {"made": "on the primary"}
    pair.until(store, lambda status: not status.behind)
    pair.equal()


def test_a_name_that_was_deleted_stays_deleted_and_what_another_thread_of_that_name_had_is_kept(pair: Pair) -> None:
    store = made_twice(pair, failback_after=60.0)
    store.thread("t").delete()
    pair.replica.up, pair.primary.up = False, True
    assert store.thread("other").load() == {"n": 0}  # the primary is active again, and knows of no deletion
    pair.replica.up = True
    pair.until(store, lambda status: status.replica.healthy and not status.behind and not status.lag_records)
    assert [info.id for info in store.threads()] == ["other", "t#diverged-1"]
    assert store.thread("t#diverged-1").load() == {"made": "on the primary"}
    pair.equal()
    assert not store.verify().problems


def test_both_away_is_one_error_with_both_causes(pair: Pair) -> None:
    store = pair.open()
    thread = store.thread("t")
    thread.save({"n": 1})
    pair.primary.up = pair.replica.up = False
    for call in (thread.load, lambda: thread.save({"n": 2}), store.threads):
        with pytest.raises(backtrail.Unavailable, match=r"primary: .*replica: "):
            call()
    pair.primary.up = pair.replica.up = True
    assert thread.load() == {"n": 1}


def test_changes_of_side_are_counted_per_window(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pair.open(max_failovers=2, failover_window=100.0, failback_after=1000.0, health_every=30.0)
    thread = store.thread("t")
    thread.save({"n": 1})
    for side in (pair.primary, pair.replica):
        side.up = False
        assert thread.load() == {"n": 1}
        side.up = True
    pair.primary.up = False
    with pytest.raises(backtrail.Unavailable, match="2 times"):
        thread.load()
    later = time.monotonic() + 101
    monkeypatch.setattr("backtrail.replicate.failover.time", SimpleNamespace(monotonic=lambda: later, time=time.time))
    assert thread.load() == {"n": 1}


def test_failover_can_be_off(pair: Pair) -> None:
    store = pair.open(failover=False)
    store.thread("t").save({"n": 1})
    pair.primary.up = False
    with pytest.raises(backtrail.Unavailable, match="failover is off"):
        store.thread("t").load()


def test_a_writer_that_still_believes_in_the_old_side_is_refused_and_goes_over(pair: Pair) -> None:
    one = pair.open(failback_after=60.0, health_every=30.0)
    two = pair.open(failback_after=60.0, health_every=30.0)
    one.thread("t").append("messages", ["one"])
    two.thread("t").append("messages", ["two"])
    pair.primary.up = False
    one.thread("t").append("messages", ["one, on the replica"])
    pair.primary.up = True
    one.catch_up()
    two.thread("t").append("messages", ["two, who did not know"])
    assert two.status().active == "replica"
    one.catch_up()
    expected = ["one", "two", "one, on the replica", "two, who did not know"]
    assert one.thread("t").load()["messages"] == expected
    pair.equal()


def test_a_new_process_finds_what_an_old_one_left_unshipped(pair: Pair) -> None:
    store = pair.open(replication="async", health_every=30.0)
    store.thread("t").save({"n": 1})
    store.catch_up()
    pair.replica.up = False
    store.thread("t").save({"n": 2})
    pair.replica.up = True
    again = pair.open(replication="async", health_every=30.0)
    again.thread("t").load()
    pair.until(again, lambda status: not status.behind)
    pair.equal()


def test_a_full_queue_is_compared_instead_of_dropped(pair: Pair) -> None:
    store = pair.open(replication="async", max_pending=3, health_every=30.0)
    thread = store.thread("t")
    pair.replica.up = True
    for n in range(20):
        thread.append("messages", [n])
    pair.until(store, lambda status: not status.behind and not status.lag_records)
    pair.equal()


def test_close_is_idempotent_and_ships_what_is_pending(pair: Pair) -> None:
    store = pair.open(replication="async", health_every=30.0)
    for n in range(30):
        store.thread("t").append("messages", [n])
    if "sqlite" in (pair.primary.properties.name, pair.replica.properties.name):
        pair.until(store, lambda status: not status.behind and not status.lag_records)
    else:
        store.close()
        store.close()
        with pytest.raises(backtrail.Unavailable):
            store.thread("x")


def test_what_async_may_lose_is_exactly_what_was_not_shipped_when_the_disk_went(tmp_path: Path) -> None:
    primary, replica = Flaky(MemoryEngine()), SQLiteEngine(tmp_path / "replica.db")
    gate = Flaky(replica)
    store = backtrail.open(primary, replica=gate, replication="async", health_every=30.0)
    thread = store.thread("t")
    shipped = [thread.append("messages", [n]).id for n in range(20)]
    while store.status().lag_records or store.status().behind:
        store.catch_up()
    gate.up = False
    unshipped = [thread.append("messages", [n]).id for n in range(20, 25)]
    lag = store.status()
    assert lag.lag_records or lag.behind
    primary.up = False  # its disk is destroyed
    store.catch_up()  # what was being shipped at that moment has failed now, too
    gate.up = True
    assert thread.load()["messages"] == list(range(20))
    kept = {checkpoint.id for checkpoint in thread.history(all=True)}
    assert kept == set(shipped)
    assert not kept & set(unshipped)
    store.close()


def test_metrics_tell_lag_and_changes_of_side(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    primary = Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=MemoryEngine(), replication="async", failback_after=60.0)
    store.thread("t").save({"n": 1})
    primary.up = False
    store.thread("t").exists()
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found["backtrail.mirror.lag"][0].count == 1  # type: ignore[union-attr]
    assert {point.attributes["active"]: point.value for point in found["backtrail.mirror.changes"]} == {  # type: ignore
        "primary": 1,
        "replica": 1,
    }
    store.close()


def test_an_async_side_and_a_blocking_one_make_a_mirror(redis_server: Any, tmp_path: Path) -> None:
    async def both() -> None:
        url = f"{redis_server.url}?prefix=mixed-{tmp_path.name}"
        async with await backtrail.aio.open(url, replica=tmp_path / "b.db") as store:
            thread = store.thread("t")
            for n in range(5):
                await thread.append("messages", [n])
            status = await store.catch_up()
            assert (status.primary.engine, status.replica.engine, status.behind) == ("redis", "sqlite", 0)

    asyncio.run(both())
    with backtrail.open(tmp_path / "b.db") as replica:
        assert replica.thread("t").load()["messages"] == list(range(5))


def test_a_damaged_annotation_that_keeps_the_follower_behind_hinders_no_change(pair: Pair) -> None:
    store = pair.open(health_every=60.0, failback_after=60.0)
    thread = store.thread("t")
    for item in "ab":
        thread.append("messages", [item])
    pair.replica.up = False
    thread.annotate(1, label="damaged")
    engine = pair.primary.engine
    head = finish(engine.head("t"))
    assert head is not None
    (step,) = finish(engine.steps("t", head.branch, 1, 1))
    assert step.mark is not None
    finish(engine.commit(Commit("t", marks=[Mark(head.branch, 1, step.mark[:-3] + bytes(3))])))
    pair.replica.up = True
    assert store.catch_up().behind == 1
    before = finish(engine.head("t"))
    assert before is not None
    thread.annotate(2, label="whole")
    after = finish(engine.head("t"))
    assert after is not None
    assert after.version == before.version + 1
    thread.fork("fork")
    assert store.thread("fork").append("messages", ["c"]).step == 3
