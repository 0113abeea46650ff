"""A run has what a thread has: checkpoints with labels, undo and redo, differences, going back."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import backtrail


def start(store: Any, iterations: int = 3) -> Any:
    run = store.run("nightly", task="clean up")
    for n in range(1, iterations + 1):
        run.checkpoint(messages=[f"message {m}" for m in range(n)], label=f"iteration {n}", tags=["ok"], custom={"model": "small"})
    return run


def test_a_checkpoint_of_a_run_takes_a_label_tags_and_files(store: Any, tmp_path: Path) -> None:
    run = start(store)
    saved = run.get("iteration 2")
    assert (saved.step, saved.tags, run.load("iteration 2")["iteration"]) == (2, ("ok",), 2)
    assert run.custom == {"model": "small"}
    assert [c.label for c in run.history()] == ["iteration 1", "iteration 2", "iteration 3"]
    assert [change.path for change in run.diff(2).changes] == ["iteration", "messages[2]"]
    assert run.annotate("@", label="last").label == "last"


def test_files_are_saved_with_a_run(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with backtrail.open("memory:") as store:
        saved = store.run("nightly").checkpoint(files=store.workspace(tmp_path / "project"))
        assert saved.files is not None


def test_undo_redo_and_rewind_fill_the_attributes_of_the_run(store: Any) -> None:
    run = start(store)
    run.undo()
    assert (run.iteration, run.messages) == (2, ["message 0", "message 1"])
    run.redo()
    assert (run.iteration, len(run.messages)) == (3, 3)
    run.rewind("iteration 1")
    assert (run.iteration, run.messages) == (1, ["message 0"])
    run.checkpoint(messages=["message 0", "another"])
    assert store.run("nightly").load()["iteration"] == 2
    assert store.run("nightly").exists()


def test_undo_inside_a_run_keeps_its_lease(store: Any) -> None:
    start(store)
    with contextlib.suppress(InterruptedError), store.run("nightly") as run:
        run.undo()
        with pytest.raises(backtrail.LockTimeout):
            store.run("nightly").undo()
        assert run.iteration == 2
        run.checkpoint()
        raise InterruptedError
    assert store.runs()[0].status == "failed"
    assert store.run("nightly").undo().step == 3  # it has not failed
    assert store.runs()[0].status == "running"
    assert store.run("nightly").undo().step == 2


def test_a_run_that_did_not_begin_has_nothing_to_undo(store: Any) -> None:
    run = store.run("nightly")
    for call in (run.undo, run.redo, lambda: run.rewind(1), run.load):
        with pytest.raises(backtrail.ThreadNotFound):
            call()
    with store.run("nightly"):  # and its lease is free
        pass
