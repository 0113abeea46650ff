"""A mirror with a spool: saves made while both sides are unreachable are kept, and afterwards replayed once."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.replicate import concurrency
from backtrail.replicate.spool_delivery import deliver
from fix_pairs import Pair, back, both_unreachable, landed

LONG = "text that is long enough to be kept in pieces " * 8
NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


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

    monkeypatch.setattr("backtrail.replicate.spool_delivery.deliver", late)
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": ["one", "two", "three"]}
    assert len(thread.history(all=True)) == 3
    pair.equal()


def test_the_first_save_of_an_outage_is_spooled_although_it_cannot_be_compared_with_the_state_before(
    pair: Pair, tmp_path: Path
) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    thread.append("messages", [LONG])
    both_unreachable(pair)
    thread.save({"messages": ["rewritten"], "more": [LONG]})
    assert store.status().spool.records == 1
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": ["rewritten"], "more": [LONG]}
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


def test_what_builds_on_rows_that_others_have_freed_is_delivered_without_them(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    store.thread("t").append("messages", [LONG])
    store.thread("kept").append("messages", [LONG])
    other = pair.elsewhere(**NEVER)
    both_unreachable(pair)
    saved = store.thread("t").append("messages", ["too late"])
    store.thread("kept").append("messages", ["in time"])
    other.thread("t").delete()  # and nothing else needs its rows
    back(pair)
    pair.until(store, lambda status: status.spool.records == 0 and not status.behind)
    assert [info.id for info in store.threads()] == ["kept", "t#diverged-1"]
    assert store.thread("kept").load()["messages"] == [LONG, "in time"]
    assert store.thread("t#diverged-1").load() == {"messages": ["too late"]}
    assert store.thread("t#diverged-1").head.id == saved.id
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


@pytest.mark.parametrize("last", ["fork", "fork of an older one", "annotate", "rewind"])
def test_a_save_can_be_spooled_whatever_the_last_change_was(pair: Pair, tmp_path: Path, last: str) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    thread = store.thread("t")
    first = thread.append("messages", ["one"])
    thread.append("messages", ["two"])
    name = "fork" if last.startswith("fork") else "t"
    if name == "fork":
        thread.fork("fork", at=None if last == "fork" else first.id)
    elif last == "annotate":
        thread.annotate(first.id, label="named")
    else:
        thread.rewind(first.id)
    both_unreachable(pair)
    store.thread(name).append("messages", ["spooled"])
    assert landed(pair, store).diverged == 0
    before = ["one", "two"] if last in ("fork", "annotate") else ["one"]
    assert store.thread(name).load() == {"messages": [*before, "spooled"]}
    pair.equal()
    assert not store.verify().problems


def test_a_fork_is_not_spooled_because_it_has_nothing_of_its_own(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", **NEVER)
    store.thread("t").append("messages", ["one"])
    pair.replica.up = False
    pair.until(store, lambda status: not status.replica.healthy)
    pair.primary.lose_answers = 1
    with pytest.raises(backtrail.Unavailable):
        store.thread("t").fork("fork")
    assert store.status().spool.records == 0
