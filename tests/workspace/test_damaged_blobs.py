"""Damaged blobs: a prune spares them, a restore refuses them, and after a repair a snapshot stores them again."""

from __future__ import annotations

import datetime as dt
import random
import threading

import msgspec
import pytest

import backtrail
from backtrail.engines.base import Commit, Drop
from backtrail.engines.coroutines import finish
from backtrail.errors import Corrupt
from backtrail.workspace import trees

from .conftest import Project
from .test_untrusted_store import Forger

NOTHING = backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0))
LARGE = random.Random(3).randbytes(2**20 + 2**18)


def replace_blob(project: Project, name: bytes, data: bytes) -> None:
    """Replace the bytes of a blob, as a bad disk or an attacker would."""
    engine, pool = project.store._core.context.engine, project.ws.name
    heads = finish(engine.heads(pool))
    finish(engine.drop(Drop(pool, [(head.thread, head.key) for head in heads], blobs=[name])))
    finish(engine.commit(Commit(pool, blobs={name: data})))


def blobs_of(project: Project) -> dict[str, bytes]:
    """The id of one blob of each kind that the newest snapshot needs."""
    journal = project.ws._core._journal
    root = finish(journal.tip()).tree
    tree = finish(journal.trees([root]))[root]
    return {
        "a small file": tree[b"small"].ref,
        "a list of pieces": tree[b"large"].ref,
        "a piece": min(finish(journal.piece_ids([tree[b"large"]]))),
        "a tree": tree[b"sub"].ref,
        "the root's tree": root,
    }


KINDS = ["a small file", "a list of pieces", "a piece", "a tree", "the root's tree"]


def fill(project: Project) -> None:
    project.write("small", "small")
    project.write("large", LARGE)
    project.write("sub/deep/file", "deep")
    project.ws.snapshot()


def check_snapshot(project: Project) -> None:
    """Check that a snapshot of the directory can restore everything."""
    whole = project.contents()
    snapshot = project.ws.snapshot()
    for path in ("small", "large", "sub/deep/file"):
        (project.root / path).unlink()
    project.workspace(cache=False).restore(snapshot)
    assert project.contents() == whole
    assert project.ws.snapshot().tree == snapshot.tree


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_repair_the_next_snapshot_holds_everything_again(project: Project, kind: str) -> None:
    fill(project)
    replace_blob(project, blobs_of(project)[kind], b"rubbish")
    assert project.store.verify(repair=True).problems
    check_snapshot(project)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", ["another file", "the files themselves"])
def test_after_a_repair_a_snapshot_by_another_process_holds_everything_again(
    sqlite_project: Project, kind: str, changed: str
) -> None:
    fill(sqlite_project)
    replace_blob(sqlite_project, blobs_of(sqlite_project)[kind], b"rubbish")
    assert sqlite_project.store.verify(repair=True).problems
    sqlite_project.store.close()
    sqlite_project.reopen()
    if changed == "another file":
        sqlite_project.write("sub/new", "new")
    else:
        sqlite_project.write("small", "smaller")
        sqlite_project.write("large", LARGE[:-1])
    check_snapshot(sqlite_project)


@pytest.mark.parametrize("kind", ["a small file", "a list of pieces", "a piece"])
def test_one_damaged_blob_among_many_stops_a_restore_before_anything_changes(project: Project, kind: str) -> None:
    for number in range(300):
        project.write(f"many/{number}", f"content {number}\n" * (number % 50))
    project.write("before", LARGE[::-1])
    fill(project)
    snapshot = project.ws.snapshot()
    bad = blobs_of(project)[kind]
    for path in project.root.iterdir():
        path.rename(project.base / path.name)
    project.write("stays", "as it is")
    project.ws.snapshot()
    now = project.contents()

    replace_blob(project, bad, b"rubbish")
    with pytest.raises(Corrupt, match=bad.hex()):
        project.workspace(cache=False).restore(snapshot)
    assert project.contents() == now
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("backtrail-stage")]


def test_lost_blobs_are_no_longer_listed_once_they_are_stored_again(sqlite_project: Project) -> None:
    fill(sqlite_project)
    replace_blob(sqlite_project, blobs_of(sqlite_project)["a small file"], b"rubbish")
    sqlite_project.store.verify(repair=True)
    assert len(finish(sqlite_project.ws._core._journal.lost_blobs())) == 1
    sqlite_project.ws.snapshot()
    assert finish(sqlite_project.ws._core._journal.lost_blobs()) == set()


@pytest.mark.parametrize("forged", ["rubbish", "a name that leads out", "a newer format"])
def test_an_unreadable_tree_keeps_a_prune_from_blobs_but_not_from_checkpoints(project: Project, forged: str) -> None:
    forger = Forger(project)
    thread = project.store.thread("conversation")
    for n in range(3):
        project.write("a", f"{n}")
        project.ws.snapshot()
        thread.save({"n": n})
    tree = {
        "rubbish": forger.tree((b"a", forger.file())),
        "a name that leads out": forger.tree((b"..", forger.file())),
        "a newer format": forger.blob(msgspec.msgpack.encode([trees.VERSION + 1, [], [], [], []])),
    }[forged]
    forger.snapshot(tree)
    if forged == "rubbish":
        replace_blob(project, tree, b"rubbish")

    report = project.store.prune(retention=NOTHING)
    assert report.checkpoints == 5, "snapshots and conversations are pruned all the same"
    assert report.blobs == 0
    assert len(report.damaged) == 1
    assert repr(project.ws.name) in report.damaged[0]
    assert len(project.ws.snapshots()) == 1
    assert thread.load() == {"n": 2}

    if forged == "a newer format":
        return  # a record of a newer backtrail is not replaced
    project.ws.snapshot()
    again = project.store.prune(retention=NOTHING)
    assert again.damaged == (), "what could not be read went with the last snapshot that needed it"
    assert again.blobs > 0
    project.write("a", "changed")
    project.ws.restore(project.ws.snapshots()[0])
    assert project.read("a") == "2"
