"""Opening a mirror over two stores, and making two stores equal: what fits together, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.memory import MemoryEngine
from fix_flaky import Flaky
from fix_pairs import Pair

LONG = "text that is long enough to be kept in pieces " * 8


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"replication": "eventually"}, "unknown"),
        ({"failback_after": 0}, "above 0"),
        ({"health_every": -1}, "above 0"),
        ({"max_failovers": 0}, "from 1 up"),
        ({"replication": "async", "replica_required": True}, "sync"),
        ({"back_pressure": True}, "async"),
        ({"max_pending": "many"}, "max_pending='many'"),
        ({"on_change": "print"}, "must be a function"),
        ({"replica": 5}, "takes a path"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(backtrail.InvalidInput, match=reason):
        backtrail.open("memory:", **{"replica": "memory:", **options})


def test_a_mirror_of_a_store_with_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(backtrail.InvalidInput, match="the store itself"):
        backtrail.open(tmp_path / "s.db", replica=f"sqlite:///{tmp_path}/s.db")
    with pytest.raises(backtrail.InvalidInput, match="needs replica="):
        backtrail.open("memory:", failback_after=5)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(backtrail.InvalidInput, match="no replica"):
        backtrail.open("memory:").status()


def test_options_may_stand_in_the_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db?replica={tmp_path}/b.db&replication=async&failover=false&health_every=5"
    with backtrail.open(url) as store:
        store.thread("t").save({"n": 1})
        assert store.status().replication == "async"
    with backtrail.open(tmp_path / "b.db") as replica:
        assert replica.thread("t").load() == {"n": 1}


def test_sync_makes_two_stores_equal_and_ships_only_what_is_missing(tmp_path: Path) -> None:
    one, two = backtrail.open(tmp_path / "a.db"), backtrail.open("memory:")
    for n in range(20):
        one.thread(f"t{n}").append("messages", [LONG])
    two.thread("only there").save({"n": 1})
    first = one.sync_to(two)
    assert first.records == 21
    assert one.threads() == two.threads()
    one.thread("t3").append("messages", ["more"])
    second = one.sync_to(two)
    assert second.records == 1
    assert two.thread("t3").load() == one.thread("t3").load()
    assert one.sync_to(two).records == 0


def test_a_sealed_store_and_its_replica_have_one_key_ring(tmp_path: Path) -> None:
    key = b"k" * 32
    one, two, three = (tmp_path / name for name in ("a.db", "b.db", "c.db"))
    with backtrail.open(one, replica=two, key=key) as store:
        store.thread("t").save({"n": 1})
    with backtrail.open(two, key=key) as replica:
        assert replica.thread("t").load() == {"n": 1}
    with backtrail.open(three, replica=two, key=key) as store:  # a new primary beside the old replica
        assert store.catch_up().behind == 0
        assert store.thread("t").load() == {"n": 1}
    with backtrail.open(three, key=key) as new:
        assert new.thread("t").load() == {"n": 1}


def test_a_new_primary_beside_an_old_replica_is_active_when_it_has_everything(pair: Pair) -> None:
    with_old = pair.open(health_every=60.0, failback_after=60.0)  # which is not asked any more
    for n in range(3):
        with_old.thread(f"t{n}").save({"n": n})
    new = Flaky(MemoryEngine(), awaiting=pair.primary.awaiting)
    store = pair.open(new)
    assert [info.id for info in store.threads()] == ["t0", "t1", "t2"]  # at once: the old one answers
    store.thread("t0").save({"n": 10})
    status = pair.until(store, lambda status: status.active == "primary" and not status.behind)
    assert (status.diverged, status.failbacks) == (0, 1)
    assert pair.alone(new).threads() == pair.alone(pair.replica).threads()
    assert store.thread("t0").load() == {"n": 10}


def test_a_store_that_gets_the_replica_of_another_one_keeps_its_own(pair: Pair) -> None:
    with_old = pair.open(health_every=60.0, failback_after=60.0)  # which is not asked any more
    with_old.thread("t").save({"whose": "the replica's"})
    own = Flaky(MemoryEngine(), awaiting=pair.primary.awaiting)
    pair.alone(own).thread("t").save({"whose": "the primary's"})
    store = pair.open(own)
    assert store.status().active == "primary"
    pair.until(store, lambda status: not status.behind)
    assert store.thread("t").load() == {"whose": "the primary's"}
    assert store.thread("t#diverged-1").load() == {"whose": "the replica's"}


def test_a_replica_with_another_key_ring_is_refused(tmp_path: Path) -> None:
    key = b"k" * 32
    for name in ("a.db", "b.db"):
        with backtrail.open(tmp_path / name, key=key) as store:
            store.thread(name).save({"n": 1})
    with pytest.raises(backtrail.InvalidInput, match="another key ring"):
        backtrail.open(tmp_path / "a.db", replica=tmp_path / "b.db", key=key)
    with backtrail.open(tmp_path / "plain.db") as store:
        store.thread("plain").save({"n": 1})
    with pytest.raises(backtrail.InvalidInput, match="unsealed data"):
        backtrail.open(tmp_path / "a.db", replica=tmp_path / "plain.db", key=key)
    with pytest.raises(backtrail.BacktrailError, match="key"):
        backtrail.open(tmp_path / "plain.db", replica=tmp_path / "a.db")
    with backtrail.open(tmp_path / "plain.db") as store:
        assert [info.id for info in store.threads()] == ["plain"]


def test_stores_that_both_went_on_with_one_branch_are_told_apart_and_not_touched(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db") as one, backtrail.open(tmp_path / "b.db") as two:
        one.thread("t").append("messages", ["common"])
        one.sync_to(two)
        one.thread("t").append("messages", ["here"])
        two.thread("t").append("messages", ["there"])
        with pytest.raises(backtrail.Conflict, match="in both stores"):
            one.sync_to(two)
        assert one.thread("t").load() == {"messages": ["common", "here"]}
        assert two.thread("t").load() == {"messages": ["common", "there"]}


def test_sync_takes_the_side_that_is_further_on(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db") as one, backtrail.open(tmp_path / "b.db") as two:
        one.thread("t").append("messages", ["common"])
        one.sync_to(two)
        two.thread("t").append("messages", ["more"])
        one.sync_to(two)
        assert one.thread("t").load() == {"messages": ["common", "more"]}
        one.thread("t").append("messages", ["and more"])
        one.sync_to(two)
        assert two.thread("t").load() == {"messages": ["common", "more", "and more"]}
