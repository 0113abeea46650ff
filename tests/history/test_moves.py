"""Deleting, undoing, forking and annotating in the cases that are easy to get wrong."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine
from backtrail.history import records


def test_deleting_the_first_checkpoint_keeps_what_a_rewind_left_behind(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1})
    second, third = thread.save({"n": 2}), thread.save({"n": 3})
    thread.rewind(1)
    thread.delete(1)
    assert thread.head.id == third.id
    assert [c.id for c in thread.history()] == [second.id, third.id]
    thread.delete(third)
    thread.delete(second)
    assert not thread.exists()


def test_undo_passes_over_a_move_whose_way_back_was_swept_away(opener: Any) -> None:
    store = opener()
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(3)]
    thread.rewind(1)
    aside = thread.save({"n": "aside"})
    thread.rewind(saved[2])
    thread.delete(aside)
    store.prune()
    again = opener().thread("t")
    assert again.undo().id in {saved[0].id, saved[1].id}
    assert again.exists()


def test_a_fork_made_while_the_clock_is_behind_is_no_older_than_what_it_came_from(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.thread("t")
    saved = thread.save({"n": 1})
    monkeypatch.setattr(records, "clock", lambda: 1_000_000_000)
    late = thread.save({"n": 2})
    fork = thread.fork("fork")
    forked = fork.save({"n": 3})
    assert saved.created_at < late.created_at < forked.created_at
    assert saved.id < late.id < forked.id


def test_a_checkpoint_deleted_by_its_writer_is_not_brought_back_by_a_fork_that_annotates_it() -> None:
    engine = MemoryEngine()
    thread = backtrail.open(engine).thread("t")
    first = thread.save({"n": 1})
    thread.save({"n": 2})
    thread.fork("fork").save({"n": 3})
    plain = engine.commit
    deleted: list[bool] = []

    async def commit(commit: Any) -> None:
        if commit.marks and not deleted:
            deleted.append(True)
            thread.delete(first)
        await plain(commit)

    engine.commit = commit  # type: ignore[method-assign]  # a writer that is faster, just this once
    fork = backtrail.open(engine).thread("fork")
    with pytest.raises(backtrail.CheckpointNotFound, match="deleted"):
        fork.annotate(first, label="mine")
    assert [c.step for c in thread.history()] == [2]


# -- redo --------------------------------------------------------------------------------------------------------------


def test_redo_does_again_what_undo_took_back_as_often_as_there_were_undos(opener: Any) -> None:
    thread = opener().thread("t")
    saved = [thread.save({"n": n}) for n in range(1, 81)]  # more than the moves that a head can hold
    for n in range(79):
        assert thread.undo().step == 79 - n
    again = opener().thread("t")  # another process
    for n in range(79):
        assert again.redo() == saved[n + 1]
    assert again.load() == {"n": 80}
    with pytest.raises(backtrail.NoCheckpoint, match="nothing to redo"):
        again.redo()
    assert again.step == 80


def test_redo_and_undo_of_rewinds_and_saves_go_back_and_forth(store: Any) -> None:
    thread = store.thread("t")
    for n in range(1, 5):
        thread.save({"n": n})
    thread.rewind(2)
    thread.save({"n": "other three"})
    thread.rewind(1)
    trail = [thread.head.id, *(thread.undo().id for _ in range(4))]
    for _ in range(3):
        for id in trail[-2::-1]:
            assert thread.redo().id == id
        for id in trail[1:]:
            assert thread.undo().id == id
    assert [thread.redo().id for _ in range(4)] == trail[-2::-1]
    with pytest.raises(backtrail.NoCheckpoint):
        thread.redo()


@pytest.mark.parametrize("change", ["save", "append", "rewind", "delete", "jump"])
def test_a_change_of_the_head_ends_what_can_be_redone(store: Any, change: str) -> None:
    thread = store.thread("t")
    for n in range(1, 5):
        thread.save({"n": n})
    thread.undo()
    thread.undo()
    {
        "save": lambda: thread.save({"n": "new"}),
        "append": lambda: thread.append("items", [1]),
        "rewind": lambda: thread.rewind(1),
        "delete": lambda: thread.delete("@"),
        "jump": lambda: thread.save({"n": "new"}, parent=1),
    }[change]()
    head = thread.head
    with pytest.raises(backtrail.NoCheckpoint, match="nothing to redo"):
        thread.redo()
    assert thread.head == head


def test_a_change_that_leaves_the_head_where_it_is_keeps_what_can_be_redone(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(1, 4)]
    thread.undo()
    thread.annotate(1, label="one")
    thread.fork("fork")
    thread.retain("keep_last=10")
    thread.save({"n": "aside"}, expect=saved[0], on_conflict="branch")
    with pytest.raises(backtrail.NoCheckpoint):
        store.thread("fork").redo()
    assert thread.redo().id == saved[2].id


def test_redo_passes_over_what_was_deleted_since_and_says_so_if_nothing_is_left(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(1, 5)]
    for _ in range(3):
        thread.undo()
    thread.delete(saved[2])
    assert [thread.redo().id, thread.redo().id] == [saved[1].id, saved[3].id]
    thread.undo()
    thread.delete(saved[3])
    with pytest.raises(backtrail.NoCheckpoint, match="deleted since"):
        thread.redo()
    thread.save({"n": 5})
    thread.undo()
    store.prune(backtrail.Retention(undo_window=dt.timedelta(0)))
    with pytest.raises(backtrail.NoCheckpoint, match="nothing to redo"):
        thread.redo()
    assert thread.head.id == saved[1].id


def test_what_was_undone_is_redone_on_every_engine_also_by_another_handle(everywhere: Any) -> None:
    thread = everywhere.thread("t")
    saved = [thread.save({"n": n}) for n in range(1, 5)]
    thread.rewind(2)
    thread.undo()
    assert everywhere.thread("t").redo().id == saved[1].id
    assert [everywhere.thread("t").undo().id for _ in range(3)] == [saved[3].id, saved[2].id, saved[1].id]
    assert [everywhere.thread("t").redo().id for _ in range(3)] == [saved[2].id, saved[3].id, saved[1].id]
    everywhere.thread("t").append("items", [1])
    with pytest.raises(backtrail.NoCheckpoint, match="nothing to redo"):
        thread.redo()
