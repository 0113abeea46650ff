"""A checkpoint that is saved together with a restore, both or neither, on every engine and through both facades."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backtrail.errors import Conflict
from backtrail.workspace import JointSave

from .conftest import Project


@pytest.fixture
def project(store: Any, tmp_path: Path) -> Project:
    return Project(tmp_path, lambda: store)


def test_a_restore_saves_its_checkpoint_and_undo_tells_of_both(project: Project) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    project.write("f", "2")
    second = thread.update({"turn": 2}, files=project.ws)
    save = JointSave(thread="talk", after=second.id, custom={"event": "restore"}, label="back")
    project.ws.restore(first, save=save)
    head = thread.head
    assert (project.read("f"), head.id, head.label, head.custom) == ("1", save.id, "back", {"event": "restore"})
    assert thread.load() == {"turn": 2}
    assert project.ws.last_restore().saved == ("talk", save.id)
    taken_back = JointSave(thread="talk", after=head.id, custom={"event": "undo"})
    project.ws.undo(save=taken_back)
    assert (project.read("f"), thread.head.id) == ("2", taken_back.id)
    assert project.ws.last_restore() is None


def test_a_checkpoint_in_a_fork_is_saved_with_the_restore(project: Project) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    project.write("f", "2")
    thread.update({"turn": 2}, files=project.ws)
    save = JointSave(thread="again", after=first.id, fork_of="talk")
    project.ws.restore(first, save=save)
    again = project.store.thread("again")
    assert (project.read("f"), again.head.id, again.load()) == ("1", save.id, {"turn": 1})
    assert thread.load() == {"turn": 2}


def test_nothing_is_restored_if_the_thread_has_moved(project: Project) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    project.write("f", "2")
    newest = thread.update({"turn": 2}, files=project.ws)
    with pytest.raises(Conflict):
        project.ws.restore(first, save=JointSave(thread="talk", after=first.id))
    assert (project.read("f"), thread.head.id) == ("2", newest.id)
    assert project.ws.last_restore() is None


def test_a_checkpoint_alone_is_taken_back_without_a_change_of_files(project: Project) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    save = JointSave(thread="talk", after=first.id, custom={"event": "rewind"})
    project.ws.save_only(save)
    project.write("f", "2")
    assert (thread.head.id, project.ws.last_restore().saved) == (save.id, ("talk", save.id))
    project.ws.undo(files=False)
    assert (project.read("f"), project.ws.last_restore()) == ("2", None)
