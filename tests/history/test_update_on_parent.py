"""`update` sets, removes and appends in one checkpoint; `parent=` chooses what it builds on; `pick` reads some keys."""

from __future__ import annotations

from typing import Any

import pytest

from backtrail.errors import CheckpointNotFound, InvalidInput

LONG = [{"role": "user", "content": f"{i} " * 200} for i in range(8)]


def test_one_update_sets_removes_and_appends(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"messages": LONG[:4], "plan": "a", "draft": {"text": "x" * 400}})
    saved = thread.update({"plan": "b"}, remove=["draft", "missing"], append=("messages", LONG[4:]))
    assert thread.load() == {"messages": LONG, "plan": "b"}
    assert saved.step == 2
    thread.update({"draft": 1}, append=("notes", ["new list"]))
    assert thread.load() == {"messages": LONG, "plan": "b", "draft": 1, "notes": ["new list"]}


def test_an_update_on_another_parent_begins_a_branch_and_takes_the_head_along(store: Any) -> None:
    thread = store.thread("t")
    first = thread.save({"messages": LONG[:2]})
    second = thread.append("messages", LONG[2:4])
    third = thread.update({"plan": "other"}, append=("messages", LONG[6:]), parent=first)
    assert (third.parent_id, third.step) == (first.id, 2)
    assert thread.load() == {"messages": LONG[:2] + LONG[6:], "plan": "other"}
    assert thread.head.id == third.id
    assert thread.load(at=second) == {"messages": LONG[:4]}
    assert thread.undo().id == second.id
    whole = thread.save({"messages": LONG[:3]}, parent=third.id)
    assert thread.head.id == whole.id
    assert whole.parent_id == third.id
    assert [c.id for c in thread.history()] == [first.id, third.id, whole.id]


def test_a_save_on_a_parent_can_be_repeated(store: Any) -> None:
    thread = store.thread("t")
    first = thread.save({"n": 1})
    thread.save({"n": 2})
    id = "1ef4f797-8335-6428-8001-8a1503f9b875"
    thread.update({"n": 3}, parent=first, id=id)
    thread.save({"n": 4})
    assert thread.update({"n": 3}, parent=first, id=id).id == id
    assert thread.load() == {"n": 4}
    assert len(thread.history(all=True)) == 4


def test_a_parent_that_is_not_there_is_refused(store: Any) -> None:
    thread = store.thread("t")
    head = thread.save({"n": 1})
    with pytest.raises(CheckpointNotFound):
        thread.update({"n": 2}, parent="1ef4f797-8335-6428-8001-8a1503f9b875")
    with pytest.raises(InvalidInput, match="cannot be given together"):
        thread.update({"n": 2}, parent=head, expect=head)
    assert thread.load() == {"n": 1}


def test_pick_reads_only_the_keys_it_is_asked_for(store: Any) -> None:
    thread = store.thread("t")
    first = thread.save({"messages": LONG, "plan": {"steps": ["a" * 400, "b"]}, "n": 1})
    thread.update({"n": 2})
    assert thread.pick(["n", "plan", "missing"]) == {"n": 2, "plan": {"steps": ["a" * 400, "b"]}}
    assert thread.pick(["n"], at=first) == {"n": 1}
    assert thread.pick([]) == {}
    with pytest.raises(InvalidInput):
        thread.pick("n")
