"""Directories that somebody swaps for links while the workspace reads them: nothing outside the root is ever read."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backtrail.engines.coroutines import finish
from backtrail.workspace.descent import GONE, Descent

from .conftest import Project

SECRET = b"a secret that is not in the root"


@pytest.fixture
def swapped(sqlite_project: Project) -> Project:
    """A project whose directory `d` has a double outside the root, with the same names and other contents."""
    outside = sqlite_project.base / "outside"
    for where, content in ((sqlite_project.root / "d", b"inside"), (outside, SECRET)):
        (where / "e").mkdir(parents=True)
        for name in ("f", "e/g", ".gitignore", "e/.backtrailignore"):
            (where / name).write_bytes(content)
        os.symlink(content, where / "link")
        (where / "e" / "large").write_bytes(content * 80_000)
    (outside / "e" / "only-outside").write_bytes(SECRET)
    return sqlite_project


def swap(project: Project) -> None:
    """Put a link to the outside in the place of `d`, or take it away again."""
    inside, aside = project.root / "d", project.base / "aside"
    if aside.exists():
        inside.unlink()
        aside.rename(inside)
    else:
        inside.rename(aside)
        os.symlink(project.base / "outside", inside)


def assert_nothing_from_outside(project: Project, records: list[Any]) -> None:
    """No snapshot holds a name, a link or a content of the outside."""
    journal = project.ws._core._journal
    for record in records:
        level = [bytes.fromhex(record.tree)]
        while level:
            below = []
            for tree in finish(journal.trees(level)).values():
                assert b"only-outside" not in tree
                for entry in tree.values():
                    if entry.kind == 3:
                        below.append(entry.ref)
                    elif entry.kind == 2:
                        assert entry.ref != SECRET
                    else:
                        assert SECRET not in finish(journal.contents([entry]))[entry.ref]
            level = below


def test_no_snapshot_holds_anything_from_outside_whenever_a_directory_is_swapped(swapped: Project) -> None:
    stop = threading.Event()

    def swap_on() -> None:
        while not stop.is_set():
            swap(swapped)

    swapper = threading.Thread(target=swap_on)
    swapper.start()
    taken = []
    try:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            handle = swapped.workspace(cache=False)
            taken.append(handle.snapshot())
            diff = str(handle.diff(taken[0])) + str(handle.status())
            assert SECRET.decode() not in diff
            assert "only-outside" not in diff
    finally:
        stop.set()
        swapper.join()
    assert len(taken) > 5
    assert_nothing_from_outside(swapped, taken)


_armed: list[Callable[[str], None]] = []


def _on_event(event: str, _: tuple[Any, ...]) -> None:
    if _armed and (event == "open" or event.startswith("os.")):
        _armed[-1](event)


sys.addaudithook(_on_event)  # cannot be removed, so it does nothing while nothing is armed


@contextmanager
def swap_at(project: Project, number: int) -> Iterator[list[int]]:
    """Swap the directory just before that many files are opened or directories listed."""
    seen = [0]

    def count(_: str) -> None:
        seen[0] += 1
        if seen[0] == number:
            _armed.pop()
            swap(project)

    _armed.append(count)
    try:
        yield seen
    finally:
        _armed.clear()


@pytest.mark.parametrize("known", [False, True], ids=["first snapshot", "later snapshot"])
def test_a_swap_at_any_moment_of_a_snapshot_lets_nothing_in(swapped: Project, known: bool) -> None:
    number, taken = 1, []
    while True:
        files = swapped.workspace(cache=False)
        if known:
            files.snapshot()
            swapped.write("d/f", f"inside {number}")
            swapped.write("d/e/new", f"inside {number}")
        with swap_at(swapped, number) as seen:
            taken.append(files.snapshot())
        if seen[0] < number:
            break
        swap(swapped)
        number += 1
    assert number > 10
    assert_nothing_from_outside(swapped, taken)


def test_a_restore_reads_nothing_through_a_link(swapped: Project) -> None:
    first = swapped.ws.snapshot()
    swap(swapped)
    planned = swapped.ws.restore(first, dry_run=True)
    assert ("d", "type") in {(change.path, change.kind) for change in planned.changes}
    swapped.ws.restore(first)
    assert swapped.read("d/e/g") == "inside"
    assert (swapped.base / "outside" / "e" / "g").read_bytes() == SECRET


def test_a_staging_directory_that_is_a_link_or_a_file_is_left_alone(swapped: Project) -> None:
    names = [f".backtrail-restore-{letter * 32}" for letter in "abc"]
    os.symlink(swapped.base / "outside", swapped.root / names[0])
    (swapped.root / names[1]).write_text("a file")
    (swapped.root / names[2]).mkdir()
    swapped.reopen()
    assert (swapped.base / "outside" / "f").exists()
    assert sorted(name for name in os.listdir(swapped.root) if name in names) == names[:2]


def test_a_descent_opens_each_folder_once_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "f").write_text("1")
    (tmp_path / "a" / "x").mkdir()
    os.symlink(tmp_path / "a", tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    with Descent(os.fsencode(tmp_path)) as descent:
        deep = descent.folder(b"a/b/c/")
        assert descent.folder(b"a/") != deep, "a folder above"
        assert descent.folder(b"a/b/c/") == deep, "still open"
        assert descent.names(b"a/b/c/") == [b"f"]
        assert descent.read_file(b"a/b/c/f", 1) == b"1"
        assert descent.read_file(b"a/b/c/f", 2) is None
        assert descent.read_file(b"fifo", 0) is None
        assert descent.names(b"a/x/") == []
        assert descent.read_link(b"link") == os.fsencode(tmp_path / "a")
        assert descent.lstat(b"link/b") is None
        assert descent.lstat(b"fifo/b") is None
        for path in (b"link/", b"link/b/", b"fifo/", b"none/"):
            with pytest.raises(OSError) as raised:
                descent.folder(path)
            assert raised.value.errno in GONE
