"""A restore is careful: it can be undone, it leaves alone what is not its own, and a dry run tells the truth."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from backtrail.errors import CheckpointNotFound, FilesError, LockTimeout, NoCheckpoint
from backtrail.workspace import apply
from backtrail.workspace.lock import locked
from fix_children import run

from .conftest import Desk


def kept(changes: Any) -> dict[str, str]:
    return {item.path: item.reason for item in changes.kept}


def changed(changes: Any) -> dict[str, str]:
    return {change.path: change.kind for change in changes.changes}


def test_a_restore_brings_back_every_kind_of_difference_and_undo_takes_it_back(desk: Desk) -> None:
    desk.write("same", "same")
    desk.write("edited", "1")
    desk.write("gone", "2", mode=0o711)
    desk.write("d/file-to-dir", "3")
    desk.write("dir-to-file/x", "4")
    desk.write("dir-to-link/y", "5")
    os.symlink("same", desk.root / "link-to-file")
    before = desk.picture()
    first = desk.ws.snapshot()
    desk.write("edited", "one")
    (desk.root / "gone").unlink()
    (desk.root / "d/file-to-dir").unlink()
    desk.write("d/file-to-dir/z", "6")
    shutil.rmtree(desk.root / "dir-to-file")
    desk.write("dir-to-file", "7")
    shutil.rmtree(desk.root / "dir-to-link")
    os.symlink("d", desk.root / "dir-to-link")
    (desk.root / "link-to-file").unlink()
    desk.write("link-to-file", "8")
    desk.write("new/deep", "9")
    after = desk.picture()
    desk.ws.snapshot()
    planned = desk.ws.restore(first, dry_run=True)
    assert desk.picture() == after
    done = desk.ws.restore(first)
    assert (done.changes, done.kept) == (planned.changes, planned.kept)
    assert desk.picture() == before
    desk.ws.undo()
    assert desk.picture() == after
    with pytest.raises(NoCheckpoint):
        desk.ws.undo()


def test_restores_are_undone_one_by_one_and_an_undo_can_be_restored_over(desk: Desk) -> None:
    desk.write("f", "1")
    one = desk.ws.snapshot()
    desk.write("f", "2")
    two = desk.ws.snapshot()
    desk.write("f", "3")
    desk.ws.restore(two)
    desk.ws.restore(one)
    desk.ws.undo()
    assert desk.read("f") == "2"
    redo = desk.ws.undo().safety
    assert desk.read("f") == "3"
    desk.ws.restore(redo)
    assert desk.read("f") == "2"


def test_files_that_no_snapshot_ever_knew_are_left_alone_however_often_one_restores(desk: Desk) -> None:
    desk.write("a", "1")
    first = desk.ws.snapshot()
    desk.write("agent", "made by the agent")
    second = desk.ws.snapshot()
    desk.write("mine", "made by the user")
    desk.write("folder/mine-too", "x")
    for target in (first, second, first):
        result = desk.ws.restore(target)
        assert kept(result) == {"mine": "never in a snapshot", "folder": "never in a snapshot",
                                "folder/mine-too": "never in a snapshot"}  # fmt: skip
    assert desk.names() == ["a", "folder", "folder/mine-too", "mine"]


def test_ignored_files_survive_even_in_directories_that_go(desk: Desk) -> None:
    desk.write(".gitignore", "*.env\n")
    first = desk.ws.snapshot()
    desk.write("made/by-agent", "1")
    desk.write("made/secret.env", "keep me")
    desk.ws.snapshot()
    desk.ws.restore(first)
    assert desk.names() == [".gitignore", "made", "made/secret.env"]


def test_both_rules_protect_those_now_and_those_of_the_snapshot(desk: Desk) -> None:
    desk.write(".gitignore", "*.env\n")
    desk.write("build/out", "tracked")
    first = desk.ws.snapshot()
    desk.write("a.env", "was ignored when the snapshot was taken")
    desk.write(".gitignore", "build/\n")
    desk.ws.snapshot()
    desk.write("build/out", "ignored now, and in no snapshot")
    result = desk.ws.restore(first)
    assert kept(result) == {
        "a.env": "ignored by the snapshot's rules",
        "build/out": "ignored by rule, so no snapshot holds it",
    }
    assert desk.read("a.env") == "was ignored when the snapshot was taken"
    assert desk.read("build/out") == "ignored now, and in no snapshot"
    assert desk.read(".gitignore") == "*.env\n"


def test_a_file_that_stands_where_a_directory_must_go_is_not_lost_if_it_is_ignored(desk: Desk) -> None:
    desk.write("out/x", "1")
    first = desk.ws.snapshot()
    shutil.rmtree(desk.root / "out")
    desk.write(".gitignore", "out\n")
    desk.write("out", "precious")
    result = desk.ws.restore(first)
    assert set(kept(result)) == {".gitignore", "out", "out/x"}
    assert desk.read("out") == "precious"


def test_a_directory_with_ignored_files_is_not_replaced_by_a_file(desk: Desk) -> None:
    desk.write(".gitignore", "*.env\n")
    desk.write("thing", "a file")
    first = desk.ws.snapshot()
    (desk.root / "thing").unlink()
    desk.write("thing/x.env", "precious")
    desk.write("thing/y", "known")
    desk.ws.snapshot()
    result = desk.ws.restore(first)
    assert kept(result) == {"thing": "a directory with files that are left alone"}
    assert desk.names() == [".gitignore", "thing", "thing/x.env"]


def test_what_a_snapshot_left_out_for_its_size_is_not_deleted_by_going_back_to_it(desk: Desk) -> None:
    from backtrail.workspace.model import Limits

    small = desk.workspace(limits=Limits(file_bytes=10))
    desk.write("big", "x" * 50)
    first = small.snapshot()
    desk.ws.snapshot()  # this one holds it
    result = small.restore(first)
    assert result.changes == ()
    result = desk.ws.restore(first)
    assert kept(result) == {"big": "the snapshot left it out"}
    assert desk.names() == ["big"]


def test_unsaved_work_is_listed_in_the_dry_run_and_kept_in_the_safety_snapshot(desk: Desk) -> None:
    desk.write("a", "1")
    desk.write("b", "1")
    first = desk.ws.snapshot()
    desk.write("a", "2")
    desk.ws.snapshot()
    desk.write("b", "typed by hand")
    planned = desk.ws.restore(first, dry_run=True)
    assert [change.path for change in planned.unsaved] == ["b"]
    assert "b   (changed since the last snapshot)" in str(planned)
    assert len(desk.ws.snapshots()) == 2
    desk.ws.restore(first)
    desk.ws.undo()
    assert (desk.read("a"), desk.read("b")) == ("2", "typed by hand")


def test_only_what_differs_is_touched(desk: Desk) -> None:
    desk.write("same", "1")
    desk.write("mode", "1", mode=0o644)
    desk.write("other", "1")
    first = desk.ws.snapshot()
    before = {name: (desk.root / name).stat() for name in ("same", "mode", "other")}
    desk.write("other", "2")
    (desk.root / "mode").chmod(0o755)
    desk.ws.restore(first)
    for name in ("same", "mode"):
        facts = (desk.root / name).stat()
        assert (facts.st_ino, facts.st_mtime_ns) == (before[name].st_ino, before[name].st_mtime_ns)
    assert (desk.root / "mode").stat().st_mode & 0o777 == 0o644
    assert (desk.root / "other").stat().st_ino != before["other"].st_ino


def test_setuid_bits_are_not_made_again(desk: Desk) -> None:
    desk.write("tool", "x").chmod(0o4755)
    first = desk.ws.snapshot()
    desk.write("tool", "changed")
    desk.ws.restore(first)
    assert (desk.root / "tool").stat().st_mode & 0o7777 == 0o755


def test_files_in_directories_without_write_permission_are_restored_and_the_permission_stays(open_place: Path) -> None:
    def work(send: Any) -> None:
        base = open_place / "mine"
        base.mkdir()
        desk = Desk(base, lambda: base / "store.db")
        desk.write("d/f", "1")
        (desk.root / "d").chmod(0o555)
        first = desk.ws.snapshot()
        (desk.root / "d/f").write_text("2")
        desk.ws.snapshot()
        desk.ws.restore(first)
        send(f"{desk.read('d/f')} {(desk.root / 'd').stat().st_mode & 0o777:o}".encode())
        (desk.root / "d").chmod(0o755)

    assert run(work, user=65534) == b"1 555"


def test_a_read_only_file_whose_mode_alone_changed_keeps_its_place(desk: Desk) -> None:
    desk.write("f", "1", mode=0o400)
    first = desk.ws.snapshot()
    (desk.root / "f").chmod(0)
    desk.ws.snapshot()
    desk.ws.restore(first)
    assert (desk.root / "f").stat().st_mode & 0o777 == 0o400


def test_a_file_changed_by_somebody_during_the_restore_stops_it_and_all_is_taken_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        desk.write(name, "1")
    first = desk.ws.snapshot()
    for name in "abc":
        desk.write(name, "2")
    original = apply.Applier.carry_out

    def meddle(self: Any, steps: Any, expect: Any = None) -> None:
        if expect is not None:
            desk.write("c", "by somebody else")
        original(self, steps, expect)

    monkeypatch.setattr(apply.Applier, "carry_out", meddle)
    with pytest.raises(FilesError, match="somebody else"):
        desk.ws.restore(first)
    assert [desk.read(name) for name in "abc"] == ["2", "2", "by somebody else"]
    assert desk.names() == ["a", "b", "c"]


def test_a_restore_that_fails_half_way_is_taken_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        desk.write(f"f{number}", "1")
    first = desk.ws.snapshot()
    for number in range(5):
        desk.write(f"f{number}", "2")
    desk.write("extra", "3")
    desk.ws.snapshot()
    before = desk.picture()
    original = apply.Applier._put
    done: list[bytes] = []

    def put(self: Any, op: Any, expect: Any) -> None:
        if len(done) == 3 and expect is not None:
            raise OSError(28, "No space left on device", "f3")
        done.append(op.path)
        original(self, op, expect)

    monkeypatch.setattr(apply.Applier, "_put", put)
    with pytest.raises(FilesError, match="taken back"):
        desk.ws.restore(first)
    assert desk.picture() == before
    monkeypatch.undo()
    desk.ws.restore(first)
    assert desk.read("f4") == "1"


def test_a_restore_that_cannot_be_taken_back_either_is_settled_at_the_next_use(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        desk.write(f"f{number}", "1")
    wanted = desk.picture()
    first = desk.ws.snapshot()
    for number in range(5):
        desk.write(f"f{number}", "2")
    done: list[bytes] = []
    original = apply.Applier._put

    def put(self: Any, op: Any, expect: Any) -> None:
        if len(done) >= 3:
            raise OSError(5, "Input/output error", "f3")
        done.append(op.path)
        original(self, op, expect)

    monkeypatch.setattr(apply.Applier, "_put", put)
    with pytest.raises(FilesError, match="half done"):
        desk.ws.restore(first)
    monkeypatch.undo()
    desk.ws.recover()
    assert desk.picture() == wanted


def test_reverting_a_turn_leaves_what_the_user_did_since(desk: Desk) -> None:
    for name in ("agent", "both", "user", "removed"):
        desk.write(name, "before the turn")
    message = desk.ws.snapshot("user message")
    desk.write("agent", "by the agent")
    desk.write("both", "by the agent")
    (desk.root / "removed").unlink()
    desk.write("made/by-agent", "new")
    end = desk.ws.snapshot("end of turn")
    desk.write("both", "by the user afterwards")
    desk.write("user", "by the user afterwards")
    desk.write("made/by-user", "new")
    planned = desk.ws.revert(message, end, dry_run=True)
    result = desk.ws.revert(message, end)
    assert changed(planned) == changed(result) == {"agent": "changed", "made/by-agent": "removed", "removed": "added"}
    assert kept(result)["both"] == "changed since by somebody else"
    assert [desk.read(name) for name in ("agent", "both", "user", "removed")] == [
        "before the turn", "by the user afterwards", "by the user afterwards", "before the turn",
    ]  # fmt: skip
    assert "made/by-user" in desk.names()
    desk.ws.undo()
    assert desk.read("agent") == "by the agent"


def test_the_users_repository_is_never_touched(desk: Desk) -> None:
    desk.write(".git/index", "theirs")
    desk.write("a", "1")
    first = desk.ws.snapshot()
    desk.write(".git/index", "theirs, moved on")
    desk.write("a", "2")
    desk.ws.snapshot()
    desk.ws.restore(first)
    assert desk.read(".git/index") == "theirs, moved on"


def test_diff_shows_text_as_text_and_names_the_rest(desk: Desk) -> None:
    desk.write("text", "one\ntwo\nthree\n")
    desk.write("binary", b"\0\1")
    desk.write("mode", "x", mode=0o644)
    os.symlink("here", desk.root / "link")
    first = desk.ws.snapshot()
    desk.write("text", "one\n2\nthree\n")
    desk.write("binary", b"\0\2")
    (desk.root / "mode").chmod(0o755)
    (desk.root / "link").unlink()
    os.symlink("there", desk.root / "link")
    desk.write("new", "hello")
    now = str(desk.ws.diff(first))
    second = desk.ws.snapshot()
    assert str(desk.ws.diff(first, second)) == now
    assert "--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three" in now
    assert "~ binary" in now
    assert "mode 644 -> 755 mode" in now
    assert "--> here\n+-> there" in now
    assert "--- /dev/null\n+++ b/new" in now
    assert not desk.ws.diff(second)
    assert str(desk.ws.diff(second, second)) == "nothing differs"
    assert changed(desk.ws.diff(second, first, text=False))["new"] == "removed"


def test_status_says_what_the_next_snapshot_would_hold(desk: Desk) -> None:
    desk.write("a", "12")
    desk.write("b", "3")
    assert changed(desk.ws.status()) == {"a": "added", "b": "added"}
    desk.ws.snapshot()
    desk.write("a", "45")
    (desk.root / "b").unlink()
    status = desk.ws.status()
    assert (status.files, status.bytes, changed(status)) == (1, 2, {"a": "changed", "b": "removed"})
    assert len(desk.ws.snapshots()) == 1


def test_snapshots_are_found_by_id_prefix_and_reference_and_a_wrong_one_is_named(desk: Desk) -> None:
    desk.write("a", "1")
    first = desk.ws.snapshot()
    desk.write("a", "2")
    desk.ws.snapshot()
    for at in (first, first.id, f"{first.id}@{desk.ws.name}"):
        assert desk.ws.restore(at, dry_run=True).changes
    with pytest.raises(CheckpointNotFound, match="ffffffff"):
        desk.ws.restore("ffffffff-0000-7000-8000-000000000000")


def test_one_at_a_time_in_a_directory(desk: Desk) -> None:
    ws = desk.workspace(timeout=0.05)
    with locked(os.fsencode(desk.root), 1), pytest.raises(LockTimeout):
        ws.snapshot()
    assert ws.snapshot().files == 0


def test_a_restore_with_nothing_to_do_leaves_no_trace(desk: Desk) -> None:
    desk.write("a", "1")
    first = desk.ws.snapshot()
    assert not desk.ws.restore(first)
    assert len(desk.ws.snapshots()) == 1
    with pytest.raises(NoCheckpoint):
        desk.ws.undo()


@pytest.mark.parametrize("on_a_disk", [True, False])
def test_what_a_restore_replaces_and_removes_is_let_go_of(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, on_a_disk: bool
) -> None:
    monkeypatch.setattr(apply, "HELD", 7)
    monkeypatch.setattr(os, "major", lambda _: int(on_a_disk))
    for number in range(40):
        desk.write(f"d{number % 3}/{number}", "old")
    first = desk.ws.snapshot()
    before = desk.picture()
    handles = []
    for turn in range(3):
        for number in range(40):
            desk.write(f"d{number % 3}/{number}", f"new {turn}")
            desk.write(f"more/{number}", "more")
        desk.ws.snapshot()
        desk.ws.restore(first)
        assert desk.picture() == before
        for thread in threading.enumerate():
            if thread.name == "backtrail-let-go":
                thread.join()
        handles.append(len(os.listdir("/proc/self/fd")))
    assert handles[1] == handles[2], "nothing stays open"
