"""Undo and redo that only say where the head would go, on every engine and over both APIs."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail


def test_a_dry_undo_and_redo_say_where_the_head_would_go_and_move_nothing(everywhere: Any) -> None:
    thread = everywhere.thread("t")
    first = thread.save({"n": 1})
    second = thread.save({"n": 2})
    before = everywhere.threads()[0]
    assert thread.undo(dry_run=True).id == first.id
    with pytest.raises(backtrail.BacktrailError):
        thread.redo(dry_run=True)
    assert everywhere.threads()[0] == before
    assert thread.load() == {"n": 2}
    assert thread.undo().id == first.id
    moved = everywhere.threads()[0]
    assert thread.redo(dry_run=True).id == second.id
    assert everywhere.threads()[0] == moved
    assert thread.load() == {"n": 1}
    assert thread.redo().id == second.id


def test_a_dry_undo_of_a_rewind_names_the_checkpoint_that_was_left(everywhere: Any) -> None:
    thread = everywhere.thread("t")
    saved = [thread.save({"n": n}) for n in range(4)]
    thread.rewind(saved[1])
    assert thread.undo(dry_run=True).id == saved[3].id
    assert thread.load() == {"n": 1}
    assert len(thread.history(all=True)) == 4
