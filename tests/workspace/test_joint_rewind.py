"""A thread and its files in one store: saved together, rewound together, swept together."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.errors import CheckpointNotFound, Conflict, Corrupt, InvalidInput, NoCheckpoint
from backtrail.workspace import scanner
from backtrail.workspace.joint_rewind import HeadMove

from .conftest import Project, contents_of


@pytest.fixture(autouse=True)
def _own_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace that a rewind opens by itself keeps its index in the user's cache directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


@pytest.fixture
def project(store: Any, tmp_path: Path) -> Project:
    """A project on every engine, through the sync and the async facade."""
    return Project(tmp_path, lambda: store)


def test_a_thread_and_its_directory_go_back_together_and_forward_again(project: Project) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    project.write("f", "2")
    second = thread.update({"turn": 2}, files=project.ws)
    assert first.files != second.files
    thread.rewind(first, files=True)
    assert (thread.load()["turn"], project.read("f")) == (1, "1")
    thread.rewind(second, files=True)
    assert (thread.load()["turn"], project.read("f")) == (2, "2")
    project.ws.undo()
    assert project.read("f") == "1"


def test_a_snapshot_taken_before_can_be_tied_to_several_checkpoints(project: Project) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    snapshot = project.ws.snapshot()
    one = thread.save({"turn": 1}, files=snapshot)
    two = thread.append("log", ["x"], files=snapshot)
    assert one.files == two.files == f"{snapshot.id}@{project.ws.name}"
    project.write("f", "2")
    thread.rewind(one, files=True)
    assert project.read("f") == "1"


def test_a_session_rewinds_to_a_message_with_its_files(project: Project) -> None:
    session = project.store.session("chat")
    session.add("user", "make it")
    project.write("f", "before")
    session.snapshot("m1", files=project.ws)
    session.add("assistant", "made it")
    project.write("f", "after")
    project.ws.snapshot()
    session.rewind("m1", files=True)
    assert (len(session.messages()), project.read("f")) == (1, "before")


def test_a_checkpoint_without_files_says_so_and_nothing_moves(project: Project) -> None:
    thread = project.store.thread("talk")
    bare = thread.save({"turn": 1})
    project.write("f", "2")
    thread.save({"turn": 2}, files=project.ws)
    with pytest.raises(NoCheckpoint, match="files=workspace"):
        thread.rewind(bare, files=True)
    with pytest.raises(InvalidInput, match="prune"):
        thread.rewind(bare, files=True, prune=True)
    with pytest.raises(InvalidInput, match="workspace"):
        thread.save({}, files=42)
    assert (thread.load()["turn"], project.read("f")) == (2, "2")


@pytest.mark.parametrize("text", ["", "nothing", "0" * 36, "@workspace", f"{'0' * 36}@x"])
def test_a_text_that_names_no_snapshot_is_refused_at_the_save(project: Project, text: str) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    with pytest.raises(InvalidInput, match="names no snapshot"):
        thread.save({"turn": 2}, files=text)
    assert thread.load() == {"turn": 1}
    again = thread.save({"turn": 2}, files=first.files)  # as a checkpoint has it
    project.write("f", "2")
    thread.rewind(again, files=True)
    assert project.read("f") == "1"


def test_a_thread_that_moves_during_the_restore_makes_the_files_be_rolled_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = project.store.thread("talk")
    project.write("f", "1")
    first = thread.save({"turn": 1}, files=project.ws)
    project.write("f", "2")
    thread.save({"turn": 2}, files=project.ws)
    original = HeadMove.make

    async def make(self: HeadMove) -> bool:
        other = type(self._thread)(self._context, "talk")
        await other.save({"turn": 3})
        return await original(self)

    monkeypatch.setattr(HeadMove, "make", make)
    with pytest.raises(Conflict, match="neither"):
        thread.rewind(first, files=True)
    assert (project.store.thread("talk").load()["turn"], project.read("f")) == (3, "2")
    project.ws.recover()
    assert project.read("f") == "2"


def test_several_threads_share_one_workspace(project: Project) -> None:
    saved = []
    for name in ("a", "b", "c"):
        project.write("f", name)
        saved.append((project.store.thread(name).save({}, files=project.ws), name))
    for checkpoint, name in saved:
        project.store.thread(name).rewind(checkpoint, files=True)
        assert project.read("f") == name


def test_a_workspace_is_listed_by_its_kind_and_keeps_its_name_when_its_directory_moves(project: Project) -> None:
    project.write("f", "1")
    named = project.store.workspace(project.root, name="project", cache=False)
    first = named.snapshot()
    (kind,) = {info.kind for info in project.store.threads()}
    assert (kind, named.name) == ("workspace", "workspace:project")
    moved = project.base / "elsewhere"
    project.root.rename(moved)
    (moved / "f").write_text("2")
    project.store.workspace(moved, name="project", cache=False).restore(first)
    assert (moved / "f").read_text() == "1"


# -- sweeping ----------------------------------------------------------------------------------------------------------


def blobs(store: Any, name: str) -> int:
    return len(finish(store._core.context.engine.blob_ids(name)))


def test_a_sweep_frees_blobs_that_no_snapshot_needs_and_keeps_those_that_a_thread_needs(
    sqlite_project: Project,
) -> None:
    thread = sqlite_project.store.thread("talk")
    sqlite_project.write("f", "needed by the conversation")
    tied = thread.save({"turn": 1}, files=sqlite_project.ws)
    for number in range(5):
        sqlite_project.write("f", f"in between {number}")
        lost = sqlite_project.ws.snapshot()
    sqlite_project.write("f", "now")
    sqlite_project.ws.snapshot()
    before = blobs(sqlite_project.store, sqlite_project.ws.name)
    sqlite_project.store.prune(retention=backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
    assert blobs(sqlite_project.store, sqlite_project.ws.name) == before - 10
    with pytest.raises((CheckpointNotFound, Corrupt)):
        sqlite_project.ws.restore(lost)
    thread.rewind(tied, files=True)
    assert sqlite_project.read("f") == "needed by the conversation"
    sqlite_project.ws.undo()
    assert sqlite_project.read("f") == "now"


def test_blobs_that_are_written_ahead_survive_a_sweep_in_between(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_project.write("first", "1")
    sqlite_project.ws.snapshot()
    monkeypatch.setattr(scanner, "COMMIT_BYTES", 20_000)
    wanted = {}
    for number in range(200):
        content = os.urandom(1000)
        (sqlite_project.root / f"f{number}").write_bytes(content)
        wanted[f"f{number}"] = content
    core = sqlite_project.ws._core
    original = core._journal.append_part

    async def append_part(*args: Any) -> Any:
        record = await original(*args)
        sqlite_project.store.prune(retention=backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
        return record

    monkeypatch.setattr(core._journal, "append_part", append_part)
    snapshot = sqlite_project.ws.snapshot()
    sqlite_project.store.prune(retention=backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
    for name in wanted:
        (sqlite_project.root / name).unlink()
    sqlite_project.ws.restore(snapshot)
    assert {name: (sqlite_project.root / name).read_bytes() for name in wanted} == wanted
    assert {shown.reason for shown in sqlite_project.ws.snapshots()} == {"snapshot", "safety"}


def test_an_encrypted_store_keeps_files_unreadable_and_gives_them_back(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    store = backtrail.open(tmp_path / "store.db", key=b"k" * 32)
    project = Project(tmp_path, lambda: store)
    project.write("f", "a secret that must not be on the disk " * 10)
    first = project.ws.snapshot()
    before = contents_of(project.root)
    project.write("f", "other")
    project.ws.restore(first)
    assert contents_of(project.root) == before
    store.close()
    for path in tmp_path.glob("store.db*"):
        assert b"a secret that must not" not in path.read_bytes()
