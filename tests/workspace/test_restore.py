"""Restores: what they change and leave alone, how they are undone, and what a dry run lists."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import CheckpointNotFound, Conflict, FilesError, LockTimeout, NoCheckpoint
from backtrail.workspace import apply
from backtrail.workspace.lock import acquire
from fix_children import run

from .conftest import Project


def kept(changes: Any) -> dict[str, str]:
    return {item.path: item.reason for item in changes.kept}


def changed(changes: Any) -> dict[str, str]:
    return {change.path: change.kind for change in changes.changes}


def test_a_restore_brings_back_every_kind_of_difference_and_undo_takes_it_back(project: Project) -> None:
    project.write("same", "same")
    project.write("edited", "1")
    project.write("gone", "2", mode=0o711)
    project.write("d/file-to-dir", "3")
    project.write("dir-to-file/x", "4")
    project.write("dir-to-link/y", "5")
    os.symlink("same", project.root / "link-to-file")
    before = project.contents()
    first = project.ws.snapshot()
    project.write("edited", "one")
    (project.root / "gone").unlink()
    (project.root / "d/file-to-dir").unlink()
    project.write("d/file-to-dir/z", "6")
    shutil.rmtree(project.root / "dir-to-file")
    project.write("dir-to-file", "7")
    shutil.rmtree(project.root / "dir-to-link")
    os.symlink("d", project.root / "dir-to-link")
    (project.root / "link-to-file").unlink()
    project.write("link-to-file", "8")
    project.write("new/deep", "9")
    after = project.contents()
    project.ws.snapshot()
    planned = project.ws.restore(first, dry_run=True)
    assert project.contents() == after
    done = project.ws.restore(first)
    assert (done.changes, done.kept) == (planned.changes, planned.kept)
    assert project.contents() == before
    project.ws.undo()
    assert project.contents() == after
    with pytest.raises(NoCheckpoint):
        project.ws.undo()


def test_restores_are_undone_one_by_one_and_an_undo_can_be_restored_over(project: Project) -> None:
    project.write("f", "1")
    one = project.ws.snapshot()
    project.write("f", "2")
    two = project.ws.snapshot()
    project.write("f", "3")
    project.ws.restore(two)
    project.ws.restore(one)
    project.ws.undo()
    assert project.read("f") == "2"
    redo = project.ws.undo().safety
    assert project.read("f") == "3"
    project.ws.restore(redo)
    assert project.read("f") == "2"


def test_an_undo_is_taken_back_by_redo_until_another_snapshot_is_restored(project: Project) -> None:
    project.write("f", "1")
    one = project.ws.snapshot()
    project.write("f", "2")
    project.ws.restore(one)
    with pytest.raises(NoCheckpoint):
        project.ws.redo()
    project.ws.undo()
    project.ws.redo()
    assert project.read("f") == "1"
    with pytest.raises(NoCheckpoint):
        project.ws.redo()
    project.ws.undo()
    assert project.read("f") == "2"
    project.ws.redo(dry_run=True)
    assert project.read("f") == "2"
    project.ws.restore(one)
    with pytest.raises(NoCheckpoint):
        project.ws.redo()


def test_a_restore_that_expects_a_plan_does_just_that_or_nothing(project: Project) -> None:
    project.write("f", "1")
    one = project.ws.snapshot()
    project.write("f", "2")
    plan = project.ws.restore(one, dry_run=True).plan
    project.write("f", "3")
    with pytest.raises(Conflict, match="changed since the plan was made"):
        project.ws.restore(one, expect=plan)
    assert project.read("f") == "3" and project.ws.last_restore() is None
    plan = project.ws.restore(one, dry_run=True).plan
    done = project.ws.restore(one, expect=plan)
    assert (project.read("f"), done.plan) == ("1", plan)


def test_what_appeared_since_the_snapshot_is_removed_and_comes_back_with_undo(project: Project) -> None:
    project.write(".gitignore", "*.log\n")
    project.write("a", "1")
    first = project.ws.snapshot()
    before = project.contents()
    project.write("a", "2")
    project.write("b", "made in the turn")
    project.write("deep/er/c", "too")
    (project.root / "empty" / "below").mkdir(parents=True)
    os.symlink("a", project.root / "link")
    project.write("x.log", "ignored")
    after = project.contents()
    planned = project.ws.restore(first, dry_run=True)
    assert project.contents() == after
    result = project.ws.restore(first)
    assert (planned.changes, planned.kept) == (result.changes, result.kept)
    assert [change.path for change in result.removed] == ["b", "deep/er/c", "empty/below", "link"]
    assert all(change.unsaved for change in result.removed)
    assert kept(result) == {"x.log": "ignored by rule"}
    assert "- b   (in no snapshot yet)" in str(result)
    assert "= x.log   (kept: ignored by rule)" in str(result)
    assert project.contents() == before | {b"x.log": after[b"x.log"]}
    project.ws.undo()
    assert project.contents() == after


def test_untracked_files_stay_if_the_user_wants_that(project: Project) -> None:
    project.write("a", "1")
    first = project.ws.snapshot()
    project.write("agent", "made by the agent")
    second = project.ws.snapshot()
    project.write("mine", "made by the user")
    project.write("folder/mine-too", "x")
    for target in (first, second, first):
        result = project.ws.restore(target, keep_untracked=True)
        assert kept(result) == dict.fromkeys(["mine", "folder", "folder/mine-too"], "in no snapshot")
    assert project.names() == ["a", "folder", "folder/mine-too", "mine"]
    project.ws.undo(keep_untracked=True)
    assert project.names() == ["a", "agent", "folder", "folder/mine-too", "mine"]


def test_what_was_in_a_directory_before_anything_of_ours_is_kept_by_every_restore(project: Project) -> None:
    project.write("a", "1")
    first = project.ws.snapshot()
    there = project.base / "there"
    (there / "d").mkdir(parents=True)
    (there / "a").write_text("theirs")
    (there / "d" / "old").write_text("there before")
    other = project.store.workspace(there, name=project.ws.name.removeprefix("workspace:"), cache=False)
    why = "in no snapshot, and there before the first one"
    for number in range(3):
        (there / f"new{number}").write_text("appeared since") if number else None
        result = other.restore(first)
        assert kept(result) == ({"d": why, "d/old": why})
        assert sorted(os.listdir(there)) == ["a", "d"]
    other.snapshot()
    assert [change.path for change in other.restore(first).removed] == ["d/old"], "a snapshot holds it now"


def test_a_file_that_keeps_changing_is_not_deleted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from backtrail.workspace import pack

    project.write("a", "1")
    first = project.ws.snapshot()
    project.write("busy", "0")
    project.write("a", "2")
    original = pack._read_content

    def read_and_write(handle: int, *args: Any) -> Any:
        found = original(handle, *args)
        for name in ("busy", "a"):
            with (project.root / name).open("a") as file:
                file.write("x")
        return found

    monkeypatch.setattr(pack, "_read_content", read_and_write)
    result = project.ws.restore(first)
    assert kept(result) == dict.fromkeys(["a", "busy"], "it kept changing while it was read")
    assert result.changes == ()
    assert {"a", "busy"} <= set(project.names())


def test_ignored_files_survive_even_in_directories_that_are_removed(project: Project) -> None:
    project.write(".gitignore", "*.env\n")
    first = project.ws.snapshot()
    project.write("made/by-agent", "1")
    project.write("made/secret.env", "keep me")
    project.ws.snapshot()
    project.ws.restore(first)
    assert project.names() == [".gitignore", "made", "made/secret.env"]


def test_ignore_rules_of_now_and_of_the_snapshot_both_protect_files(project: Project) -> None:
    project.write(".gitignore", "*.env\n")
    project.write("build/out", "tracked")
    first = project.ws.snapshot()
    project.write("a.env", "was ignored when the snapshot was taken")
    project.write(".gitignore", "build/\n")
    project.ws.snapshot()
    project.write("build/out", "ignored now, and in no snapshot")
    result = project.ws.restore(first)
    assert kept(result) == {
        "a.env": "ignored by the snapshot's rules",
        "build": "ignored by rule",
        "build/out": "ignored by rule, so no snapshot holds it",
    }
    assert project.read("a.env") == "was ignored when the snapshot was taken"
    assert project.read("build/out") == "ignored now, and in no snapshot"
    assert project.read(".gitignore") == "*.env\n"


def test_an_ignored_file_in_the_way_of_a_directory_is_not_lost(project: Project) -> None:
    project.write("out/x", "1")
    first = project.ws.snapshot()
    shutil.rmtree(project.root / "out")
    project.write(".gitignore", "out\n")
    project.write("out", "precious")
    result = project.ws.restore(first)
    assert set(kept(result)) == {"out", "out/x"}
    assert project.read("out") == "precious"


def test_a_directory_with_ignored_files_is_not_replaced_by_a_file(project: Project) -> None:
    project.write(".gitignore", "*.env\n")
    project.write("thing", "a file")
    first = project.ws.snapshot()
    (project.root / "thing").unlink()
    project.write("thing/x.env", "precious")
    project.write("thing/y", "known")
    project.ws.snapshot()
    result = project.ws.restore(first)
    assert kept(result) == {"thing": "a directory with files that are left alone", "thing/x.env": "ignored by rule"}
    assert project.names() == [".gitignore", "thing", "thing/x.env"]


def test_a_file_that_a_snapshot_left_out_for_its_size_is_not_deleted_by_its_restore(project: Project) -> None:
    from backtrail.workspace.model import Limits

    small = project.workspace(limits=Limits(file_bytes=10))
    project.write("big", "x" * 50)
    first = small.snapshot()
    project.ws.snapshot()  # this one holds it
    result = small.restore(first)
    assert result.changes == ()
    result = project.ws.restore(first)
    assert kept(result) == {"big": "the snapshot left it out"}
    assert project.names() == ["big"]


def test_unsaved_work_is_listed_in_the_dry_run_and_kept_in_the_safety_snapshot(project: Project) -> None:
    project.write("a", "1")
    project.write("b", "1")
    first = project.ws.snapshot()
    project.write("a", "2")
    project.ws.snapshot()
    project.write("b", "typed by hand")
    planned = project.ws.restore(first, dry_run=True)
    assert [change.path for change in planned.unsaved] == ["b"]
    assert "b   (changed since the last snapshot)" in str(planned)
    assert len(project.ws.snapshots()) == 2
    project.ws.restore(first)
    project.ws.undo()
    assert (project.read("a"), project.read("b")) == ("2", "typed by hand")


def test_only_files_that_differ_are_touched(project: Project) -> None:
    project.write("same", "1")
    project.write("mode", "1", mode=0o644)
    project.write("other", "1")
    first = project.ws.snapshot()
    before = {name: (project.root / name).stat() for name in ("same", "mode", "other")}
    project.write("other", "2")
    (project.root / "mode").chmod(0o755)
    project.ws.restore(first)
    for name in ("same", "mode"):
        facts = (project.root / name).stat()
        assert (facts.st_ino, facts.st_mtime_ns) == (before[name].st_ino, before[name].st_mtime_ns)
    assert (project.root / "mode").stat().st_mode & 0o777 == 0o644
    assert (project.root / "other").stat().st_ino != before["other"].st_ino


def test_setuid_bits_are_not_restored(project: Project) -> None:
    project.write("tool", "x").chmod(0o4755)
    first = project.ws.snapshot()
    project.write("tool", "changed")
    project.ws.restore(first)
    assert (project.root / "tool").stat().st_mode & 0o7777 == 0o755


def test_files_in_directories_without_write_permission_are_restored_and_the_permission_stays(shared_dir: Path) -> None:
    def work(send: Any) -> None:
        base = shared_dir / "mine"
        base.mkdir()
        os.environ["XDG_STATE_HOME"] = str(base / "state")
        project = Project(base, lambda: backtrail.open(base / "store.db"))
        project.write("d/f", "1")
        (project.root / "d").chmod(0o555)
        first = project.ws.snapshot()
        (project.root / "d/f").write_text("2")
        project.ws.snapshot()
        project.ws.restore(first)
        send(f"{project.read('d/f')} {(project.root / 'd').stat().st_mode & 0o777:o}".encode())
        (project.root / "d").chmod(0o755)

    assert run(work, user=65534) == b"1 555"


def test_a_file_of_which_only_the_mode_changed_gets_its_mode_back(project: Project) -> None:
    project.write("f", "1", mode=0o400)
    first = project.ws.snapshot()
    (project.root / "f").chmod(0)
    project.ws.snapshot()
    project.ws.restore(first)
    assert (project.root / "f").stat().st_mode & 0o777 == 0o400


def test_a_file_changed_by_somebody_during_the_restore_stops_it_and_all_is_taken_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        project.write(name, "1")
    first = project.ws.snapshot()
    for name in "abc":
        project.write(name, "2")
    original = apply.Applier.apply

    def meddle(self: Any, steps: Any, expect: Any = None) -> None:
        if expect is not None:
            project.write("c", "by somebody else")
        original(self, steps, expect)

    monkeypatch.setattr(apply.Applier, "apply", meddle)
    with pytest.raises(FilesError, match="somebody else"):
        project.ws.restore(first)
    assert [project.read(name) for name in "abc"] == ["2", "2", "by somebody else"]
    assert project.names() == ["a", "b", "c"]


def test_a_restore_that_fails_half_way_is_taken_back(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        project.write(f"f{number}", "1")
    first = project.ws.snapshot()
    for number in range(5):
        project.write(f"f{number}", "2")
    project.write("extra", "3")
    project.ws.snapshot()
    before = project.contents()
    original = apply.Applier._install
    done: list[bytes] = []

    def install(self: Any, op: Any, expect: Any) -> None:
        if len(done) == 3 and expect is not None:
            raise OSError(28, "No space left on device", "f3")
        done.append(op.path)
        original(self, op, expect)

    monkeypatch.setattr(apply.Applier, "_install", install)
    with pytest.raises(FilesError, match="taken back"):
        project.ws.restore(first)
    assert project.contents() == before
    monkeypatch.undo()
    project.ws.restore(first)
    assert project.read("f4") == "1"


def test_a_restore_that_cannot_be_taken_back_either_is_settled_at_the_next_use(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        project.write(f"f{number}", "1")
    wanted = project.contents()
    first = project.ws.snapshot()
    for number in range(5):
        project.write(f"f{number}", "2")
    done: list[bytes] = []
    original = apply.Applier._install

    def install(self: Any, op: Any, expect: Any) -> None:
        if len(done) >= 3:
            raise OSError(5, "Input/output error", "f3")
        done.append(op.path)
        original(self, op, expect)

    monkeypatch.setattr(apply.Applier, "_install", install)
    with pytest.raises(FilesError, match="half done"):
        project.ws.restore(first)
    monkeypatch.undo()
    project.ws.recover()
    assert project.contents() == wanted


def test_reverting_a_turn_keeps_later_changes_of_the_user(project: Project) -> None:
    for name in ("agent", "both", "user", "removed"):
        project.write(name, "before the turn")
    message = project.ws.snapshot("user message")
    project.write("agent", "by the agent")
    project.write("both", "by the agent")
    (project.root / "removed").unlink()
    project.write("made/by-agent", "new")
    end = project.ws.snapshot("end of turn")
    project.write("both", "by the user afterwards")
    project.write("user", "by the user afterwards")
    project.write("made/by-user", "new")
    planned = project.ws.revert(message, end, dry_run=True)
    result = project.ws.revert(message, end)
    assert changed(planned) == changed(result) == {"agent": "changed", "made/by-agent": "removed", "removed": "added"}
    assert kept(result)["both"] == "changed since by somebody else"
    assert [project.read(name) for name in ("agent", "both", "user", "removed")] == [
        "before the turn", "by the user afterwards", "by the user afterwards", "before the turn",
    ]  # fmt: skip
    assert "made/by-user" in project.names()
    project.ws.undo()
    assert project.read("agent") == "by the agent"


def test_the_users_repository_is_never_touched(project: Project) -> None:
    project.write(".git/index", "theirs")
    project.write("a", "1")
    first = project.ws.snapshot()
    project.write(".git/index", "theirs, moved on")
    project.write("a", "2")
    project.ws.snapshot()
    project.ws.restore(first)
    assert project.read(".git/index") == "theirs, moved on"


def test_snapshots_are_found_by_id_prefix_and_reference_and_a_wrong_one_is_named(project: Project) -> None:
    project.write("a", "1")
    first = project.ws.snapshot()
    project.write("a", "2")
    project.ws.snapshot()
    for at in (first, first.id, f"{first.id}@{project.ws.name}"):
        assert project.ws.restore(at, dry_run=True).changes
    with pytest.raises(CheckpointNotFound, match="ffffffff"):
        project.ws.restore("ffffffff-0000-7000-8000-000000000000")


def test_a_second_operation_in_a_directory_waits_for_the_lock(project: Project) -> None:
    ws = project.workspace(timeout=0.05)
    handle = acquire(os.fsencode(project.root), 1)
    with pytest.raises(LockTimeout):
        ws.snapshot()
    os.close(handle)
    assert ws.snapshot().files == 0


def test_a_restore_with_nothing_to_do_leaves_no_trace(project: Project) -> None:
    project.write("a", "1")
    first = project.ws.snapshot()
    assert not project.ws.restore(first)
    assert len(project.ws.snapshots()) == 1
    with pytest.raises(NoCheckpoint):
        project.ws.undo()


@pytest.mark.linux
@pytest.mark.parametrize("on_a_disk", [True, False])
def test_a_restore_leaves_no_descriptor_open(
    project: Project, monkeypatch: pytest.MonkeyPatch, on_a_disk: bool
) -> None:
    monkeypatch.setattr(apply, "MAX_KEPT_OPEN", 7)
    monkeypatch.setattr(os, "major", lambda _: int(on_a_disk))
    for number in range(40):
        project.write(f"d{number % 3}/{number}", "old")
    first = project.ws.snapshot()
    before = project.contents()
    handles = []
    for cycle in range(3):
        for number in range(40):
            project.write(f"d{number % 3}/{number}", f"new {cycle}")
            project.write(f"more/{number}", "more")
        project.ws.snapshot()
        project.ws.restore(first)
        assert project.contents() == before
        for thread in threading.enumerate():
            if thread.name == "backtrail-close":
                thread.join()
        handles.append(_open_under(project.base))
    assert handles[1] == handles[2], "nothing stays open"


def _open_under(directory: Path) -> int:
    """Handles of this process on files there, deleted ones too. Those of earlier tests are closed whenever they are
    collected, so a count of all of them would say nothing."""
    count = 0
    for handle in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            count += os.readlink(f"/proc/self/fd/{handle}").startswith(str(directory))
    return count
