"""A mirror with a spool: saves made while both sides are unreachable are kept, and afterwards replayed once."""

from __future__ import annotations

import logging
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.history.replication import MergeCodec
from backtrail.replicate import concurrency
from backtrail.replicate.spool import FILE, Spool
from backtrail.replicate.spool_delivery import deliver
from fix_flaky import Flaky
from fix_pairs import Pair

LONG = "text that is long enough to be kept in pieces " * 8
NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


def both_unreachable(pair: Pair) -> None:
    pair.primary.up = pair.replica.up = False


def back(pair: Pair) -> None:
    pair.primary.up = pair.replica.up = True


def landed(pair: Pair, store: Any) -> Any:
    """Wait until everything is where it belongs."""
    back(pair)
    return pair.until(store, lambda status: not status.spool.records and not status.behind and not status.lag_records)


def test_saves_go_on_while_both_sides_are_away_and_nothing_shows_of_it_afterwards(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool")
    grown, whole, small = store.thread("grown"), store.thread("whole"), store.thread("small")
    grown.append("messages", [LONG])
    whole.save({"messages": [LONG, LONG], "n": 0})
    small.save({"n": 0, "kept": True})
    both_unreachable(pair)
    for n in range(1, 4):
        grown.append("messages", [n])
        whole.save({"messages": [LONG, LONG, *range(n)], "n": n})
        small.update({"n": n})
        store.thread("new").append("messages", [f"{n} {LONG}"])
    status = store.status()
    assert not status.primary.healthy
    assert not status.replica.healthy
    assert status.spool.adrift
    assert status.spool.records == 12
    assert status.spool.bytes > 3 * len(LONG)
    assert status.spool.since <= time.time()
    status = landed(pair, store)
    assert status.diverged == 0
    assert grown.load() == {"messages": [LONG, 1, 2, 3]}
    assert whole.load() == {"messages": [LONG, LONG, 0, 1, 2], "n": 3}
    assert small.load() == {"n": 3, "kept": True}
    assert len(store.thread("new").load()["messages"]) == 3
    assert [checkpoint.step for checkpoint in grown.history(all=True)] == [1, 2, 3, 4]
    grown.append("messages", ["and on"])
    pair.equal()
    assert not store.verify().problems


def test_what_was_begun_while_both_were_away_can_be_read_and_what_was_not_says_so(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool")
    old = store.thread("old")
    old.append("messages", [LONG])
    both_unreachable(pair)
    new = store.thread("new")
    first = new.append("messages", [LONG], label="first")
    new.append("messages", ["more"])
    big = new.save({"messages": ["all new"], "big": LONG * 100})
    new.rewind(2)
    assert new.load() == {"messages": [LONG, "more"]}
    assert new.tail("messages", 1) == ["more"]
    assert new.load(big)["big"] == LONG * 100
    assert new.find(label="first") == [first]
    assert new.annotate(first.id, label="renamed").label == "renamed"
    assert [one.id for one in new.find(label="renamed")] == [first.id]
    assert len(new.history(all=True)) == 3
    old.append("messages", ["unread"])
    assert old.step == 2
    for question in (old.load, old.history, store.thread("never seen").load, store.threads, store.verify):
        with pytest.raises(backtrail.Unavailable, match=r"primary: .*replica: "):
            question()
    landed(pair, store)
    assert old.load() == {"messages": [LONG, "unread"]}
    assert new.load() == {"messages": [LONG, "more"]}
    pair.equal()


def test_only_saves_can_wait(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool")
    thread = store.thread("t")
    thread.save({"n": 1})
    store.thread("other").save({"n": 1})
    both_unreachable(pair)
    thread.save({"n": 2})
    for change in (thread.delete, store.thread("other").delete, lambda: store.thread("other").rewind(1)):
        with pytest.raises(backtrail.Unavailable):
            change()
    with pytest.raises(backtrail.Unavailable), thread.lock():
        raise AssertionError("a lock that no side knows of")
    landed(pair, store)
    thread.delete()
    assert [info.id for info in store.threads()] == ["other"]


def test_a_thread_that_was_only_loaded_before_can_be_saved(pair: Pair, tmp_path: Path) -> None:
    other = pair.elsewhere()
    for name in ("appended", "saved"):
        other.thread(name).append("messages", [LONG, "two"])
    store = pair.open(spool=tmp_path / "spool")
    loaded = {name: store.thread(name) for name in ("appended", "saved")}
    states = {name: thread.load() for name, thread in loaded.items()}
    both_unreachable(pair)
    loaded["appended"].append("messages", ["three"])
    loaded["saved"].save({"messages": [*states["saved"]["messages"], "three"]})
    loaded["saved"].save({"messages": [*states["saved"]["messages"], "three", "four"]})
    assert loaded["saved"].load()["messages"] == [LONG, "two", "three", "four"]
    assert landed(pair, store).diverged == 0
    assert loaded["appended"].load() == {"messages": [LONG, "two", "three"]}
    assert loaded["saved"].load()["messages"] == [LONG, "two", "three", "four"]
    pair.equal()


def test_a_save_whose_answer_was_lost_is_there_once(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool")
    thread = store.thread("t")
    thread.append("messages", ["one"])
    pair.primary.lose_answers, pair.replica.up = 1, False
    thread.append("messages", ["two"])
    thread.append("messages", ["three"])
    assert store.status().spool.records == 2
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": ["one", "two", "three"]}
    assert len(thread.history(all=True)) == 3
    pair.equal()


def test_a_save_that_only_the_follower_got_is_not_taken_for_somebody_elses_while_it_is_delivered(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pair.open(spool=tmp_path / "spool")
    thread = store.thread("t")
    thread.append("messages", ["one"])
    pair.primary.up, pair.replica.lose_answers = False, 1
    thread.append("messages", ["two"])
    thread.append("messages", ["three"])
    assert store.status().spool.records == 2

    async def late(*args: Any) -> Any:
        await concurrency.pause(
            pair.primary.properties.blocking, 0.3
        )  # the background has all the time to compare the sides
        return await deliver(*args)

    monkeypatch.setattr("backtrail.replicate.spooling_engine.deliver", late)
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": ["one", "two", "three"]}
    assert len(thread.history(all=True)) == 3
    pair.equal()


@pytest.mark.usefixtures("many_rows")
def test_a_delivery_that_is_cut_is_repeated_and_doubles_nothing(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", [LONG])
    both_unreachable(pair)
    for n in range(1, 6):
        thread.append("messages", [n])
    for _ in range(2):  # the rows, then the last row with the head: after that only the spool is to be cleared
        pair.primary.lose_answers = 2  # of the roles, or of a save; and before anybody can reach it
        pair.primary.up = True
        with pytest.raises(backtrail.Unavailable):
            thread.load()
        pair.primary.up, pair.primary.lose_answers = False, 0
    assert store.status().spool.records == 5
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": [LONG, 1, 2, 3, 4, 5]}
    assert len(thread.history(all=True)) == 6
    pair.equal()


def test_where_others_wrote_meanwhile_both_are_kept(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    other = pair.elsewhere(**NEVER)
    both_unreachable(pair)
    first = thread.append("messages", ["here"])
    second = thread.append("messages", ["here, too"])
    other.thread("t").append("messages", ["there"])
    assert landed(pair, store).diverged == 1
    assert store.thread("t").load()["messages"] == ["one", "there"]
    kept = store.thread("t#diverged-1")
    assert kept.head.id == second.id
    assert kept.load()["messages"] == ["one", "here", "here, too"]
    assert kept.load(first.id)["messages"] == ["one", "here"]
    thread.append("messages", ["and on"])
    assert thread.load()["messages"] == ["one", "there", "and on"]
    pair.equal()
    assert not store.verify().problems


def test_a_name_that_others_had_already_is_kept_beside_theirs(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    store.thread("x").save({"n": 1})
    pair.elsewhere(**NEVER).thread("t").save({"made": "there"})
    both_unreachable(pair)
    store.thread("t").save({"made": "here"})
    store.thread("t").update({"more": LONG})
    landed(pair, store)
    assert store.thread("t").load() == {"made": "there"}
    assert store.thread("t#diverged-1").load() == {"made": "here", "more": LONG}
    pair.equal()


def test_what_was_saved_to_a_thread_that_others_deleted_is_kept_beside_it(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    pair.elsewhere(**NEVER).thread("t").append("messages", [LONG])
    pair.elsewhere(**NEVER).thread("t").fork("fork")  # which needs the rows that the save builds on
    store.thread("t").load()
    store.thread("kept").append("messages", [LONG])
    other = pair.elsewhere(**NEVER)
    both_unreachable(pair)
    store.thread("t").append("messages", ["too late"])
    store.thread("kept").append("messages", ["in time"])
    other.thread("t").delete()
    assert landed(pair, store).diverged == 1
    assert [info.id for info in store.threads()] == ["fork", "kept", "t#diverged-1"]
    assert store.thread("t#diverged-1").load()["messages"] == [LONG, "too late"]
    assert store.thread("kept").load()["messages"] == [LONG, "in time"]
    pair.equal()
    assert not store.verify().problems


def test_what_builds_on_rows_that_others_have_freed_stays_in_the_spool_and_harms_nobody(
    pair: Pair, tmp_path: Path
) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    store.thread("t").append("messages", [LONG])
    store.thread("kept").append("messages", [LONG])
    other = pair.elsewhere(**NEVER)
    both_unreachable(pair)
    store.thread("t").append("messages", ["too late"])
    store.thread("kept").append("messages", ["in time"])
    other.thread("t").delete()  # and nothing else needs its rows
    back(pair)
    status = pair.until(store, lambda status: status.spool.records == 1 and not status.behind)
    assert "stays in the spool" in status.last_error
    assert [info.id for info in store.threads()] == ["kept"]
    assert store.thread("kept").load()["messages"] == [LONG, "in time"]
    pair.equal()
    assert not store.verify().problems


def test_a_thread_that_is_deleted_and_then_saved_to_while_both_sides_are_away_is_a_new_thread(
    pair: Pair, tmp_path: Path
) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    store.thread("t").append("messages", ["deleted"])
    store.thread("t").delete()
    both_unreachable(pair)
    store.thread("t").append("messages", ["saved after the delete"])
    assert landed(pair, store).diverged == 0
    assert [info.id for info in store.threads()] == ["t"]
    assert store.thread("t").load() == {"messages": ["saved after the delete"]}
    pair.equal()
    assert not store.verify().problems


def test_a_new_process_delivers_what_an_old_one_left(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    store.thread("t").append("messages", ["one"])
    both_unreachable(pair)
    store.thread("t").append("messages", ["two"])
    store.thread("new").save({"n": 1})
    # It is killed: nothing of what it remembers is left.
    again = pair.open(spool=tmp_path / "spool", **NEVER)
    assert again.status().spool.records == 2
    again.thread("t").append("messages", ["three"])
    assert again.thread("new").load() == {"n": 1}
    assert again.status().spool.records == 3
    back(pair)
    third = pair.open(spool=tmp_path / "spool", **NEVER)
    third.thread("t").append("messages", ["four"])  # goes behind what had to be delivered first
    assert third.thread("t").load() == {"messages": ["one", "two", "three", "four"]}
    assert third.thread("new").load() == {"n": 1}
    assert landed(pair, third).diverged == 0
    pair.equal()


def test_a_spool_that_never_met_its_store_cannot_stand_in_for_it(pair: Pair, tmp_path: Path) -> None:
    both_unreachable(pair)
    with pytest.raises(backtrail.Unavailable, match=r"primary: .*replica: "):
        pair.open(spool=tmp_path / "spool").thread("t").save({"n": 1})
    back(pair)
    pair.open(spool=tmp_path / "spool").thread("t").save({"n": 1})


def test_several_processes_share_a_spool(pair: Pair, tmp_path: Path) -> None:
    stores = [pair.open(spool=tmp_path / "spool", **NEVER) for _ in range(3)]
    stores[0].thread("t").append("messages", ["start"])
    for store in stores:
        store.thread("t").load()
    both_unreachable(pair)
    for n in range(9):
        stores[n % 3].thread("t").append("messages", [n])
        stores[n % 3].thread(f"own-{n % 3}").append("messages", [n])
    back(pair)
    stores[1].catch_up()
    for store in stores:
        store.thread("t").append("messages", ["back"])
        assert landed(pair, store).diverged == 0
    assert stores[2].thread("t").load()["messages"] == ["start", *range(9), "back", "back", "back"]
    assert stores[2].thread("own-2").load()["messages"] == [2, 5, 8]
    pair.equal()


def test_a_process_that_knows_more_than_the_spool_goes_on_with_the_spool(pair: Pair, tmp_path: Path) -> None:
    one, two = (pair.open(spool=tmp_path / "spool", **NEVER) for _ in range(2))
    one.thread("t").append("messages", ["start"])
    two.thread("t").load()
    later = one.thread("t").append("messages", ["two has not seen this"])
    both_unreachable(pair)
    two.thread("t").append("messages", ["two"])
    spooled = one.thread("t").append("messages", ["one"])
    status = landed(pair, one)
    assert status.diverged == 1
    assert one.thread("t").load(later.id) == {"messages": ["start", "two has not seen this"]}
    assert one.thread("t#diverged-1").head.id == spooled.id
    assert one.thread("t#diverged-1").load() == {"messages": ["start", "two", "one"]}
    pair.equal()


def test_a_process_that_never_saw_a_thread_begins_one_that_is_kept_beside_it(pair: Pair, tmp_path: Path) -> None:
    pair.open(spool=tmp_path / "spool", **NEVER).thread("t").append("messages", ["one"])
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    both_unreachable(pair)
    store.thread("t").append("messages", ["what is there is not known"])
    landed(pair, store)
    assert store.thread("t").load() == {"messages": ["one"]}
    assert store.thread("t#diverged-1").load() == {"messages": ["what is there is not known"]}


def test_what_builds_on_a_save_that_is_still_on_the_other_side_waits_for_it(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", replication="async", health_every=60.0, failback_after=0.05)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    store.catch_up()
    pair.replica.up = False
    thread.append("messages", ["only on the primary"])
    both_unreachable(pair)
    spooled = thread.append("messages", ["in the spool"])
    pair.replica.up = True
    assert store.catch_up().spool.records == 1
    assert thread.load() == {"messages": ["one"]}
    thread.append("messages", ["on the replica"])
    status = landed(pair, store)
    assert status.diverged >= 1
    assert thread.load() == {"messages": ["one", "on the replica"]}
    kept = [info.id for info in store.threads(prefix="t#diverged-")]
    states = [store.thread(name).load(spooled.id) for name in kept if store.thread(name).head.id == spooled.id]
    assert states == [{"messages": ["one", "only on the primary", "in the spool"]}]
    pair.equal()
    assert not store.verify().problems


def test_changes_are_logged_and_told_and_close_says_what_is_left(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "backtrail.replicate")
    told: list[Any] = []
    store = pair.open(spool=tmp_path / "spool", on_change=told.append, **NEVER)
    store.thread("t").save({"n": 1})
    both_unreachable(pair)
    store.thread("t").save({"n": 2})
    pair.eventually(lambda: told[-1].spool.adrift)  # whoever else is telling something tells this as well
    assert "saves go to the spool" in caplog.text
    landed(pair, store)
    pair.eventually(lambda: not told[-1].spool.adrift and "what was spooled is delivered" in caplog.text)
    both_unreachable(pair)
    store.thread("t").save({"n": 3})
    store.close()
    store.close()
    assert "closed with 1 saves" in caplog.text


def test_a_sealed_store_has_a_sealed_spool(tmp_path: Path) -> None:
    key, secret = b"k" * 32, "a secret that nobody may read " * 20
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())

    def open_() -> backtrail.Store:
        return backtrail.open(sides[0], replica=sides[1], key=key, spool=tmp_path / "spool", **NEVER)

    store = open_()
    store.thread("t").append("messages", [secret])
    sides[0].up = sides[1].up = False
    store.thread("t").append("messages", [secret])
    store.thread("new").save({"big": secret * 500})
    again = open_()  # in a new process, while both are away
    again.thread("t").append("messages", ["three"])
    for file in (tmp_path / "spool").iterdir():
        assert b"a secret that" not in file.read_bytes()
    with pytest.raises(backtrail.BacktrailError, match="key"):
        backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **NEVER)
    sides[0].up = sides[1].up = True
    last = open_()
    assert last.thread("t").load() == {"messages": [secret, secret, "three"]}
    assert last.thread("new").load() == {"big": secret * 500}
    assert (
        last.status().spool
        == backtrail.open(sides[0], replica=sides[1], key=key, spool=tmp_path / "spool").status().spool
    )


def test_a_spool_is_not_delivered_to_a_store_with_other_keys(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(sides[0], replica=sides[1], key=b"k" * 32, spool=tmp_path / "spool", **NEVER)
    store.thread("t").save({"n": 1})
    sides[0].up = sides[1].up = False
    store.thread("t").save({"n": 2})
    for key in (b"k" * 32, None):
        with pytest.raises(backtrail.InvalidInput, match="another key ring"):
            backtrail.open(MemoryEngine(), replica=MemoryEngine(), key=key, spool=tmp_path / "spool").thread(
                "x"
            ).exists()
    sides[0].up = sides[1].up = True
    assert store.thread("t").load() == {"n": 2}


def test_namespaces_share_a_spool_and_know_nothing_of_each_other(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())

    def open_(namespace: str | None) -> backtrail.Store:
        return backtrail.open(sides[0], replica=sides[1], namespace=namespace, spool=tmp_path / "spool", **NEVER)

    rooms = {name: open_(name) for name in ("one", "two", None)}
    for name, store in rooms.items():
        store.thread("t").save({"room": name})
    sides[0].up = sides[1].up = False
    for name, store in rooms.items():
        store.thread("t").update({"again": name})
        store.thread("new").save({"room": name})
    sides[0].up = sides[1].up = True
    for name in rooms:
        store = open_(name)
        assert store.thread("t").load() == {"room": name, "again": name}
        assert store.thread("new").load() == {"room": name}


def test_sessions_retention_and_compression_go_on_as_well(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    options: dict[str, Any] = {"retention": backtrail.Retention(keep_last=3), "compression": "zstd"}
    store = backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **options, **NEVER)
    session = store.session("s")
    thread = store.thread("t")
    for n in range(4):
        session.append({"role": "user", "content": f"{n} {LONG}"})
        thread.append("items", [n, LONG])
    sides[0].up = sides[1].up = False
    for n in range(4, 9):
        session.append({"role": "user", "content": f"{n} {LONG}"})
        thread.append("items", [n, LONG])
    assert store.status().spool.records == 10  # type: ignore[union-attr]
    sides[0].up = sides[1].up = True
    assert [message["content"][0] for message in session.messages()] == list("012345678")
    assert len(thread.history()) == 3
    store.catch_up()
    for side in sides:
        alone = backtrail.open(side.engine, **options)
        assert not alone.verify().problems
        assert alone.thread("t").load() == thread.load()


def test_a_spool_that_is_damaged_or_full_says_so_and_harms_nobody(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **NEVER)
    for name in ("a", "b"):
        store.thread(name).save({"n": 1})
    sides[0].up = sides[1].up = False
    for name in ("a", "b"):
        store.thread(name).save({"n": 2})
    with sqlite3.connect(tmp_path / "spool" / FILE) as damage:
        damage.execute("UPDATE steps SET meta = CAST(x'00' || meta AS BLOB) WHERE pos = (SELECT min(pos) FROM steps)")
    damage.close()
    sides[0].up = sides[1].up = True
    status = store.catch_up()
    assert status.spool is not None
    assert status.spool.records == 1
    assert "digest" in (status.last_error or "")
    assert (store.thread("a").load(), store.thread("b").load()) == ({"n": 1}, {"n": 2})
    sides[0].up = sides[1].up = False
    finish(store._core.context.engine._spool.engine.close())  # type: ignore[attr-defined]
    with pytest.raises(backtrail.Unavailable, match=r"primary: .*replica: .*the spool cannot be used"):
        store.thread("b").save({"n": 3})


def test_a_spool_that_is_full_refuses_a_save_and_keeps_what_it_has(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", spool_limit=20_000)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    both_unreachable(pair)
    thread.append("messages", ["two"])
    store.thread("whole").save({"text": "x" * 10_000})
    held = store.status().spool
    for save in (
        lambda: thread.append("messages", ["y" * 15_000]),
        lambda: store.thread("whole").save({"text": "z" * 30_000}),
        lambda: store.thread("new").save({"big": "z" * 300_000}),
    ):
        with pytest.raises(
            backtrail.Unavailable, match=r"primary: .*replica: .*spool is full.*spool_limit=20000.*nothing was"
        ):
            save()
    still = store.status().spool
    assert (still.adrift, still.records, still.bytes, still.limit) == (True, held.records, held.bytes, 20_000)
    thread.append("messages", ["three"])  # there is room for this one
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": ["one", "two", "three"]}
    assert store.thread("whole").load() == {"text": "x" * 10_000}
    assert not store.thread("new").exists()
    both_unreachable(pair)
    thread.append("messages", ["y" * 15_000])  # and again, now that it is empty
    landed(pair, store)
    pair.equal()
    assert not store.verify().problems


def test_what_another_process_delivered_makes_room(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    stores = [
        backtrail.open(one, replica=two, spool=tmp_path / "spool", spool_limit=20_000, **NEVER)
        for one, two in (sides, [Flaky(side.engine) for side in sides])
    ]
    for store in stores:
        store.thread("t").append("messages", ["one"])
    sides[0].up = sides[1].up = False
    stores[0].thread("a").save({"text": "x" * 15_000})
    stores[1].catch_up()
    stores[0].thread("b").save({"text": "x" * 15_000})
    assert stores[0].status().spool.records == 1  # type: ignore[union-attr]
    sides[0].up = sides[1].up = True
    assert stores[0].thread("a").load() == stores[0].thread("b").load()


def test_a_spool_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    backtrail.open(MemoryEngine(), replica=MemoryEngine(), spool=tmp_path / "deep" / "spool").thread("t").save({"n": 1})
    assert stat.S_IMODE((tmp_path / "deep" / "spool").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "deep" / "spool").iterdir()} == {0o600}


def test_bad_spools_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with backtrail.open(f"jsonl:{tmp_path}/store"):
        pass
    before = sorted(tmp_path.iterdir())
    here, there = tmp_path / "a.db", tmp_path / "b.db"
    for spool, reason in (
        (tmp_path / "file", "not a directory"),
        (5, "give a path"),
        ("", "give a path"),
        (tmp_path / "store" / "spool", "inside the store"),
        (tmp_path / "store", "inside the store"),
    ):
        with pytest.raises(backtrail.InvalidInput, match=reason):
            backtrail.open(here, replica=there, spool=spool)
    with pytest.raises(backtrail.InvalidInput, match="a side of the mirror"):
        backtrail.open(tmp_path / "x" / FILE, replica=there, spool=tmp_path / "x")
    with pytest.raises(backtrail.InvalidInput, match="a side of the mirror"):
        backtrail.open(here, replica=f"jsonl:{tmp_path}/y", spool=tmp_path / "y" / "z")
    with pytest.raises(backtrail.InvalidInput, match="needs replica="):
        backtrail.open(here, spool=tmp_path / "spool")
    with pytest.raises(backtrail.InvalidInput, match="needs spool="):
        backtrail.open(here, replica=there, spool_limit=1000)
    for limit in (0, -1, 1.5, True):
        with pytest.raises(backtrail.InvalidInput, match="spool_limit"):
            backtrail.open(here, replica=there, spool=tmp_path / "spool", spool_limit=limit)
    with pytest.raises(backtrail.InvalidInput, match="spool_limit"):
        backtrail.open(f"sqlite:{here}?replica={there}&spool={tmp_path}/spool&spool_limit=much")
    with pytest.raises(backtrail.InvalidInput, match="choose one"):
        backtrail.open(here, replica=there, replica_required=True, spool=tmp_path / "spool")
    assert sorted(tmp_path.iterdir()) == before
    with backtrail.open(tmp_path / FILE) as store:
        store.thread("t").save({"n": 1})
    with pytest.raises(backtrail.InvalidInput, match="a store of its own"):
        backtrail.open(here, replica=there, spool=tmp_path).thread("t").exists()


def test_a_spool_may_stand_in_the_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db?replica={tmp_path}/b.db&spool={tmp_path}/spool&spool_limit=1000000"
    with backtrail.open(url) as store:
        store.thread("t").save({"n": 1})
        status = store.status().spool
    assert status is not None
    assert (status.records, status.adrift, status.limit) == (0, False, 1_000_000)
    assert (tmp_path / "spool" / FILE).exists()


def test_a_spool_knows_a_save_by_its_bytes(tmp_path: Path) -> None:
    """A save comes back as it was put in, and a second save of one step is refused."""
    from backtrail.engines.base import Branch, Commit, Head, NewRow, Swap
    from backtrail.engines.conflicts import Refused
    from backtrail.replicate.lineage_copy import new_row

    spool = Spool.open(tmp_path, True)
    branch = Branch(b"b" * 16, "l", "t", b"o" * 16)
    head = Head("t", "l", b"o" * 16, branch.id, 1, 1, "thread", 1, 1, 1, 1, b"note")
    row = NewRow(branch.id, 1, b"i" * 16, b"meta", b"d" * 16, b"root", b"payload")
    commit = Commit("l", (Swap("t", None, head),), (row,), (branch,), (), {b"x": b"blob"})
    finish(spool.put(commit))
    with pytest.raises(Refused):
        finish(spool.put(commit))
    found = finish(spool.read("l"))
    assert found is not None
    assert (found.bases, found.heads, found.marks) == ({"t": None}, {"t": head}, [])
    assert [new_row(branch.id, one) for one in finish(spool.engine.rows("l", branch.id, 0, 9))] == [row]
    assert branch in finish(spool.engine.branches("l"))
    assert finish(spool.engine.blobs("l", [b"x"])) == commit.blobs
    assert finish(spool.clear("l", found.journal))
    assert finish(spool.survey()).records == 0
    assert finish(spool.engine.lineages()) == []
    finish(spool.put(commit))
    finish(spool.engine.close())


class Unsteady(Flaky):
    """Gives no answer to the next so many questions where a thread stands."""

    silent = 0

    async def tip(self, thread: str) -> Any:
        if self.silent and self.up:
            self.silent -= 1
            raise backtrail.Unavailable("no answer, because a test says so")
        return await self.engine.tip(thread)


def test_a_save_that_looks_on_two_sides_while_they_come_and_go_finds_no_damage(tmp_path: Path) -> None:
    """It builds on a row of the side that is away, and reads from the other one, which lacks that."""
    primary, replica = Flaky(MemoryEngine()), Unsteady(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", ["both have this"])
    store.catch_up()
    replica.up = False
    unshipped = thread.append("messages", [LONG])
    primary.up = False
    store.thread("other").append("messages", [1])
    assert store.status().spool.adrift  # type: ignore[union-attr]
    replica.up, replica.silent = True, 1
    saved = store.thread("t").save({"messages": ["both have this", "and this is new"]})
    assert replica.silent == 0
    assert thread.load() == {"messages": ["both have this", "and this is new"]}
    primary.up = True
    while store.catch_up().behind:
        assert store.status().primary.healthy
    assert [checkpoint.id for checkpoint in thread.history()][-1] == saved.id
    assert store.thread("t#diverged-1").head.id == unshipped.id
    assert store.thread("t#diverged-1").load() == {"messages": ["both have this", LONG]}
    assert not store.verify().problems
    store.close()


def test_a_remembered_tip_that_is_old_is_not_damage_however_often_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of one program share what they remember: one may put back what another has just found to be old."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", **NEVER)
    store.thread("t").append("messages", ["both have this"])
    store.catch_up()
    replica.up, tried = False, len(replica.calls)
    store.thread("t").append("messages", [LONG])
    end = time.monotonic() + 20
    while len(replica.calls) == tried:  # or it would be delivered below, when the replica is back
        assert time.monotonic() < end
        time.sleep(0.005)
    old = store._core.context.caches.tips.peek("t")
    primary.up, replica.up = False, True
    assert store.thread("t").load() == {"messages": ["both have this"]}
    monkeypatch.setattr(store._core.context.caches.tips, "take", lambda thread: old)
    store.thread("t").save({"messages": ["both have this", "new"]})
    assert store.thread("t").load() == {"messages": ["both have this", "new"]}
    store.close()


def test_what_waits_in_the_spool_comes_before_what_is_saved_next(tmp_path: Path) -> None:
    """It could not be delivered, because it builds on what only the primary has. When both are back another process
    begins to deliver it, and is not done when this one saves more."""
    primary, replica = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(primary, replica=replica, replication="async", spool=tmp_path / "spool", **NEVER)
    store.thread("other").append("messages", [0])
    store.catch_up()
    thread = store.thread("t")
    replica.up = False
    thread.append("messages", [1])
    primary.up = False
    for n in (2, 3, 4):
        thread.append("messages", [n])
    replica.up = True
    assert store.catch_up().spool.records == 3  # type: ignore[union-attr]
    primary.up = True
    other = backtrail.open(Flaky(primary.engine), replica=Flaky(replica.engine), **NEVER)
    while other.catch_up().behind:
        assert other.status().primary.healthy
    spool = Spool.open(tmp_path / "spool", True)
    deliver_to = Flaky(replica.engine)
    deliver_to.lose_answers = 1
    with pytest.raises(backtrail.Unavailable):
        finish(deliver(spool, "t", deliver_to, [deliver_to], MergeCodec(store._core.context), 2))
    store.thread("t").append("messages", [5])
    assert thread.load() == {"messages": [1, 2, 3, 4, 5]}
    while (status := store.catch_up()).behind or status.spool.records:  # type: ignore[union-attr]
        assert status.primary.healthy
    assert status.diverged == 0
    for side in (primary, replica):
        assert backtrail.open(side.engine).thread("t").load() == {"messages": [1, 2, 3, 4, 5]}
        assert not backtrail.open(side.engine).verify().problems
    store.close()
