"""Ids that callers choose: which checkpoint of which thread they name, and that a repeated save changes nothing."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import backtrail


def test_an_id_whose_checkpoint_was_deleted_can_be_saved_again(store: Any) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    thread.save({"n": 0})
    thread.save({"n": 1}, id=id)
    thread.delete(str(id))
    assert thread.save({"n": 2}, id=id).id == str(id)
    assert thread.load() == thread.load(id) == {"n": 2}


def test_an_id_that_a_fork_inherited_is_there_already(store: Any) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    thread.save({"n": 1}, id=id)
    fork = thread.fork("fork")
    assert fork.save({"n": 2}, id=id) == thread.head
    assert fork.load(id) == {"n": 1}


def test_an_id_of_another_thread_of_the_lineage_is_free_for_this_one(store: Any) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    thread.save({"n": 0})
    fork = thread.fork("fork")
    thread.save({"n": 1}, id=id)
    fork.save({"n": 2}, id=id)
    assert (thread.load(id), fork.load(id)) == ({"n": 1}, {"n": 2})


@pytest.mark.parametrize("on_conflict", ["raise", "branch"])
def test_a_save_that_is_repeated_under_its_id_is_no_conflict(store: Any, on_conflict: str) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    base = thread.save({"n": 1})
    late = store.thread("t")
    late.load()
    done = thread.save({"n": 2}, id=id)
    assert late.save({"n": 2}, id=id, on_conflict=on_conflict) == done
    assert late.save({"n": 2}, id=id, expect=base, on_conflict=on_conflict) == done
    assert len(thread.history(all=True)) == 2


def test_a_prefix_is_searched_beyond_the_checkpoints_of_other_threads(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 0}, id="11111111-0000-4000-8000-000000000000")
    fork = thread.fork("fork")
    for n in range(1, 100):
        thread.save({"n": n}, id=f"22222222-0000-4000-8000-{n:012}")
    fork.save({"n": "mine"}, id="22222222-ffff-4000-8000-000000000000")
    assert fork.load("22222222") == {"n": "mine"}
    with pytest.raises(backtrail.AmbiguousCheckpoint):
        thread.load("22222222")
