"""The methods of a thread, on each engine, sync and async."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from typing import Any

import pytest

import backtrail

LONG = "a sentence that is long enough to be kept apart from the root; " * 8


def message(number: int) -> dict[str, Any]:
    return {"role": "user" if number % 2 else "assistant", "content": f"{number}: {LONG}"}


def test_what_was_saved_is_loaded(store: Any) -> None:
    state = {"messages": [message(1)], "plan": LONG, "count": 3, "nested": {"deep": {"er": [1, 2]}}}
    thread = store.thread("t")
    saved = thread.save(state, label="start", tags=["a", "b", "a"], custom={"model": "m-1"})
    assert thread.load() == state
    assert (saved.step, saved.parent_id, saved.thread_id) == (1, None, "t")
    assert (saved.label, saved.tags, saved.custom) == ("start", ("a", "b"), {"model": "m-1"})
    assert uuid.UUID(saved.id).version == 7
    assert saved.created_at.tzinfo is dt.UTC
    assert thread.head == saved == thread.get(1) == thread.get(saved) == thread.get(saved.id)


def test_size_is_the_encoded_state_and_written_only_what_is_new(store: Any) -> None:
    thread = store.thread("t")
    first = thread.save({"messages": [message(i) for i in range(50)]})
    second = thread.append("messages", [message(51)])
    assert first.size > 50 * len(LONG)
    assert second.size - first.size == pytest.approx(len(LONG), abs=80)
    assert second.written < 2 * len(LONG)


def test_a_checkpoint_never_shares_objects_with_the_caller(store: Any) -> None:
    thread = store.thread("t")
    state = {"messages": [message(1), {"parts": [1]}], "plan": {"steps": [1]}}
    thread.save(state)
    state["messages"][1]["parts"].append(2)
    state["plan"]["steps"].append(2)
    assert thread.load()["messages"][1] == {"parts": [1]}
    loaded = thread.load()
    loaded["plan"]["steps"].clear()
    assert thread.load()["plan"] == {"steps": [1]}


def test_a_message_changed_in_place_is_seen_at_the_next_save(store: Any) -> None:
    thread = store.thread("t")
    state = {"messages": [message(i) for i in range(20)]}
    thread.save(state)
    state["messages"][3]["content"] = "edited"
    state["messages"].append(message(20))
    thread.save(state)
    assert thread.load() == state
    assert thread.load(1)["messages"][3] == message(3)


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), ("1", b"1"), (2**70, float(2**70)), ((), []), (None, False)],
)
def test_values_that_are_equal_but_not_the_same_are_told_apart(store: Any, old: Any, new: Any) -> None:
    thread = store.thread("t")
    state = {"items": [{"value": old, "text": LONG}, {"value": 1, "text": LONG}], "single": old}
    thread.save(state)
    state["items"][0]["value"] = new
    state["single"] = new
    thread.save(state)
    loaded = thread.load()
    for value in (loaded["items"][0]["value"], loaded["single"]):
        assert type(value) is type(new)
        assert repr(value) == repr(new)


def test_append_makes_the_list_and_extends_it(store: Any) -> None:
    thread = store.thread("t")
    thread.append("messages", [message(0)])
    for i in range(1, 30):
        thread.append("messages", [message(i)])
    assert thread.load() == {"messages": [message(i) for i in range(30)]}
    assert thread.step == 30


def test_append_goes_on_where_a_short_list_was_saved_whole(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"log": ["a"], "other": 1})
    thread.append("log", ["b"])
    thread.append("log", [LONG, LONG])
    thread.append("log", ["c"])
    assert thread.load() == {"log": ["a", "b", LONG, LONG, "c"], "other": 1}


def test_append_to_something_that_is_no_list_is_refused(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"plan": {"a": 1}, "text": LONG})
    for key in ("plan", "text"):
        with pytest.raises(backtrail.InvalidInput, match="not a list"):
            thread.append(key, [1])
    assert thread.step == 1


def test_update_sets_some_keys_and_shares_the_rest(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"messages": [message(i) for i in range(40)], "plan": "a"})
    updated = thread.update({"plan": "b", "new": [1]})
    assert updated.written < 1000
    assert thread.load() == {"messages": [message(i) for i in range(40)], "plan": "b", "new": [1]}


def test_a_state_is_found_by_id_prefix_step_and_checkpoint(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(1, 6)]
    assert thread.load(saved[2]) == thread.load(saved[2].id) == thread.load(3) == {"n": 3}
    assert thread.load(uuid.UUID(saved[2].id)) == {"n": 3}
    assert thread.load(saved[2].id.replace("-", "")) == {"n": 3}
    assert thread.load(saved[2].id[:-1]) == {"n": 3}
    with pytest.raises(backtrail.AmbiguousCheckpoint, match="no single checkpoint"):
        thread.load(saved[2].id[:4])


def test_history_is_oldest_first_and_limit_keeps_the_newest(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(5)]
    assert thread.history() == saved
    assert thread.history(limit=2) == saved[-2:]
    assert thread.history(limit=2, newest_first=True) == saved[:-3:-1]
    assert thread.history(limit=0) == []
    assert store.thread("nobody").history() == []


def test_find_by_tag_label_and_custom(store: Any) -> None:
    thread = store.thread("t")
    a = thread.save({"n": 1}, label="x", tags=["good"])
    b = thread.save({"n": 2}, tags=["good", "big"], custom={"score": 1})
    c = thread.save({"n": 3}, label="x", custom={"score": 1, "who": "me"})
    assert thread.find(tag="good") == [a, b]
    assert thread.find(label="x") == [a, c]
    assert thread.find(custom={"score": 1}) == [b, c]
    assert thread.find(label="x", custom={"score": 1}) == [c]
    assert thread.find(tag="none") == []


def test_a_fork_shares_the_past_and_goes_its_own_way(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.append("messages", [message(n)]) for n in range(4)]
    fork = thread.fork(at=saved[1])
    assert fork.id == "t#fork-1"
    assert fork.load() == {"messages": [message(0), message(1)]}
    assert fork.step == 2
    first = fork.append("messages", ["fork"])
    assert (first.parent_id, first.step, first.thread_id) == (saved[1].id, 3, "t#fork-1")
    assert [c.id for c in fork.history()] == [saved[0].id, saved[1].id, first.id]
    assert [c.thread_id for c in fork.history()] == ["t", "t", "t#fork-1"]
    assert thread.load()["messages"][-1] == message(3)
    assert [c.id for c in thread.history(all=True)] == [c.id for c in saved]


def test_forks_are_named_without_collisions(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1})
    store.thread("t#fork-2").save({"mine": True})
    assert [thread.fork().id for _ in range(3)] == ["t#fork-1", "t#fork-3", "t#fork-4"]
    with pytest.raises(backtrail.Conflict, match="exists already"):
        thread.fork("t#fork-2")
    assert store.thread("t#fork-2").load() == {"mine": True}


def test_a_fork_outlives_the_thread_it_came_from(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"messages": [message(i) for i in range(5)]})
    fork = thread.fork()
    thread.delete()
    assert not thread.exists()
    assert fork.load() == {"messages": [message(i) for i in range(5)]}
    fork.append("messages", ["more"])
    thread.save({"another": "life"})
    assert fork.load()["messages"][-1] == "more"
    assert [c.step for c in thread.history(all=True)] == [1]


def test_rewind_moves_the_head_and_keeps_what_it_left(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.append("messages", [message(n)]) for n in range(5)]
    assert thread.rewind(2) == saved[1]
    assert thread.load() == {"messages": [message(0), message(1)]}
    again = thread.append("messages", ["other"])
    assert (again.step, again.parent_id) == (3, saved[1].id)
    assert thread.load(saved[4])["messages"] == [message(n) for n in range(5)]
    assert {c.id for c in thread.history(all=True)} == {again.id, *(c.id for c in saved)}
    assert [c.id for c in thread.history()] == [saved[0].id, saved[1].id, again.id]


def test_undo_takes_back_rewinds_and_saves(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(3)]
    thread.rewind(1)
    new = thread.save({"n": "new"})
    assert thread.undo() == saved[0]
    assert thread.undo() == saved[2]
    assert thread.undo() == saved[1]
    assert thread.undo() == saved[0]
    with pytest.raises(backtrail.NoCheckpoint):
        thread.undo()
    assert thread.load(new) == {"n": "new"}


def test_rewind_with_prune_deletes_what_came_after(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(4)]
    thread.rewind(2, prune=True)
    assert [c.id for c in thread.history(all=True)] == [saved[0].id, saved[1].id]
    with pytest.raises(backtrail.CheckpointNotFound, match="deleted"):
        thread.load(saved[3].id)
    assert store.threads()[0].count == 2


def test_diff_tells_what_was_added_removed_and_changed(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"messages": [message(1), message(2)], "plan": "a", "gone": 1, "deep": {"x": {"y": LONG}}})
    thread.save({"messages": [message(1), message(2), message(3)], "plan": "b", "deep": {"x": {"y": LONG + "!"}}})
    diff = thread.diff(1, 2)
    assert [(c.path, c.kind) for c in diff.changes] == [
        ("messages[2]", "added"),
        ("plan", "changed"),
        ("gone", "removed"),
        ("deep.x.y", "changed"),
    ]
    assert (diff.changes[1].old, diff.changes[1].new) == ("a", "b")
    assert diff.changes[0].new == message(3)
    assert "~ plan: 'a' -> 'b'" in str(diff)
    assert not thread.diff(1, 1)
    assert [c.kind for c in thread.diff(2, 1).changes] == ["removed", "changed", "changed", "added"]


def test_diff_of_an_edited_list_names_the_items(store: Any) -> None:
    thread = store.thread("t")
    items = [message(n) for n in range(30)]
    thread.save({"messages": items})
    edited = [*items[:10], {**items[10], "content": "new"}, *items[11:20], *items[21:]]
    thread.save({"messages": edited})
    assert [(c.path, c.kind) for c in thread.diff(1, 2).changes] == [
        ("messages[10].content", "changed"),
        ("messages[20]", "removed"),
    ]


def test_annotate_changes_what_is_said_and_nothing_else(store: Any) -> None:
    thread = store.thread("t")
    saved = thread.save({"n": 1}, label="old", tags=["a"], custom={"k": 1})
    thread.save({"n": 2})
    changed = thread.annotate(saved, label="new")
    assert (changed.label, changed.tags, changed.custom, changed.id) == ("new", ("a",), {"k": 1}, saved.id)
    assert thread.annotate(1, label=None, tags=[], custom={}).tags == ()
    assert thread.get(1).label is None
    assert thread.load(1) == {"n": 1}
    assert thread.step == 2


def test_children_of_a_deleted_checkpoint_stay_loadable_and_name_a_living_parent(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.append("messages", [message(n)]) for n in range(4)]
    thread.delete(saved[1])
    thread.delete(3)
    assert [c.id for c in thread.history()] == [saved[0].id, saved[3].id]
    assert thread.get(4).parent_id == saved[0].id
    assert thread.load() == {"messages": [message(n) for n in range(4)]}
    for gone in (saved[1].id, 3):
        with pytest.raises(backtrail.CheckpointNotFound, match="deleted"):
            thread.load(gone)


def test_deleting_the_head_steps_back_and_deleting_all_removes_the_thread(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(3)]
    thread.delete(saved[2])
    assert thread.load() == {"n": 1}
    thread.delete(saved[0])
    thread.delete(2)
    assert not thread.exists()
    assert store.threads() == []
    with pytest.raises(backtrail.ThreadNotFound):
        thread.load()
    assert thread.save({"again": 1}).step == 1


def test_an_id_that_was_saved_already_is_not_saved_twice(store: Any) -> None:
    thread = store.thread("t")
    mine = uuid.uuid4()
    first = thread.save({"n": 1}, id=mine)
    assert first.id == str(mine)
    assert thread.save({"n": 1}, id=mine) == first
    thread.save({"n": 2})
    assert thread.save({"n": 1}, id=str(mine)) == first
    assert thread.load() == {"n": 2}
    assert thread.step == 2


def test_threads_are_listed_by_page_and_prefix_without_state(store: Any) -> None:
    for n in range(25):
        store.thread(f"user/{n:02}").save({"n": n})
    store.thread("other").save({"messages": [message(1)]})
    page = store.threads(prefix="user/", limit=10)
    assert [info.id for info in page] == [f"user/{n:02}" for n in range(10)]
    rest = store.threads(prefix="user/", after=page[-1].id)
    assert [info.id for info in rest] == [f"user/{n:02}" for n in range(10, 25)]
    newest = store.threads(newest_first=True, limit=1)[0]
    assert (newest.id, newest.step, newest.count, newest.kind) == ("other", 1, 1, "thread")
    assert newest.head == store.thread("other").head.id
    assert newest.size > len(LONG)
    assert len(store) == store.count() == 26


def test_a_lock_is_held_by_one_and_fences_off_a_stale_owner(store: Any) -> None:
    one, two = store.thread("t"), store.thread("t")
    one.save({"n": 1})
    with one.lock(ttl=30):
        with pytest.raises(backtrail.LockTimeout, match="held"):
            two.lock(timeout=0.05).acquire()
        one.save({"n": 2})
    with two.lock(timeout=60):
        two.load()
        two.save({"n": 3})
    stale = one.lock(ttl=0.05)
    stale.acquire()
    with two.lock(timeout=60):
        one.load()
        with pytest.raises(backtrail.Conflict):
            one.save({"n": "stale"})
        assert two.load() == {"n": 3}


def test_a_lock_that_expired_is_renewed_only_if_nobody_had_it_meanwhile(store: Any) -> None:
    one, two = store.thread("t"), store.thread("t")
    one.save({"n": 1})
    lock = one.lock(ttl=0.05).acquire()
    time.sleep(0.1)
    lock.renew()
    one.save({"n": 2})
    with two.lock(timeout=60):
        two.load()
    for _ in range(2):  # the second owner has released it, and there is no way back for the first
        with pytest.raises(backtrail.LockLost, match="another owner"):
            lock.renew()
        with pytest.raises(backtrail.LockLost):
            one.save({"n": "stale"})
    assert lock.release() is False
    with one.lock():
        one.save({"n": 3})
    assert two.load() == {"n": 3}


def test_autosave_saves_every_nth_state_and_the_last(store: Any) -> None:
    thread = store.thread("t")
    with thread.autosave(every=3) as auto:
        saved = [auto({"n": n}) for n in range(8)]
    assert [s is not None for s in saved] == [False, False, True, False, False, True, False, False]
    assert [thread.load(c)["n"] for c in thread.history()] == [2, 5, 7]


def test_the_last_items_are_read_without_the_rest(store: Any) -> None:
    thread = store.thread("t")
    for n in range(0, 300, 3):
        thread.append("messages", [message(n), message(n + 1), message(n + 2)])
    assert thread.tail("messages", 7) == [message(n) for n in range(293, 300)]
    assert thread.tail("messages", 0) == []
    assert thread.tail("messages", 10_000) == [message(n) for n in range(300)]
    assert thread.tail("messages", 2, at=2) == [message(4), message(5)]
    assert thread.tail("nothing", 2) == []


def test_a_store_that_was_closed_and_opened_again_goes_on(opener: Any) -> None:
    store = opener()
    thread = store.thread("t")
    state = {"messages": [message(n) for n in range(10)]}
    thread.save(state)
    again = opener().thread("t")
    state["messages"].append(message(10))
    saved = again.save(state)
    assert saved.step == 2
    assert saved.written < 2000
    assert again.load() == state


def test_stores_with_and_without_compression_read_each_other(opener: Any) -> None:
    plain, packed = opener(), opener(compression="zstd", compression_level=9)
    state = {"messages": [message(n) for n in range(10)], "blob": "b" * 100_000}
    plain.thread("t").save(state)
    assert packed.thread("t").load() == state
    small = packed.thread("u").save(state)
    assert small.written < small.size / 5
    assert plain.thread("u").load() == state


def test_detect_identity_trusts_the_callers_promise(opener: Any) -> None:
    thread = opener(detect="identity").thread("t")
    state = {"messages": [message(n) for n in range(10)]}
    thread.save(state)
    state["messages"].append(message(10))
    assert thread.save(state).written < 2000
    state["messages"] = [*state["messages"][:4], *state["messages"][5:]]
    assert thread.save(state).written < 2000
    assert thread.load() == state


def test_a_wide_state_costs_what_changed(store: Any) -> None:
    thread = store.thread("t")
    state = {"facts": {f"fact {n}": {"text": f"{n}", "score": n / 7} for n in range(2000)}}
    thread.save(state)
    state["facts"]["fact 1234"]["score"] = 1
    state["facts"]["one more"] = {"text": "new"}
    saved = thread.save(state)
    assert thread.load() == state
    assert list(thread.load()["facts"]) == list(state["facts"])
    assert saved.written < saved.size / 10


def test_autosave_keeps_the_facts_of_the_state_that_it_saves_at_the_end(store: Any) -> None:
    thread = store.thread("t")
    with thread.autosave(every=3) as save:
        save({"n": 1})
        save({"n": 2}, label="last")
    assert thread.load() == {"n": 2}
    assert thread.head.label == "last"
