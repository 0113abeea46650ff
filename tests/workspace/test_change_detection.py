"""Change detection: every change of a directory is seen, and unchanged files are not read again."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

import pytest

from backtrail.workspace import apply, index, pack, signatures, walk

from .conftest import Project


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on."""
    found: list[str] = []
    original = pack.read_file

    def read(scan_root: Any, descent: Any, path: bytes, *rest: Any) -> Any:
        found.append(os.path.basename(os.fsdecode(path)))
        return original(scan_root, descent, path, *rest)

    monkeypatch.setattr(pack, "read_file", read)
    return found


@pytest.fixture
def trust_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust every signature at once, so that a test need not wait until timestamps are old enough."""
    monkeypatch.setattr(signatures, "RACY", -(10**12))


def test_unchanged_files_are_never_read_not_even_by_another_process(
    sqlite_project: Project, files_read: list[str], trust_at_once: None
) -> None:
    for number in range(5):
        sqlite_project.write(f"d/f{number}", str(number))
    sqlite_project.ws.snapshot()
    files_read.clear()
    sqlite_project.ws.snapshot()
    sqlite_project.workspace().snapshot()
    assert files_read == []
    sqlite_project.write("d/f3", "changed")
    sqlite_project.write("d/new", "new")
    sqlite_project.workspace().snapshot()
    assert sorted(files_read) == ["f3", "new"]


def test_deleting_the_index_changes_nothing_but_time(
    sqlite_project: Project, files_read: list[str], trust_at_once: None
) -> None:
    sqlite_project.write("a/b", "1")
    one = sqlite_project.ws.snapshot()
    shutil.rmtree(sqlite_project.cache)
    files_read.clear()
    two = sqlite_project.workspace().snapshot()
    assert files_read == ["b"]
    assert one.tree == two.tree
    (sqlite_project.cache / next(sqlite_project.cache.iterdir()).name).write_bytes(b"nonsense")
    assert sqlite_project.workspace().snapshot().tree == one.tree


def test_an_index_of_another_store_is_not_used(sqlite_project: Project, trust_at_once: None) -> None:
    sqlite_project.write("a", "1")
    sqlite_project.ws.snapshot()
    for path in sqlite_project.base.glob("store.db*"):
        path.unlink()
    ws = sqlite_project.reopen()
    snapshot = ws.snapshot()
    sqlite_project.write("a", "2")
    ws.restore(snapshot)
    assert sqlite_project.read("a") == "1"


def test_a_change_within_the_granularity_of_timestamps_is_seen(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The racy case: a file system with a coarse clock, and two writes of one size within a tick."""

    def coarse(facts: os.stat_result) -> signatures.Signature:
        tick = 10**18
        return (facts.st_mtime_ns // tick, facts.st_ctime_ns // tick, facts.st_size, facts.st_ino, facts.st_mode)

    def now() -> int:
        return real() // 10**18

    real = time.time_ns
    for module in (signatures, index, walk, pack, apply):
        monkeypatch.setattr(module, "signature", coarse)
    monkeypatch.setattr(walk.time, "time_ns", now)
    path = project.write("f", "aaaa")
    first = project.ws.snapshot()
    path.write_text("bbbb")
    second = project.ws.snapshot()
    assert first.tree != second.tree
    project.ws.restore(first)
    assert project.read("f") == "aaaa"


def test_an_mtime_that_was_set_back_does_not_hide_a_change(project: Project, trust_at_once: None) -> None:
    path = project.write("f", "aaaa")
    first = project.ws.snapshot()
    facts = path.stat()
    path.write_text("bbbb")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert project.ws.snapshot().tree != first.tree


@pytest.mark.usefixtures("trust_at_once")
def test_every_way_of_changing_a_directory_is_seen(project: Project) -> None:
    def expect(*paths: str) -> None:
        found = [change.path for change in project.ws.diff(last[-1]).changes]
        assert found == list(paths)
        last.append(project.ws.snapshot())
        assert project.workspace(cache=False).snapshot().tree == last[-1].tree

    project.write("d/a", "1")
    project.write("d/e/b", "2")
    last = [project.ws.snapshot()]
    (project.root / "d/a").rename(project.root / "d/a2")
    expect("d/a", "d/a2")
    (project.root / "d").rename(project.root / "D")
    expect("D/a2", "D/e/b", "d/a2", "d/e/b")
    os.symlink("D", project.root / "d")
    expect("d")
    (project.root / "D/a2").chmod(0o700)
    expect("D/a2")
    (project.root / "D/e").chmod(0o700)
    expect("D/e")
    (project.root / "D/a2").unlink()
    (project.root / "D/a2").mkdir()
    expect("D/a2")
    os.replace(project.write("D/e/tmp", "22"), project.root / "D/e/b")
    expect("D/e/b")
    shutil.rmtree(project.root / "D")
    expect("D/a2", "D/e/b")


@pytest.mark.usefixtures("trust_at_once")
def test_repeated_changes_are_all_seen_and_unchanged_files_are_not_read(
    project: Project, files_read: list[str]
) -> None:
    for name in ("a/1", "a/2", "b/3", "4"):
        project.write(name, "0")
    project.ws.snapshot()
    for cycle in range(1, 5):
        for name in ("a/1", "4"):
            files_read.clear()
            project.write(name, str(cycle))
            assert [change.path for change in project.ws.status().changes] == [name]
            snapshot = project.ws.snapshot()
            assert set(files_read) == {os.path.basename(name)}
            assert project.ws.snapshot().tree == snapshot.tree
            assert project.workspace(cache=False).snapshot().tree == snapshot.tree


def test_files_with_times_that_no_index_can_hold_are_read_each_time(
    project: Project, monkeypatch: pytest.MonkeyPatch, files_read: list[str], trust_at_once: None
) -> None:
    """Some file systems keep years that do not fit into 64 bits of nanoseconds."""

    def far(facts: os.stat_result) -> signatures.Signature:
        late = 10**20 if facts.st_size == 4 else 0
        return (facts.st_mtime_ns + late, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_mode)

    for module in (signatures, index, walk, pack, apply):
        monkeypatch.setattr(module, "signature", far)
    project.write("d/far", "aaaa")
    project.write("d/near", "bbb")
    for again in (project.ws, project.ws, project.workspace()):
        first = again.snapshot()
    assert files_read == ["far", "near", "far", "far"]
    project.write("d/far", "cccc")
    assert project.ws.snapshot().tree != first.tree
    project.ws.restore(first)
    assert project.read("d/far") == "aaaa"


@pytest.mark.usefixtures("trust_at_once")
def test_a_changed_ignore_file_applies_to_files_that_were_seen_before(project: Project) -> None:
    project.write("sub/deep/x.tmp", "x")
    project.write("sub/deep/y", "y")
    assert project.ws.snapshot().files == 2
    project.write(".gitignore", "*.tmp\n.gitignore\n")
    assert project.ws.snapshot().files == 1
    project.write(".gitignore", "*.tmp2\n.gitignore\n")
    assert project.ws.snapshot().files == 2
    (project.root / ".gitignore").unlink()
    project.write("sub/.backtrailignore", "deep/\n")
    assert project.ws.snapshot().files == 1
    (project.root / "sub/.backtrailignore").unlink()
    assert project.ws.snapshot().files == 2


def test_a_file_that_changes_while_it_is_read_is_read_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project.write("f", "old")
    original = pack._read_content
    left = [1]

    def content(*args: Any) -> Any:
        result = original(*args)
        if left[0]:
            left[0] -= 1
            path.write_text(f"new {left[0]}")
        return result

    monkeypatch.setattr(pack, "_read_content", content)
    snapshot = project.ws.snapshot()
    assert snapshot.complete
    left[0] = 100
    restless = project.ws.snapshot()
    assert [(item.path, "kept changing" in item.reason) for item in restless.flagged] == [("f", True)]
    left[0] = 0
    project.ws.restore(snapshot)
    assert project.read("f") == "new 0"
