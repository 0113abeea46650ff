"""Snapshots: what they keep and leave out, what they refuse, and how they are stored."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import FilesError, InvalidInput, Unavailable
from backtrail.workspace import pack, scanner
from backtrail.workspace.model import Limits
from fix_children import run

from .conftest import Project


def reasons(project: Project) -> dict[str, str]:
    return {item.path: item.reason for item in project.ws.status().skipped}


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_bytes_modes_links_and_empty_directories_come_back_as_they_were(project: Project) -> None:
    project.write("binary", bytes(range(256)) * 10)
    project.write("tool", "#!/bin/sh\n", mode=0o755)
    project.write("secret", "x", mode=0o600)
    project.write("nothing")
    (project.root / "empty" / "inner").mkdir(parents=True)
    (project.root / "locked").mkdir(mode=0o750)
    os.symlink("binary", project.root / "link")
    os.symlink("/nowhere/at/all", project.root / "dangling")
    before = project.contents()
    snapshot = project.ws.snapshot("all")
    shutil.rmtree(project.root)
    project.root.mkdir()
    project.ws.restore(snapshot)
    assert project.contents() == before
    assert (snapshot.files, snapshot.label, snapshot.complete) == (6, "all", True)


def test_a_snapshot_of_an_empty_directory_is_a_snapshot(project: Project) -> None:
    empty = project.ws.snapshot()
    project.write("a", "1")
    project.ws.snapshot()
    project.ws.restore(empty)
    assert project.names() == []


def test_a_restore_leaves_the_directories_of_coding_agents_as_they_are(tmp_path: Path) -> None:
    project = Project(tmp_path, lambda: backtrail.open(tmp_path / "agents.db"))
    project.write("app.py", "one")
    project.write("sub/.codex/config.toml", "old")
    before = project.ws.snapshot()
    project.write("app.py", "two")
    project.write(".claude/settings.json", "{}")
    project.write("sub/.codex/config.toml", "new")
    assert reasons(project)[".claude"] == "a coding agent's own directory"
    assert [change.path for change in project.ws.restore(before).changes] == ["app.py"]
    assert (project.root / ".claude/settings.json").read_text() == "{}"
    assert (project.root / "sub/.codex/config.toml").read_text() == "new"


def test_version_control_sockets_fifos_and_the_store_itself_are_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    base = tmp_path / "root" / "state"
    base.mkdir()
    project = Project(base, lambda: backtrail.open(tmp_path / "root" / "agents.db"))
    project.root = tmp_path / "root"
    project.ws = project.workspace(cache=tmp_path / "cache")
    project.write(".git/HEAD", "ref")
    project.write("sub/.hg/x", "x")
    project.write("sub/.git", "gitdir: elsewhere")
    os.mkfifo(project.root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(project.root)  # a socket's path is short
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
        skipped = reasons(project)
    assert {path for path, reason in skipped.items() if reason == "version control"} == {".git", "sub/.hg", "sub/.git"}
    assert {path for path, reason in skipped.items() if reason == "the store itself"} >= {"agents.db", "agents.db-wal"}
    assert "neither a file" in skipped["pipe"]
    assert "neither a file" in skipped["sock"]


def test_ignore_files_apply_below_their_directory_and_backtrailignore_overrides_gitignore(project: Project) -> None:
    project.write(".gitignore", "*.log\n/only-here\n")
    project.write(".backtrailignore", "!wanted.log\nprivate/\n")
    project.write("sub/.gitignore", "!sub.log\nlocal\n")
    for path in ("a.log", "wanted.log", "sub/sub.log", "sub/b.log", "sub/local", "local", "private/x", "only-here"):
        project.write(path, "x")
    project.write("sub/only-here", "x")
    assert set(reasons(project)) == {"a.log", "sub/b.log", "sub/local", "private", "only-here"}


def test_a_file_over_the_limit_is_skipped_until_it_is_small_enough(project: Project) -> None:
    ws = project.ws = project.workspace(limits=Limits(file_bytes=100))
    project.write("big", "x" * 101)
    assert ws.snapshot().files == 0
    assert "limits.file_bytes" in reasons(project)["big"]
    project.write("big", "x" * 100)
    assert ws.snapshot().files == 1
    assert reasons(project) == {}


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Limits(files=3), "limits.files"),
        (Limits(total_bytes=20), "limits.total_bytes"),
        (Limits(seconds=-1), "limits.seconds"),
    ],
)
def test_a_snapshot_over_a_limit_is_refused_with_the_name_of_the_limit(
    project: Project, limits: Limits, word: str
) -> None:
    for number in range(6):
        project.write(f"d{number}/f", "12345")
    with pytest.raises(FilesError, match=word):
        project.workspace(limits=limits).snapshot()
    assert project.ws.snapshots() == []


# -- guards ----------------------------------------------------------------------------------------------------------


def test_the_file_systems_root_home_and_directories_above_home_are_refused(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = sqlite_project.base / "people" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    os.symlink(home, sqlite_project.base / "alias")
    for path in ("/", home, home.parent, sqlite_project.base / "alias", f"{home}/.", ""):
        with pytest.raises(InvalidInput):
            sqlite_project.workspace(root=path)
    with pytest.raises(FilesError, match="not a directory"):
        sqlite_project.workspace(root=sqlite_project.base / "missing")
    (home / "project").mkdir()
    assert sqlite_project.workspace(root=home / "project").snapshot().files == 0


def test_a_file_that_cannot_be_read_fails_the_snapshot_or_is_flagged_and_left_alone(shared_dir: Path) -> None:
    def work(send: Any) -> None:
        base = shared_dir / "mine"
        base.mkdir()
        project = Project(base, lambda: backtrail.open(base / "store.db"))
        project.write("fine", "1")
        project.write("shut", "2").chmod(0)
        project.write("closed/inside", "3")
        (project.root / "closed").chmod(0)
        try:
            project.ws.snapshot()
        except FilesError as error:
            send(os.path.basename(error.path).encode() + b"\n")
        ws = project.workspace(unreadable="flag")
        snapshot = ws.snapshot()
        send(repr((snapshot.complete, sorted(item.path for item in snapshot.flagged), snapshot.files)).encode() + b"\n")
        (project.root / "closed").chmod(0o755)
        (project.root / "shut").chmod(0o644)
        ws.snapshot()
        ws.restore(snapshot)
        send(repr(project.names()).encode())

    first, second, third = run(work, user=65534).decode().split("\n")
    assert first in ("shut", "closed")
    assert second == "(False, ['closed', 'shut'], 1)"
    assert third == "['closed', 'closed/inside', 'fine', 'shut']"


def test_the_index_is_private_and_never_inside_the_directory(sqlite_project: Project) -> None:
    sqlite_project.write("a", "1")
    sqlite_project.ws.snapshot()
    (kept,) = sqlite_project.cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert sqlite_project.cache.stat().st_mode & 0o777 == 0o700
    sqlite_project.workspace(cache=sqlite_project.root / "cache").snapshot()
    sqlite_project.workspace(cache=False).snapshot()
    assert sqlite_project.names() == ["a"]


# -- storage ---------------------------------------------------------------------------------------------------------


def test_an_insertion_into_a_large_file_costs_a_piece_and_not_the_file(sqlite_project: Project) -> None:
    content = os.urandom(3 * 2**20)
    sqlite_project.write("large", content)
    first = sqlite_project.ws.snapshot()
    before = sum(size for _, size in _blobs(sqlite_project))
    sqlite_project.write("large", content[: 10**6] + b"x" * 100 + content[10**6 :])
    sqlite_project.ws.snapshot()
    assert sum(size for _, size in _blobs(sqlite_project)) - before < 150_000
    sqlite_project.ws.restore(first)
    assert (sqlite_project.root / "large").read_bytes() == content


def test_equal_files_and_unchanged_directories_are_stored_once(sqlite_project: Project) -> None:
    for number in range(20):
        sqlite_project.write(f"d{number}/same", b"content " * 100)
    sqlite_project.ws.snapshot()
    assert len(_blobs(sqlite_project)) == 3  # the file, the one tree that all directories have, the root
    sqlite_project.write("d3/more", "1")
    sqlite_project.ws.snapshot()
    assert len(_blobs(sqlite_project)) == 6
    sqlite_project.ws.snapshot()
    assert len(_blobs(sqlite_project)) == 6


def _blobs(project: Project) -> list[tuple[bytes, int]]:
    from backtrail.engines.coroutines import finish

    return finish(project.store._core.context.engine.blob_ids(project.ws.name))


def test_progress_is_reported_for_every_file(sqlite_project: Project) -> None:
    for number in range(100):
        sqlite_project.write(f"f{number}", str(number))
    told: list[tuple[int, int]] = []
    sqlite_project.ws.snapshot(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100)
    assert len(told) > 1


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so small that files are prefetched in a thread, and blobs written ahead in many parts."""
    monkeypatch.setattr(scanner, "PREFETCH_BYTES", 0)
    monkeypatch.setattr(scanner, "COMMIT_BYTES", 50_000)
    monkeypatch.setattr(scanner, "EARLY_COMMIT_BYTES", 10_000)


@pytest.mark.usefixtures("small_limits")
def test_files_that_are_prefetched_while_others_are_written_come_back(project: Project) -> None:
    for number in range(300):
        project.write(f"d{number % 7}/f{number}", os.urandom(1 + number * 10))
    for number in range(4):
        project.write(f"large{number}", os.urandom(2**20) + b"text " * 2**16)
    project.write("large4", (project.root / "large3").read_bytes())
    whole = project.contents()
    here, told = threading.get_ident(), []
    snapshot = project.ws.snapshot(progress=lambda done, total: told.append((done, total, threading.get_ident())))
    assert told[-1] == (305, 305, here), "progress is reported in the calling thread"
    assert {thread for _, _, thread in told} == {here}
    shutil.rmtree(project.root)
    project.root.mkdir()
    project.workspace(cache=False).restore(snapshot)
    assert project.contents() == whole


@pytest.mark.usefixtures("small_limits")
def test_a_snapshot_that_fails_while_files_are_prefetched_leaves_no_thread_behind(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        project.write(f"f{number:03}", os.urandom(2000))
    original = pack.read_file

    def read(scan_root: Any, descent: Any, path: bytes, *rest: Any) -> Any:
        if path.endswith(b"f250"):
            raise FilesError(path, "it cannot be read")
        return original(scan_root, descent, path, *rest)

    monkeypatch.setattr(pack, "read_file", read)
    with pytest.raises(FilesError, match="f250"):
        project.ws.snapshot()
    monkeypatch.undo()

    async def append_part(*_: Any) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(scanner, "COMMIT_BYTES", 50_000)
    monkeypatch.setattr(scanner, "PREFETCH_BYTES", 0)
    monkeypatch.setattr(project.ws._core._journal, "append_part", append_part)
    with pytest.raises(Unavailable, match="full"):
        project.ws.snapshot()
    monkeypatch.undo()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith(("backtrail-prefetch", "backtrail-pack"))
    ]
    assert project.ws.snapshot().files == 300


def test_two_writers_of_one_workspace_lose_nothing(sqlite_project: Project) -> None:
    sqlite_project.write("a", "1")
    one, other = sqlite_project.workspace(cache=False), sqlite_project.workspace(cache=False)
    one.snapshot()
    sqlite_project.write("b", "2")
    other.snapshot()
    sqlite_project.write("c", "3")
    last = one.snapshot()
    shutil.rmtree(sqlite_project.root)
    sqlite_project.root.mkdir()
    other.restore(last)
    assert sqlite_project.names() == ["a", "b", "c"]


def test_threads_of_one_process_exclude_each_other(sqlite_project: Project) -> None:
    def work(number: int) -> None:
        for cycle in range(5):
            sqlite_project.write(f"t{number}/f{cycle}", f"{number} {cycle}")
            sqlite_project.ws.snapshot()
            sqlite_project.ws.status()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    wanted = sqlite_project.contents()
    assert len(sqlite_project.ws.snapshots()) == 20
    last = sqlite_project.ws.snapshots()[-1]
    shutil.rmtree(sqlite_project.root)
    sqlite_project.root.mkdir()
    sqlite_project.ws.restore(last)
    assert sqlite_project.contents() == wanted


def test_look_alikes_of_version_control_are_left_out_and_never_touched(sqlite_project: Project) -> None:
    for name in ("git~1/config", "d/.GIT./config", ".g\u200cit"):
        sqlite_project.write(name, "theirs")
    sqlite_project.write("a", "1")
    first = sqlite_project.ws.snapshot()
    assert first.files == 1
    sqlite_project.write("git~1/config", "changed")
    sqlite_project.ws.restore(first)
    assert sqlite_project.read("git~1/config") == "changed"


@pytest.mark.parametrize("key", [None, "07" * 32], ids=["plain", "encrypted"])
def test_the_index_of_an_encrypted_store_tells_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    from backtrail.workspace import signatures

    monkeypatch.setattr(signatures, "RACY", -(10**12))  # trust every signature at once
    project = Project(tmp_path, lambda: backtrail.open(tmp_path / "store.db", key=key))
    project.write("salary-of-the-boss.txt", "1")
    (project.root / "secret-folder").mkdir()
    project.ws.snapshot()
    data = next(project.cache.iterdir()).read_bytes()
    for name in (b"salary-of-the-boss.txt", b"secret-folder", os.fsencode(project.root)):
        assert (name in data) is (key is None)
    project.reopen()
    read: list[bytes] = []
    monkeypatch.setattr(pack, "read_file", lambda *args: read.append(args[2]))
    project.ws.snapshot()
    assert read == [], "the index is used"
    project.close()
