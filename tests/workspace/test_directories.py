"""Which directory a workspace has: the caller's, or one that this user used with this store on this machine. A store
never chooses one, and a dry run writes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.errors import FilesError, NoDirectory, UnsafePath
from backtrail.workspace import apply
from fix_stores import Opener

from .conftest import Project


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state directory, for this test only."""
    found = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(found))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    return found


def everything(base: Path) -> dict[str, Any]:
    """All that is on disk below a directory: kinds, modes, times of change, and contents."""
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(base):
        for name in (*folders, *files):
            path = Path(folder, name)
            facts = path.lstat()
            data = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(facts.st_mode) else ""
            found[str(path)] = (facts.st_mode, facts.st_mtime_ns, facts.st_ino, data)
    return found


def coder(base: Path, place: str | Path = "agents.db") -> tuple[Path, backtrail.Checkpoint]:
    """A store with the thread "coder", two checkpoints of it, and files; returns the directory and the first."""
    root = base / "project"
    root.mkdir()
    with backtrail.open(base / place if place == "agents.db" else place) as store:
        files, thread = store.workspace(root), store.thread("coder")
        (root / "a").write_text("1")
        first = thread.save({"n": 1}, files=files)
        (root / "a").write_text("2")
        (root / "b").write_text("made in the turn")
        thread.save({"n": 2}, files=files)
    return root, first


def test_the_directory_that_was_used_here_is_found_again(tmp_path: Path) -> None:
    root, first = coder(tmp_path)
    with backtrail.open(tmp_path / "agents.db") as store:
        assert store.thread("coder").workspace().root == str(root)
        store.thread("coder").rewind(first, files=True)
    assert sorted(os.listdir(root)) == ["a"]


def test_a_copied_store_has_no_directory_until_the_caller_names_one(tmp_path: Path) -> None:
    root, first = coder(tmp_path)
    shutil.copy(tmp_path / "agents.db", tmp_path / "copy.db")
    before = everything(root)
    with backtrail.open(tmp_path / "copy.db") as store:
        thread = store.thread("coder")
        files = thread.workspace(first)
        assert [change.path for change in files.diff(first, thread.head).changes] == ["a", "b"]  # type: ignore[arg-type]
        assert len(files.snapshots()) == 2
        for act in (
            lambda: files.root,
            files.status,
            files.snapshot,
            files.undo,
            files.recover,
            lambda: files.diff(first),
            lambda: files.restore(first),
            lambda: files.restore(first, dry_run=True),
            lambda: thread.rewind(first, files=True),
            lambda: thread.rewind_files(first, dry_run=True),
        ):
            with pytest.raises(NoDirectory, match="never chooses a directory"):
                act()
        assert everything(root) == before
        (tmp_path / "elsewhere").mkdir()
        assert thread.workspace(first, root=tmp_path / "elsewhere").root == str(tmp_path / "elsewhere")
        thread.rewind(first, files=True)
        assert (tmp_path / "elsewhere" / "a").read_text() == "1"
    with backtrail.open(tmp_path / "copy.db") as store:  # and it is known from now on
        assert store.thread("coder").workspace().root == str(tmp_path / "elsewhere")
    assert everything(root) == before


def test_another_store_in_the_same_place_has_no_directory(tmp_path: Path) -> None:
    root, _ = coder(tmp_path)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with backtrail.open(foreign / "agents.db") as store:  # as an attacker would make it, who knows every name
        (foreign / "project").mkdir()
        (foreign / "project" / "evil").write_text("evil")
        files = store.workspace(foreign / "project", name=str(root))
        first = store.thread("coder").save({"n": 1}, files=files)
    os.replace(foreign / "agents.db", tmp_path / "agents.db")
    before = everything(root)
    with backtrail.open(tmp_path / "agents.db") as store, pytest.raises(NoDirectory):
        store.thread("coder").rewind(first, files=True)
    assert everything(root) == before


def test_a_root_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    root, _ = coder(tmp_path)
    root.rename(tmp_path / "moved")
    (tmp_path / "victim").mkdir()
    os.symlink(tmp_path / "victim", root)
    with backtrail.open(tmp_path / "agents.db") as store, pytest.raises(NoDirectory):
        store.thread("coder").workspace().status()


def test_of_several_directories_the_one_of_the_snapshot_is_used(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "agents.db") as store:
        ids = {}
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "f").write_text(name)
            ids[name] = store.thread(name).save({}, files=store.workspace(tmp_path / name, name="shared")).id
    with backtrail.open(tmp_path / "agents.db") as store:
        for name in ids:
            assert store.thread(name).workspace().root == str(tmp_path / name)


@pytest.mark.parametrize("engine", ["sqlite", "jsonl"])
def test_a_dry_run_writes_nothing_at_all(tmp_path: Path, engine: str) -> None:
    place = tmp_path / "agents.db" if engine == "sqlite" else f"jsonl:{tmp_path / 'log'}"
    root, first = coder(tmp_path, place if engine == "jsonl" else "agents.db")
    (root / ".backtrail-restore-0123456789abcdef0123456789abcdef").mkdir()  # left by a restore that died
    (root / "c").write_text("unsaved")
    with backtrail.open(place) as store:
        thread = store.thread("coder")
        thread.load()
        before = everything(tmp_path)
        files = store.workspace(root, recover=False)
        planned = [
            files.restore(first, dry_run=True),
            thread.workspace(first).restore(first, dry_run=True, keep_untracked=True),
            thread.rewind_files(first, dry_run=True),
            files.revert(first, thread.head, dry_run=True),  # type: ignore[arg-type]
        ]
        assert [len(changes) for changes in planned] == [3, 2, 3, 2]
        assert everything(tmp_path) == before


def test_a_dry_run_of_the_async_api_writes_nothing_either(tmp_path: Path) -> None:
    root, first = coder(tmp_path)

    async def work() -> None:
        async with await backtrail.aio.open(tmp_path / "agents.db") as store:
            thread = store.thread("coder")
            await thread.load()
            before = everything(tmp_path)
            assert len(await thread.rewind_files(first, dry_run=True)) == 2
            assert everything(tmp_path) == before
            await thread.rewind(first, files=True)

    asyncio.run(work())
    assert os.listdir(root) == ["a"]


def test_a_dry_run_in_a_half_restored_directory_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, first = coder(tmp_path)

    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error", "f")

    with backtrail.open(tmp_path / "agents.db") as store, monkeypatch.context() as patch:
        patch.setattr(apply.Applier, "_install", fail)
        with pytest.raises(FilesError, match="half done"):
            store.thread("coder").rewind(first, files=True)
    with backtrail.open(tmp_path / "agents.db") as store:
        thread = store.thread("coder")
        files = thread.workspace(first)
        before = everything(root)
        with pytest.raises(FilesError, match="interrupted"):
            files.restore(first, dry_run=True)
        assert everything(root) == before
        files.recover()
        assert (root / "a").read_text() == "1"
        assert thread.load() == {"n": 1}


def test_the_registry_is_private_and_holds_no_secret(tmp_path: Path, state: Path) -> None:
    root, _ = coder(tmp_path)
    [folder] = (state / "backtrail" / "workspaces").iterdir()
    [file] = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (state / "backtrail", folder)} == {0o700}
    assert str(root) in file.read_text()


def test_directories_that_have_long_been_gone_are_forgotten(tmp_path: Path, state: Path) -> None:
    roots = {name: tmp_path / name for name in ("gone", "here", "restoring", "gone lately")}
    with backtrail.open(tmp_path / "agents.db") as store:
        for name, root in roots.items():
            root.mkdir()
            store.workspace(root, name=name).snapshot()
        for file in state.rglob("*.json"):
            data = file.read_text()
            if '"workspace": "workspace:restoring"' in data:
                file.write_text(data.replace("null", '"abc"'))
            if "lately" not in data:
                os.utime(file, (0, 0))
        for name in ("gone", "restoring", "gone lately"):
            roots[name].rmdir()
        (tmp_path / "new").mkdir()
        store.workspace(tmp_path / "new").snapshot()
    left = {file.read_text().partition('"root": "')[2].partition('"')[0] for file in state.rglob("*.json")}
    assert {os.path.basename(path) for path in left} == {"here", "restoring", "gone%20lately", "new"}
    assert len(list((state / "backtrail" / "workspaces").iterdir())) == 4


def test_a_link_in_the_place_of_the_registry_is_refused(tmp_path: Path, state: Path) -> None:
    root, first = coder(tmp_path)
    [file] = state.rglob("*.json")
    (tmp_path / "victim").write_text("{}")
    file.unlink()
    os.symlink(tmp_path / "victim", file)
    with backtrail.open(tmp_path / "agents.db") as store, pytest.raises(UnsafePath, match="symbolic link"):
        store.workspace(root).restore(first)
    assert (tmp_path / "victim").read_text() == "{}"
    assert (root / "a").read_text() == "2"


def test_damaged_registry_files_are_as_if_there_were_none(tmp_path: Path, state: Path) -> None:
    root, first = coder(tmp_path)
    [file] = state.rglob("*.json")
    for rubbish in (b"", b"{", b'{"version": 1}', b"\0" * 100, file.read_bytes().replace(b"project", b"another")):
        file.write_bytes(rubbish)
        with backtrail.open(tmp_path / "agents.db") as store, pytest.raises(NoDirectory):
            store.thread("coder").rewind(first, files=True)
    with backtrail.open(tmp_path / "agents.db") as store:
        assert store.workspace(root).restore(first)


def test_without_a_place_for_the_registry_snapshots_are_taken_and_restores_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-directory").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-directory"))
    root, first = coder(tmp_path)
    before = everything(root)
    with backtrail.open(tmp_path / "agents.db") as store:
        with pytest.raises(FilesError, match="XDG_STATE_HOME"):
            store.workspace(root).restore(first)
        assert everything(root) == before
        assert store.thread("coder").load() == {"n": 2}


def test_a_state_directory_inside_the_root_is_neither_saved_nor_restored(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(sqlite_project.root / "state"))
    files = sqlite_project.reopen()
    sqlite_project.write("a", "1")
    first = files.snapshot()
    assert first.files == 1
    sqlite_project.write("a", "2")
    files.restore(first)
    assert list((sqlite_project.root / "state").rglob("*.json"))


def test_a_memory_store_registers_nothing_on_disk(tmp_path: Path, state: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with backtrail.open("memory:") as store:
        files = store.workspace(root)
        first = files.snapshot()
        (root / "b").write_text("1")
        files.restore(first)
    assert os.listdir(root) == []
    assert not state.exists()


def test_every_engine_finds_the_directory_and_removes_what_is_new(opener: Opener, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a").write_text("1")
    store = opener()
    thread = store.thread("coder")
    first = thread.save({"n": 1}, files=store.workspace(root))
    (root / "b").write_text("2")
    thread.save({"n": 2})
    again = opener().thread("coder")
    assert [change.path for change in again.rewind_files(first.id).removed] == ["b"]
    assert os.listdir(root) == ["a"]


@pytest.mark.parametrize(
    "name", ["../../evil", "/evil", "..", ".git", "a/../../b", "evil\n", "x" * 400, "con", "~root"]
)
def test_no_name_in_a_store_becomes_a_path(tmp_path: Path, name: str) -> None:
    base = tmp_path / "base"
    (base / "project").mkdir(parents=True)
    (base / "project" / "a").write_text("1")
    with backtrail.open(base / "agents.db") as store:
        files = store.workspace(base / "project", name=name)
        first = store.thread(name).save({"n": 1}, files=files)
        (base / "project" / "a").write_text("2")
        with store.thread(name).lock():
            store.thread(name).rewind(first, files=True)
        store.copy_to(f"jsonl:{base / 'log'}")
    with backtrail.open(f"jsonl:{base / 'log'}") as store:
        with store.thread(name).lock():
            assert store.thread(name).load() == {"n": 1}
        store.workspace(base / "project", name=name).restore(first)
    assert sorted(os.listdir(tmp_path)) == ["base", "state", "user-cache"]
    assert {entry for entry in os.listdir(base) if not entry.startswith("agents.db")} == {"log", "project"}
    assert os.listdir(base / "project") == ["a"]
    for folder in (tmp_path / "state", tmp_path / "user-cache"):
        assert {path.name for path in folder.iterdir()} == {"backtrail"}
