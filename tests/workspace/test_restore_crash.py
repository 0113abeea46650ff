"""A process killed during a restore: after the next open, directory and thread are both old or both new."""

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

from .conftest import Contents, Project, contents_of

pytestmark = pytest.mark.slow

KILLS = 100


class RewindSetup:
    """A directory in one state, a snapshot of another, and a thread with a checkpoint for each, to be copied."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.kept = base / "kept"
        self.live = base / "live"
        self.live.mkdir()
        project = Project(self.live, lambda: backtrail.open(self.live / "store.db"))
        thread = project.store.thread("talk")
        for number in range(15):
            project.write(f"edited{number}", f"old {number}")
            project.write(f"gone{number}", f"old {number}", mode=0o640)
        project.write("d/file-to-dir", "1")
        project.write("dir-to-file/x", "2")
        project.write("tight/f", "3")
        project.write("large", b"0123456789abcdef" * 70_000)
        os.symlink("edited1", project.root / "link-to-dir")
        (project.root / "d").chmod(0o500)
        self.old = project.contents()
        self.first = thread.save({"turn": 1}, files=project.ws)
        (project.root / "d").chmod(0o755)
        for number in range(15):
            project.write(f"edited{number}", f"new {number}", mode=0o755)
            (project.root / f"gone{number}").unlink()
            project.write(f"made/new{number}", "new")
        (project.root / "d/file-to-dir").unlink()
        project.write("d/file-to-dir/y", "4")
        shutil.rmtree(project.root / "dir-to-file")
        project.write("dir-to-file", "5")
        project.write("tight/f", "6")
        (project.root / "tight").chmod(0o555)
        (project.root / "link-to-dir").unlink()
        project.write("link-to-dir/z", "7")
        project.write("large", b"fedcba9876543210" * 70_000)
        thread.save({"turn": 2}, files=project.ws)
        for number in range(5):
            project.write(f"late{number}", "in no snapshot")
            project.write(f"late/deep/new{number}", "in no snapshot")
        (project.root / "late" / "empty").mkdir()
        self.new = project.contents()
        project.store.close()
        self.live.rename(self.kept)

    def reset(self) -> None:
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.kept, self.live, symlinks=True)

    def open(self) -> tuple[Any, Any]:
        store = backtrail.open(self.live / "store.db", durability="normal")
        return store, store.workspace(self.live / "root", cache=self.live / "cache")

    def work(self, fatal: int | None) -> Callable[[Callable[[bytes], None]], None]:
        """Rewind both; with `fatal`, die by SIGKILL just before that many system calls were made."""

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

    def outcome(self) -> tuple[Contents, int]:
        """The directory and the turn of the thread, as the next process finds them."""
        store, _ = self.open()
        turn = store.thread("talk").load()["turn"]
        store.close()
        return contents_of(self.live / "root"), turn


def test_a_kill_at_a_hundred_points_leaves_thread_and_files_both_old_or_both_new(tmp_path: Path) -> None:
    setup = RewindSetup(tmp_path)
    setup.reset()
    status, sent = Child(setup.work(None)).end()
    assert status == 0
    assert setup.outcome() == (setup.old, 1)
    total = int(sent)
    setup.reset()
    assert Child(setup.work(None)).end() == (0, sent), "the points are the same in every run"
    assert total > KILLS
    found = {1: 0, 2: 0}
    for fatal in random.Random(4).sample(range(1, total + 1), KILLS):
        setup.reset()
        status, _ = Child(setup.work(fatal)).end()
        assert status == -signal.SIGKILL
        directory, turn = setup.outcome()
        assert directory == {1: setup.old, 2: setup.new}[turn], f"killed at {fatal} of {total}"
        found[turn] += 1
    assert min(found.values()) > 0, found


def test_a_rewind_that_died_is_rolled_back_if_the_thread_went_on(tmp_path: Path) -> None:
    setup = RewindSetup(tmp_path)
    setup.reset()
    _, sent = Child(setup.work(None)).end()
    halfway = 0
    for fatal in range(int(sent) // 2, int(sent), 7):
        setup.reset()
        Child(setup.work(fatal)).end()
        if contents_of(setup.live / "root") in (setup.old, setup.new):
            continue
        halfway += 1
        store = backtrail.open(setup.live / "store.db")
        if store.thread("talk").load()["turn"] == 2:
            store.thread("talk").save({"turn": 3})
        store.workspace(setup.live / "root")
        assert contents_of(setup.live / "root") == setup.new
        assert store.thread("talk").load()["turn"] == 3
        store.close()
    assert halfway > 0


def test_a_file_that_somebody_wrote_after_the_crash_is_not_overwritten(tmp_path: Path) -> None:
    setup = RewindSetup(tmp_path)
    setup.reset()
    _, sent = Child(setup.work(None)).end()
    for fatal in range(int(sent) // 2, int(sent), 5):
        setup.reset()
        Child(setup.work(fatal)).end()
        if contents_of(setup.live / "root") in (setup.old, setup.new):
            continue
        (setup.live / "root" / "edited3").write_text("by hand, after the crash")
        directory, _ = setup.outcome()
        assert directory[b"edited3"][2] == b"by hand, after the crash"
        assert {path: what for path, what in directory.items() if path != b"edited3"} == {
            path: what for path, what in setup.old.items() if path != b"edited3"
        }
        break
    else:
        raise AssertionError("no kill left the directory half way")


def test_an_unfinished_restore_is_found_although_another_directory_of_the_workspace_went_on(
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
    original, done = apply.Applier._install, [0]

    def install(self: Any, op: Any, expect: Any) -> None:
        done[0] += 1
        if done[0] > 2:
            raise OSError(5, "Input/output error", "f")
        original(self, op, expect)

    monkeypatch.setattr(apply.Applier, "_install", install)
    with pytest.raises(FilesError, match="half done"):
        here.restore(first)
    monkeypatch.undo()
    store.workspace(tmp_path / "there", name="shared", cache=False).snapshot()
    store.workspace(tmp_path / "here", name="shared", cache=False)
    assert {(tmp_path / "here" / f"f{number}").read_text() for number in range(4)} == {"1"}
