"""Killed in the middle of a restore: after the next open, directory and conversation are both old or both new."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import FilesError
from backtrail.workspace import apply
from fix_children import Child

from .conftest import Desk, Picture, picture

KILLS = 100


class Stage:
    """A directory in one state, a snapshot of another, and a thread with a checkpoint for each; ready to be copied."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.kept = base / "kept"
        self.live = base / "live"
        self.live.mkdir()
        desk = Desk(self.live, lambda: self.live / "store.db")
        thread = desk.store.thread("talk")
        for number in range(15):
            desk.write(f"edited{number}", f"old {number}")
            desk.write(f"gone{number}", f"old {number}", mode=0o640)
        desk.write("d/file-to-dir", "1")
        desk.write("dir-to-file/x", "2")
        desk.write("tight/f", "3")
        desk.write("large", b"0123456789abcdef" * 70_000)
        os.symlink("edited1", desk.root / "link-to-dir")
        (desk.root / "d").chmod(0o500)
        self.old = desk.picture()
        self.first = thread.save({"turn": 1}, files=desk.ws)
        (desk.root / "d").chmod(0o755)
        for number in range(15):
            desk.write(f"edited{number}", f"new {number}", mode=0o755)
            (desk.root / f"gone{number}").unlink()
            desk.write(f"made/new{number}", "new")
        (desk.root / "d/file-to-dir").unlink()
        desk.write("d/file-to-dir/y", "4")
        shutil.rmtree(desk.root / "dir-to-file")
        desk.write("dir-to-file", "5")
        desk.write("tight/f", "6")
        (desk.root / "tight").chmod(0o555)
        (desk.root / "link-to-dir").unlink()
        desk.write("link-to-dir/z", "7")
        desk.write("large", b"fedcba9876543210" * 70_000)
        thread.save({"turn": 2}, files=desk.ws)
        self.new = desk.picture()
        desk.store.close()
        self.live.rename(self.kept)

    def reset(self) -> None:
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.kept, self.live, symlinks=True)

    def open(self) -> tuple[Any, Any]:
        store = backtrail.open(self.live / "store.db", durability="normal")
        return store, store.workspace(self.live / "root", cache=self.live / "cache")

    def work(self, fatal: int | None) -> Callable[[Callable[[bytes], None]], None]:
        """Rewind both; with `fatal`, die by SIGKILL just before that many things were asked of the system."""

        def rewind(send: Callable[[bytes], None]) -> None:
            store, _ = self.open()
            seen = [0]

            def hook(event: str, _: tuple[Any, ...]) -> None:
                if event.startswith("os.") or event == "open":
                    seen[0] += 1
                    if seen[0] == fatal:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(hook)
            store.thread("talk").rewind(self.first, files=True)
            send(str(seen[0]).encode())
            store.close()

        return rewind

    def outcome(self) -> tuple[Picture, int]:
        """What the next process finds: the directory, and the turn the conversation is at."""
        store, _ = self.open()
        turn = store.thread("talk").load()["turn"]
        store.close()
        return picture(self.live / "root"), turn


def test_a_kill_at_a_hundred_points_leaves_conversation_and_files_both_old_or_both_new(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.reset()
    status, sent = Child(stage.work(None)).end()
    assert status == 0
    assert stage.outcome() == (stage.old, 1)
    total = int(sent)
    stage.reset()
    assert Child(stage.work(None)).end() == (0, sent), "the points are the same in every run"
    assert total > KILLS
    found = {1: 0, 2: 0}
    for fatal in random.Random(4).sample(range(1, total + 1), KILLS):
        stage.reset()
        status, _ = Child(stage.work(fatal)).end()
        assert status == -signal.SIGKILL
        directory, turn = stage.outcome()
        assert directory == {1: stage.old, 2: stage.new}[turn], f"killed at {fatal} of {total}"
        found[turn] += 1
    assert min(found.values()) > 0, found


def test_a_rewind_that_died_is_taken_back_if_the_conversation_went_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.reset()
    _, sent = Child(stage.work(None)).end()
    halfway = 0
    for fatal in range(int(sent) // 2, int(sent), 7):
        stage.reset()
        Child(stage.work(fatal)).end()
        if picture(stage.live / "root") in (stage.old, stage.new):
            continue
        halfway += 1
        store = backtrail.open(stage.live / "store.db")
        if store.thread("talk").load()["turn"] == 2:
            store.thread("talk").save({"turn": 3})
        store.workspace(stage.live / "root")
        assert picture(stage.live / "root") == stage.new
        assert store.thread("talk").load()["turn"] == 3
        store.close()
    assert halfway > 0


def test_a_file_that_somebody_wrote_after_the_crash_is_not_overwritten(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.reset()
    _, sent = Child(stage.work(None)).end()
    for fatal in range(int(sent) // 2, int(sent), 5):
        stage.reset()
        Child(stage.work(fatal)).end()
        if picture(stage.live / "root") in (stage.old, stage.new):
            continue
        (stage.live / "root" / "edited3").write_text("by hand, after the crash")
        directory, _ = stage.outcome()
        assert directory[b"edited3"][2] == b"by hand, after the crash"
        assert {path: what for path, what in directory.items() if path != b"edited3"} == {
            path: what for path, what in stage.old.items() if path != b"edited3"
        }
        break
    else:
        raise AssertionError("no kill left the directory half way")


def test_a_restore_that_died_is_found_again_although_another_directory_of_the_workspace_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backtrail.open(tmp_path / "store.db")
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here = store.workspace(tmp_path / "here", name="shared", cache=False)
    for number in range(4):
        (tmp_path / "here" / f"f{number}").write_text("1")
    first = here.snapshot()
    for number in range(4):
        (tmp_path / "here" / f"f{number}").write_text("2")
    original, done = apply.Applier._put, [0]

    def put(self: Any, op: Any, expect: Any) -> None:
        done[0] += 1
        if done[0] > 2:
            raise OSError(5, "Input/output error", "f")
        original(self, op, expect)

    monkeypatch.setattr(apply.Applier, "_put", put)
    with pytest.raises(FilesError, match="half done"):
        here.restore(first)
    monkeypatch.undo()
    store.workspace(tmp_path / "there", name="shared", cache=False).snapshot()
    store.workspace(tmp_path / "here", name="shared", cache=False)
    assert {(tmp_path / "here" / f"f{number}").read_text() for number in range(4)} == {"1"}
