"""S4, openrouter-agent-sdk: its file checkpoints (SnapshotFiles and RewindFiles), and what they got wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from backtrail.errors import NoCheckpoint


class Chat:
    """A session and the directory it works in."""

    def __init__(self, store: Any, base: Path) -> None:
        self.root = base / "root"
        self.root.mkdir()
        self.session = store.session("chat")
        self.files = store.workspace(self.root, cache=base / "cache")

    def write(self, path: str, content: bytes) -> Path:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)
        return self.root / path

    def turn(self, message: str) -> None:
        """A user's message, with a snapshot of conversation and files as they are before it is worked on."""
        self.session.snapshot(message, files=self.files)
        self.session.add("user", message)


@pytest.fixture
def chat(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    return Chat(store, tmp_path)


def test_snapshot_files_and_rewind_files_by_user_message(chat: Chat) -> None:
    chat.session.add("system", "be helpful")
    chat.write("a", b"1")
    chat.turn("m1")
    chat.write("a", b"2")
    chat.turn("m2")
    chat.write("a", b"3")
    chat.session.rewind("m2", files=True)
    assert (chat.root / "a").read_bytes() == b"2"
    chat.session.rewind("m1", files=True)
    assert (chat.root / "a").read_bytes() == b"1"
    assert len(chat.session.messages()) == 1


def test_a_message_without_a_snapshot_is_no_checkpoint_and_moves_nothing(chat: Chat) -> None:
    chat.write("a", b"1")
    chat.turn("m1")
    with pytest.raises(NoCheckpoint):
        chat.session.rewind("m9", files=True)
    assert (chat.root / "a").read_bytes() == b"1"


def test_the_users_untracked_files_are_not_deleted_if_the_user_wants_that(chat: Chat) -> None:
    chat.write("a", b"1")
    chat.turn("m1")
    chat.write("made-by-agent", b"x")
    chat.turn("m2")
    chat.write("notes/mine", b"never seen by any snapshot")
    chat.session.rewind("m1", files=True, keep_untracked=True)
    assert (chat.root / "notes/mine").read_bytes() == b"never seen by any snapshot"
    assert not (chat.root / "made-by-agent").exists()


def test_binary_files_stay_binary(chat: Chat) -> None:
    content = bytes(range(256)) * 50
    chat.write("image", content)
    chat.turn("m1")
    chat.write("image", b"text")
    chat.session.rewind("m1", files=True)
    assert (chat.root / "image").read_bytes() == content


def test_executable_bits_links_and_empty_directories_come_back(chat: Chat) -> None:
    chat.write("tool", b"#!/bin/sh\n").chmod(0o755)
    (chat.root / "empty").mkdir()
    os.symlink("tool", chat.root / "link")
    chat.turn("m1")
    (chat.root / "tool").chmod(0o644)
    (chat.root / "empty").rmdir()
    (chat.root / "link").unlink()
    chat.write("link", b"a file now")
    chat.session.rewind("m1", files=True)
    assert (chat.root / "tool").stat().st_mode & 0o777 == 0o755
    assert (chat.root / "empty").is_dir()
    assert os.readlink(chat.root / "link") == "tool"


def test_nothing_is_written_through_links_to_the_outside(chat: Chat, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"theirs")
    chat.write("d/f", b"ours")
    chat.turn("m1")
    (chat.root / "d/f").unlink()
    (chat.root / "d").rmdir()
    os.symlink(outside, chat.root / "d")
    chat.session.rewind("m1", files=True)
    assert (outside / "f").read_bytes() == b"theirs"
    assert (chat.root / "d/f").read_bytes() == b"ours"


def test_the_store_does_not_snapshot_itself(tmp_path: Path) -> None:
    import backtrail

    (tmp_path / "f").write_bytes(b"1")
    for target in (tmp_path / "agents.db", f"jsonl:{tmp_path / 'log'}"):
        with backtrail.open(target) as store:
            ws = store.workspace(tmp_path, cache=False)
            ws.snapshot()
            own = {item.path for item in ws.status().skipped if item.reason == "the store itself"}
            assert os.path.basename(str(target)) in own
            assert not ws.diff(ws.snapshot())


def test_a_dry_run_changes_nothing_and_a_rewind_can_be_undone(chat: Chat) -> None:
    chat.write("a", b"1")
    first = chat.files.snapshot()
    chat.write("a", b"2")
    assert [change.path for change in chat.files.restore(first, dry_run=True).changes] == ["a"]
    assert (chat.root / "a").read_bytes() == b"2"
    chat.files.restore(first)
    chat.files.undo()
    assert (chat.root / "a").read_bytes() == b"2"
