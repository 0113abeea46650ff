"""What a snapshot keeps, what it leaves out, and how it finds out what changed."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backtrail.errors import FilesError, InvalidInput, Unavailable
from backtrail.workspace import apply, index, pack, scanner, walk
from backtrail.workspace.model import Limits
from fix_children import run

from .conftest import Desk


def reasons(desk: Desk) -> dict[str, str]:
    return {item.path: item.reason for item in desk.ws.status().skipped}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on."""
    found: list[str] = []
    original = pack.read

    def read(place: Any, path: bytes, *rest: Any) -> Any:
        found.append(os.path.basename(os.fsdecode(path)))
        return original(place, path, *rest)

    monkeypatch.setattr(pack, "read", read)
    return found


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust every signature at once, so that a test need not wait for timestamps to grow old."""
    monkeypatch.setattr(index, "RACY", -(10**12))


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_bytes_modes_links_and_empty_directories_come_back_as_they_were(desk: Desk) -> None:
    desk.write("binary", bytes(range(256)) * 10)
    desk.write("tool", "#!/bin/sh\n", mode=0o755)
    desk.write("secret", "x", mode=0o600)
    desk.write("nothing")
    (desk.root / "empty" / "inner").mkdir(parents=True)
    (desk.root / "locked").mkdir(mode=0o750)
    os.symlink("binary", desk.root / "link")
    os.symlink("/nowhere/at/all", desk.root / "dangling")
    before = desk.picture()
    snapshot = desk.ws.snapshot("all")
    shutil.rmtree(desk.root)
    desk.root.mkdir()
    desk.ws.restore(snapshot)
    assert desk.picture() == before
    assert (snapshot.files, snapshot.label, snapshot.complete) == (6, "all", True)


def test_a_snapshot_of_an_empty_directory_is_a_snapshot(desk: Desk) -> None:
    empty = desk.ws.snapshot()
    desk.write("a", "1")
    desk.ws.snapshot()
    desk.ws.restore(empty)
    assert desk.names() == []


def test_version_control_sockets_fifos_and_the_store_itself_are_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    base = tmp_path / "root" / "state"
    base.mkdir()
    desk = Desk(base, lambda: tmp_path / "root" / "agents.db")
    desk.root = tmp_path / "root"
    desk.ws = desk.workspace(cache=tmp_path / "cache")
    desk.write(".git/HEAD", "ref")
    desk.write("sub/.hg/x", "x")
    desk.write("sub/.git", "gitdir: elsewhere")
    os.mkfifo(desk.root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(desk.root)  # a socket's path is short
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
        skipped = reasons(desk)
    assert {path for path, reason in skipped.items() if reason == "version control"} == {".git", "sub/.hg", "sub/.git"}
    assert {path for path, reason in skipped.items() if reason == "the store itself"} >= {"agents.db", "agents.db-wal"}
    assert "neither a file" in skipped["pipe"]
    assert "neither a file" in skipped["sock"]


def test_ignore_files_hold_where_they_stand_and_backtrailignore_has_the_last_word(desk: Desk) -> None:
    desk.write(".gitignore", "*.log\n/only-here\n")
    desk.write(".backtrailignore", "!wanted.log\nprivate/\n")
    desk.write("sub/.gitignore", "!sub.log\nlocal\n")
    for path in ("a.log", "wanted.log", "sub/sub.log", "sub/b.log", "sub/local", "local", "private/x", "only-here"):
        desk.write(path, "x")
    desk.write("sub/only-here", "x")
    assert set(reasons(desk)) == {"a.log", "sub/b.log", "sub/local", "private", "only-here"}


def test_a_file_over_the_limit_is_skipped_until_it_is_small_enough(desk: Desk) -> None:
    ws = desk.ws = desk.workspace(limits=Limits(file_bytes=100))
    desk.write("big", "x" * 101)
    assert ws.snapshot().files == 0
    assert "limits.file_bytes" in reasons(desk)["big"]
    desk.write("big", "x" * 100)
    assert ws.snapshot().files == 1
    assert reasons(desk) == {}


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Limits(files=3), "limits.files"),
        (Limits(total_bytes=20), "limits.total_bytes"),
        (Limits(seconds=-1), "limits.seconds"),
    ],
)
def test_a_cap_refuses_the_snapshot_and_says_which_one(desk: Desk, limits: Limits, word: str) -> None:
    for number in range(6):
        desk.write(f"d{number}/f", "12345")
    with pytest.raises(FilesError, match=word):
        desk.workspace(limits=limits).snapshot()
    assert desk.ws.snapshots() == []


# -- guards ----------------------------------------------------------------------------------------------------------


def test_the_root_of_all_files_home_and_what_is_above_home_are_refused(
    lone: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = lone.base / "people" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    os.symlink(home, lone.base / "alias")
    for path in ("/", home, home.parent, lone.base / "alias", f"{home}/.", ""):
        with pytest.raises(InvalidInput):
            lone.workspace(root=path)
    with pytest.raises(FilesError, match="not a directory"):
        lone.workspace(root=lone.base / "missing")
    (home / "project").mkdir()
    assert lone.workspace(root=home / "project").snapshot().files == 0


def test_a_file_that_cannot_be_read_fails_the_snapshot_or_is_flagged_and_left_alone(open_place: Path) -> None:
    def work(send: Any) -> None:
        base = open_place / "mine"
        base.mkdir()
        desk = Desk(base, lambda: base / "store.db")
        desk.write("fine", "1")
        desk.write("shut", "2").chmod(0)
        desk.write("closed/inside", "3")
        (desk.root / "closed").chmod(0)
        try:
            desk.ws.snapshot()
        except FilesError as error:
            send(os.path.basename(error.path).encode() + b"\n")
        ws = desk.workspace(unreadable="flag")
        snapshot = ws.snapshot()
        send(repr((snapshot.complete, sorted(item.path for item in snapshot.flagged), snapshot.files)).encode() + b"\n")
        (desk.root / "closed").chmod(0o755)
        (desk.root / "shut").chmod(0o644)
        ws.snapshot()
        ws.restore(snapshot)
        send(repr(desk.names()).encode())

    first, second, third = run(work, user=65534).decode().split("\n")
    assert first in ("shut", "closed")
    assert second == "(False, ['closed', 'shut'], 1)"
    assert third == "['closed', 'closed/inside', 'fine', 'shut']"


def test_the_index_is_private_and_never_inside_the_directory(lone: Desk) -> None:
    lone.write("a", "1")
    lone.ws.snapshot()
    (kept,) = lone.cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert lone.cache.stat().st_mode & 0o777 == 0o700
    lone.workspace(cache=lone.root / "cache").snapshot()
    lone.workspace(cache=False).snapshot()
    assert lone.names() == ["a"]


# -- change detection ------------------------------------------------------------------------------------------------


def test_unchanged_files_are_never_read_not_even_by_another_process(
    lone: Desk, readings: list[str], settled: None
) -> None:
    for number in range(5):
        lone.write(f"d/f{number}", str(number))
    lone.ws.snapshot()
    readings.clear()
    lone.ws.snapshot()
    lone.workspace().snapshot()
    assert readings == []
    lone.write("d/f3", "changed")
    lone.write("d/new", "new")
    lone.workspace().snapshot()
    assert sorted(readings) == ["f3", "new"]


def test_deleting_the_index_changes_nothing_but_time(lone: Desk, readings: list[str], settled: None) -> None:
    lone.write("a/b", "1")
    one = lone.ws.snapshot()
    shutil.rmtree(lone.cache)
    readings.clear()
    two = lone.workspace().snapshot()
    assert readings == ["b"]
    assert one.tree == two.tree
    (lone.cache / next(lone.cache.iterdir()).name).write_bytes(b"nonsense")
    assert lone.workspace().snapshot().tree == one.tree


def test_an_index_of_another_store_is_not_believed(lone: Desk, settled: None) -> None:
    lone.write("a", "1")
    lone.ws.snapshot()
    for path in lone.base.glob("store.db*"):
        path.unlink()
    ws = lone.reopen()
    snapshot = ws.snapshot()
    lone.write("a", "2")
    ws.restore(snapshot)
    assert lone.read("a") == "1"


def test_a_change_within_the_granularity_of_timestamps_is_seen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The racy case: a file system whose clock ticks once a minute, and two writes of one size within a tick."""

    def coarse(facts: os.stat_result) -> index.Signature:
        tick = 10**18
        return (facts.st_mtime_ns // tick, facts.st_ctime_ns // tick, facts.st_size, facts.st_ino, facts.st_mode)

    def now() -> int:
        return real() // 10**18

    real = time.time_ns
    for module in (walk, pack, apply):
        monkeypatch.setattr(module, "signature", coarse)
    monkeypatch.setattr(walk.time, "time_ns", now)
    path = desk.write("f", "aaaa")
    first = desk.ws.snapshot()
    path.write_text("bbbb")
    second = desk.ws.snapshot()
    assert first.tree != second.tree
    desk.ws.restore(first)
    assert desk.read("f") == "aaaa"


def test_an_mtime_that_was_set_back_does_not_hide_a_change(desk: Desk, settled: None) -> None:
    path = desk.write("f", "aaaa")
    first = desk.ws.snapshot()
    facts = path.stat()
    path.write_text("bbbb")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert desk.ws.snapshot().tree != first.tree


@pytest.mark.usefixtures("settled")
def test_every_way_of_changing_a_directory_is_seen(desk: Desk) -> None:
    def expect(*paths: str) -> None:
        found = [change.path for change in desk.ws.diff(last[-1]).changes]
        assert found == list(paths)
        last.append(desk.ws.snapshot())
        assert desk.workspace(cache=False).snapshot().tree == last[-1].tree

    desk.write("d/a", "1")
    desk.write("d/e/b", "2")
    last = [desk.ws.snapshot()]
    (desk.root / "d/a").rename(desk.root / "d/a2")
    expect("d/a", "d/a2")
    (desk.root / "d").rename(desk.root / "D")
    expect("D/a2", "D/e/b", "d/a2", "d/e/b")
    os.symlink("D", desk.root / "d")
    expect("d")
    (desk.root / "D/a2").chmod(0o700)
    expect("D/a2")
    (desk.root / "D/e").chmod(0o700)
    expect("D/e")
    (desk.root / "D/a2").unlink()
    (desk.root / "D/a2").mkdir()
    expect("D/a2")
    os.replace(desk.write("D/e/tmp", "22"), desk.root / "D/e/b")
    expect("D/e/b")
    shutil.rmtree(desk.root / "D")
    expect("D/a2", "D/e/b")


@pytest.mark.usefixtures("settled")
def test_what_changes_again_and_again_is_seen_each_time_and_what_does_not_is_not_read(
    desk: Desk, readings: list[str]
) -> None:
    for name in ("a/1", "a/2", "b/3", "4"):
        desk.write(name, "0")
    desk.ws.snapshot()
    for turn in range(1, 5):
        for name in ("a/1", "4"):
            readings.clear()
            desk.write(name, str(turn))
            assert [change.path for change in desk.ws.status().changes] == [name]
            snapshot = desk.ws.snapshot()
            assert set(readings) == {os.path.basename(name)}
            assert desk.ws.snapshot().tree == snapshot.tree
            assert desk.workspace(cache=False).snapshot().tree == snapshot.tree


def test_times_that_no_index_can_hold_cost_a_reading_and_nothing_else(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, readings: list[str], settled: None
) -> None:
    """Some file systems keep years that do not fit into 64 bits of nanoseconds."""

    def far(facts: os.stat_result) -> index.Signature:
        late = 10**20 if facts.st_size == 4 else 0
        return (facts.st_mtime_ns + late, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_mode)

    for module in (walk, pack, apply):
        monkeypatch.setattr(module, "signature", far)
    desk.write("d/far", "aaaa")
    desk.write("d/near", "bbb")
    for again in (desk.ws, desk.ws, desk.workspace()):
        first = again.snapshot()
    assert readings == ["far", "near", "far", "far"]
    desk.write("d/far", "cccc")
    assert desk.ws.snapshot().tree != first.tree
    desk.ws.restore(first)
    assert desk.read("d/far") == "aaaa"


@pytest.mark.usefixtures("settled")
def test_a_changed_ignore_file_is_applied_to_what_was_seen_before(desk: Desk) -> None:
    desk.write("sub/deep/x.tmp", "x")
    desk.write("sub/deep/y", "y")
    assert desk.ws.snapshot().files == 2
    desk.write(".gitignore", "*.tmp\n.gitignore\n")
    assert desk.ws.snapshot().files == 1
    desk.write(".gitignore", "*.tmp2\n.gitignore\n")
    assert desk.ws.snapshot().files == 2
    (desk.root / ".gitignore").unlink()
    desk.write("sub/.backtrailignore", "deep/\n")
    assert desk.ws.snapshot().files == 1
    (desk.root / "sub/.backtrailignore").unlink()
    assert desk.ws.snapshot().files == 2


def test_a_file_that_changes_while_it_is_read_is_read_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.write("f", "old")
    original = pack._content
    left = [1]

    def content(*args: Any) -> Any:
        result = original(*args)
        if left[0]:
            left[0] -= 1
            path.write_text(f"new {left[0]}")
        return result

    monkeypatch.setattr(pack, "_content", content)
    snapshot = desk.ws.snapshot()
    assert snapshot.complete
    left[0] = 100
    restless = desk.ws.snapshot()
    assert [(item.path, "kept changing" in item.reason) for item in restless.flagged] == [("f", True)]
    left[0] = 0
    desk.ws.restore(snapshot)
    assert desk.read("f") == "new 0"


# -- storage ---------------------------------------------------------------------------------------------------------


def test_an_insertion_into_a_large_file_costs_a_piece_and_not_the_file(lone: Desk) -> None:
    content = os.urandom(3 * 2**20)
    lone.write("large", content)
    first = lone.ws.snapshot()
    before = sum(size for _, size in _blobs(lone))
    lone.write("large", content[: 10**6] + b"x" * 100 + content[10**6 :])
    lone.ws.snapshot()
    assert sum(size for _, size in _blobs(lone)) - before < 150_000
    lone.ws.restore(first)
    assert (lone.root / "large").read_bytes() == content


def test_equal_files_and_unchanged_directories_are_stored_once(lone: Desk) -> None:
    for number in range(20):
        lone.write(f"d{number}/same", b"content " * 100)
    lone.ws.snapshot()
    assert len(_blobs(lone)) == 3  # the file, the one directory that all are, the root
    lone.write("d3/more", "1")
    lone.ws.snapshot()
    assert len(_blobs(lone)) == 6
    lone.ws.snapshot()
    assert len(_blobs(lone)) == 6


def _blobs(desk: Desk) -> list[tuple[bytes, int]]:
    from backtrail.engines.drive import finish

    return finish(desk.store._core.context.engine.blob_ids(desk.ws.name))


def test_progress_is_told_of_every_file(lone: Desk) -> None:
    for number in range(100):
        lone.write(f"f{number}", str(number))
    told: list[tuple[int, int]] = []
    lone.ws.snapshot(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100)
    assert len(told) > 1


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is much: read ahead in a thread, and written in many parts."""
    monkeypatch.setattr(scanner, "MUCH", 0)
    monkeypatch.setattr(scanner, "BATCH", 50_000)
    monkeypatch.setattr(scanner, "LEAST", 10_000)


@pytest.mark.usefixtures("much")
def test_what_is_read_while_the_files_before_it_are_written_comes_back(desk: Desk) -> None:
    for number in range(300):
        desk.write(f"d{number % 7}/f{number}", os.urandom(1 + number * 10))
    for number in range(4):
        desk.write(f"large{number}", os.urandom(2**20) + b"text " * 2**16)
    desk.write("large4", (desk.root / "large3").read_bytes())
    whole = desk.picture()
    here, told = threading.get_ident(), []
    snapshot = desk.ws.snapshot(progress=lambda done, total: told.append((done, total, threading.get_ident())))
    assert told[-1] == (305, 305, here), "progress is told to whoever asked, in the thread that asked"
    assert {thread for _, _, thread in told} == {here}
    shutil.rmtree(desk.root)
    desk.root.mkdir()
    desk.workspace(cache=False).restore(snapshot)
    assert desk.picture() == whole


@pytest.mark.usefixtures("much")
def test_a_snapshot_that_fails_while_files_are_read_ahead_leaves_no_thread_behind(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        desk.write(f"f{number:03}", os.urandom(2000))
    original = pack.read

    def read(place: Any, path: bytes, *rest: Any) -> Any:
        if path.endswith(b"f250"):
            raise FilesError(path, "it cannot be read")
        return original(place, path, *rest)

    monkeypatch.setattr(pack, "read", read)
    with pytest.raises(FilesError, match="f250"):
        desk.ws.snapshot()
    monkeypatch.undo()

    async def put(*_: Any) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(scanner, "BATCH", 50_000)
    monkeypatch.setattr(scanner, "MUCH", 0)
    monkeypatch.setattr(desk.ws._core._log, "put", put)
    with pytest.raises(Unavailable, match="full"):
        desk.ws.snapshot()
    monkeypatch.undo()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith(("backtrail-ahead", "backtrail-pack"))
    ]
    assert desk.ws.snapshot().files == 300


def test_two_writers_of_one_workspace_lose_nothing(lone: Desk) -> None:
    lone.write("a", "1")
    one, other = lone.workspace(cache=False), lone.workspace(cache=False)
    one.snapshot()
    lone.write("b", "2")
    other.snapshot()
    lone.write("c", "3")
    last = one.snapshot()
    shutil.rmtree(lone.root)
    lone.root.mkdir()
    other.restore(last)
    assert lone.names() == ["a", "b", "c"]


def test_threads_of_one_process_take_turns(lone: Desk) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            lone.write(f"t{number}/f{turn}", f"{number} {turn}")
            lone.ws.snapshot()
            lone.ws.status()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    wanted = lone.picture()
    assert len(lone.ws.snapshots()) == 20
    last = lone.ws.snapshots()[-1]
    shutil.rmtree(lone.root)
    lone.root.mkdir()
    lone.ws.restore(last)
    assert lone.picture() == wanted
