"""Conversation and files through one store: saved together, rewound together, swept together; in both colours."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.drive import finish
from backtrail.errors import CheckpointNotFound, Conflict, Corrupt, InvalidInput, NoCheckpoint
from backtrail.workspace import scanner
from backtrail.workspace.joint_rewind import HeadMove

from .conftest import picture


class Room:
    """A store, a directory, and what a test does with both."""

    def __init__(self, store: Any, base: Path) -> None:
        self.store = store
        self.root = base / "project"
        self.root.mkdir()
        self.base = base
        self.ws = store.workspace(self.root, cache=base / "cache")

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture
def room(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    return Room(store, tmp_path)


def test_a_thread_and_its_directory_go_back_together_and_forward_again(room: Room) -> None:
    thread = room.store.thread("talk")
    room.write("f", "1")
    first = thread.save({"turn": 1}, files=room.ws)
    room.write("f", "2")
    second = thread.update({"turn": 2}, files=room.ws)
    assert first.files != second.files
    thread.rewind(first, files=True)
    assert (thread.load()["turn"], room.read("f")) == (1, "1")
    thread.rewind(second, files=True)
    assert (thread.load()["turn"], room.read("f")) == (2, "2")
    room.ws.undo()
    assert room.read("f") == "1"


def test_a_snapshot_taken_before_can_be_tied_to_several_checkpoints(room: Room) -> None:
    thread = room.store.thread("talk")
    room.write("f", "1")
    snapshot = room.ws.snapshot()
    one = thread.save({"turn": 1}, files=snapshot)
    two = thread.append("log", ["x"], files=snapshot)
    assert one.files == two.files == f"{snapshot.id}@{room.ws.name}"
    room.write("f", "2")
    thread.rewind(one, files=True)
    assert room.read("f") == "1"


def test_a_session_rewinds_to_a_message_with_its_files(room: Room) -> None:
    session = room.store.session("chat")
    session.add("user", "make it")
    room.write("f", "before")
    session.snapshot("m1", files=room.ws)
    session.add("assistant", "made it")
    room.write("f", "after")
    room.ws.snapshot()
    session.rewind("m1", files=True)
    assert (len(session.messages()), room.read("f")) == (1, "before")


def test_a_checkpoint_without_files_says_so_and_nothing_moves(room: Room) -> None:
    thread = room.store.thread("talk")
    bare = thread.save({"turn": 1})
    room.write("f", "2")
    thread.save({"turn": 2}, files=room.ws)
    with pytest.raises(NoCheckpoint, match="files=workspace"):
        thread.rewind(bare, files=True)
    with pytest.raises(InvalidInput, match="prune"):
        thread.rewind(bare, files=True, prune=True)
    with pytest.raises(InvalidInput, match="workspace"):
        thread.save({}, files=42)
    assert (thread.load()["turn"], room.read("f")) == (2, "2")


@pytest.mark.parametrize("text", ["", "nothing", "0" * 36, "@workspace", f"{'0' * 36}@x"])
def test_a_text_that_names_no_snapshot_is_refused_at_the_save(room: Room, text: str) -> None:
    thread = room.store.thread("talk")
    room.write("f", "1")
    first = thread.save({"turn": 1}, files=room.ws)
    with pytest.raises(InvalidInput, match="names no snapshot"):
        thread.save({"turn": 2}, files=text)
    assert thread.load() == {"turn": 1}
    again = thread.save({"turn": 2}, files=first.files)  # as a checkpoint has it
    room.write("f", "2")
    thread.rewind(again, files=True)
    assert room.read("f") == "1"


def test_a_thread_that_moves_during_the_restore_takes_the_files_back_with_it(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = room.store.thread("talk")
    room.write("f", "1")
    first = thread.save({"turn": 1}, files=room.ws)
    room.write("f", "2")
    thread.save({"turn": 2}, files=room.ws)
    original = HeadMove.make

    async def make(self: HeadMove) -> bool:
        other = type(self._thread)(self._context, "talk")
        await other.save({"turn": 3})
        return await original(self)

    monkeypatch.setattr(HeadMove, "make", make)
    with pytest.raises(Conflict, match="neither"):
        thread.rewind(first, files=True)
    assert (room.store.thread("talk").load()["turn"], room.read("f")) == (3, "2")
    room.ws.recover()
    assert room.read("f") == "2"


def test_several_threads_share_one_workspace(room: Room) -> None:
    saved = []
    for name in ("a", "b", "c"):
        room.write("f", name)
        saved.append((room.store.thread(name).save({}, files=room.ws), name))
    for checkpoint, name in saved:
        room.store.thread(name).rewind(checkpoint, files=True)
        assert room.read("f") == name


def test_a_workspace_is_listed_as_what_it_is_and_keeps_its_name_when_it_moves(room: Room) -> None:
    room.write("f", "1")
    named = room.store.workspace(room.root, name="project", cache=False)
    first = named.snapshot()
    (kind,) = {info.kind for info in room.store.threads()}
    assert (kind, named.name) == ("workspace", "workspace:project")
    moved = room.base / "elsewhere"
    room.root.rename(moved)
    (moved / "f").write_text("2")
    room.store.workspace(moved, name="project", cache=False).restore(first)
    assert (moved / "f").read_text() == "1"


# -- sweeping ----------------------------------------------------------------------------------------------------------


def blobs(store: Any, name: str) -> int:
    return len(finish(store._core.context.engine.blob_ids(name)))


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    return Room(backtrail.open(tmp_path / "store.db"), tmp_path)


def test_a_sweep_takes_what_no_snapshot_needs_and_keeps_what_a_conversation_needs(plain: Room) -> None:
    thread = plain.store.thread("talk")
    plain.write("f", "needed by the conversation")
    tied = thread.save({"turn": 1}, files=plain.ws)
    for number in range(5):
        plain.write("f", f"in between {number}")
        lost = plain.ws.snapshot()
    plain.write("f", "now")
    plain.ws.snapshot()
    before = blobs(plain.store, plain.ws.name)
    plain.store.prune(retention=backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
    assert blobs(plain.store, plain.ws.name) == before - 10
    with pytest.raises((CheckpointNotFound, Corrupt)):
        plain.ws.restore(lost)
    thread.rewind(tied, files=True)
    assert plain.read("f") == "needed by the conversation"
    plain.ws.undo()
    assert plain.read("f") == "now"


def test_blobs_that_are_written_ahead_survive_a_sweep_in_between(plain: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.write("first", "1")
    plain.ws.snapshot()
    monkeypatch.setattr(scanner, "BATCH", 20_000)
    wanted = {}
    for number in range(200):
        content = os.urandom(1000)
        (plain.root / f"f{number}").write_bytes(content)
        wanted[f"f{number}"] = content
    core = plain.ws._core
    original = core._log.put

    async def put(*args: Any) -> Any:
        record = await original(*args)
        plain.store.prune(retention=backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
        return record

    monkeypatch.setattr(core._log, "put", put)
    snapshot = plain.ws.snapshot()
    plain.store.prune(retention=backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0)))
    for name in wanted:
        (plain.root / name).unlink()
    plain.ws.restore(snapshot)
    assert {name: (plain.root / name).read_bytes() for name in wanted} == wanted
    assert {shown.reason for shown in plain.ws.snapshots()} == {"snapshot", "safety"}


def test_an_encrypted_store_keeps_files_unreadable_and_gives_them_back(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    store = backtrail.open(tmp_path / "store.db", key=b"k" * 32)
    room = Room(store, tmp_path)
    room.write("f", "a secret that must not be on the disk " * 10)
    first = room.ws.snapshot()
    before = picture(room.root)
    room.write("f", "other")
    room.ws.restore(first)
    assert picture(room.root) == before
    store.close()
    for path in tmp_path.glob("store.db*"):
        assert b"a secret that must not" not in path.read_bytes()
