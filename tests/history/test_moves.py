"""Deleting, undoing, forking and annotating in the cases that are easy to get wrong."""

from __future__ import annotations

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
