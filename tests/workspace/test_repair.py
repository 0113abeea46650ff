"""What is damaged in the store: a prune keeps away from it, and after a repair the directory fills the gap again."""

from __future__ import annotations

import datetime as dt
import random
import threading

import msgspec
import pytest

import backtrail
from backtrail.engines.base import Commit, Drop
from backtrail.engines.drive import finish
from backtrail.errors import Corrupt
from backtrail.workspace import trees

from .conftest import Desk
from .test_hostile import Forger

NOTHING = backtrail.Retention(keep_last=1, undo_window=dt.timedelta(0))
LARGE = random.Random(3).randbytes(2**20 + 2**18)


def replace(desk: Desk, name: bytes, data: bytes) -> None:
    """Put other bytes in a blob's place, as a bad disk or an enemy would."""
    engine, pool = desk.store._core.context.engine, desk.ws.name
    heads = finish(engine.heads(pool))
    finish(engine.drop(Drop(pool, [(head.thread, head.key) for head in heads], blobs=[name])))
    finish(engine.commit(Commit(pool, blobs={name: data})))


def blobs_of(desk: Desk) -> dict[str, bytes]:
    """One blob of each kind that the newest snapshot needs."""
    log = desk.ws._core._log
    root = finish(log.tip()).tree
    tree = finish(log.trees([root]))[root]
    return {
        "a small file": tree[b"small"].ref,
        "a list of pieces": tree[b"large"].ref,
        "a piece": min(finish(log.pieces([tree[b"large"]]))),
        "a tree": tree[b"sub"].ref,
        "the root's tree": root,
    }


KINDS = ["a small file", "a list of pieces", "a piece", "a tree", "the root's tree"]


def fill(desk: Desk) -> None:
    desk.write("small", "small")
    desk.write("large", LARGE)
    desk.write("sub/deep/file", "deep")
    desk.ws.snapshot()


def check(desk: Desk) -> None:
    """A snapshot of the directory brings everything back."""
    whole = desk.picture()
    snapshot = desk.ws.snapshot()
    for path in ("small", "large", "sub/deep/file"):
        (desk.root / path).unlink()
    desk.workspace(cache=False).restore(snapshot)
    assert desk.picture() == whole
    assert desk.ws.snapshot().tree == snapshot.tree


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_repair_the_next_snapshot_holds_everything_again(desk: Desk, kind: str) -> None:
    fill(desk)
    replace(desk, blobs_of(desk)[kind], b"rubbish")
    assert desk.store.verify(repair=True).problems
    check(desk)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", ["another file", "the files themselves"])
def test_so_it_does_in_another_process_and_with_other_files(lone: Desk, kind: str, changed: str) -> None:
    fill(lone)
    replace(lone, blobs_of(lone)[kind], b"rubbish")
    assert lone.store.verify(repair=True).problems
    lone.store.close()
    lone.reopen()
    if changed == "another file":
        lone.write("sub/new", "new")
    else:
        lone.write("small", "smaller")
        lone.write("large", LARGE[:-1])
    check(lone)


@pytest.mark.parametrize("kind", ["a small file", "a list of pieces", "a piece"])
def test_one_damaged_blob_among_many_stops_a_restore_before_anything_changes(desk: Desk, kind: str) -> None:
    for number in range(300):
        desk.write(f"many/{number}", f"content {number}\n" * (number % 50))
    desk.write("before", LARGE[::-1])
    fill(desk)
    snapshot = desk.ws.snapshot()
    bad = blobs_of(desk)[kind]
    for path in desk.root.iterdir():
        path.rename(desk.base / path.name)
    desk.write("stays", "as it is")
    desk.ws.snapshot()
    now = desk.picture()

    replace(desk, bad, b"rubbish")
    with pytest.raises(Corrupt, match=bad.hex()):
        desk.workspace(cache=False).restore(snapshot)
    assert desk.picture() == now
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("backtrail-stage")]


def test_a_repair_is_remembered_no_longer_than_it_matters(lone: Desk) -> None:
    fill(lone)
    replace(lone, blobs_of(lone)["a small file"], b"rubbish")
    lone.store.verify(repair=True)
    assert len(finish(lone.ws._core._log.lost())) == 1
    lone.ws.snapshot()
    assert finish(lone.ws._core._log.lost()) == set()


@pytest.mark.parametrize("forged", ["rubbish", "a name that leads out", "a newer format"])
def test_a_tree_that_cannot_be_read_keeps_blobs_and_nothing_else_from_a_prune(desk: Desk, forged: str) -> None:
    forger = Forger(desk)
    thread = desk.store.thread("conversation")
    for n in range(3):
        desk.write("a", f"{n}")
        desk.ws.snapshot()
        thread.save({"n": n})
    tree = {
        "rubbish": forger.tree((b"a", forger.file())),
        "a name that leads out": forger.tree((b"..", forger.file())),
        "a newer format": forger.blob(msgspec.msgpack.encode([trees.VERSION + 1, [], [], [], []])),
    }[forged]
    forger.snapshot(tree)
    if forged == "rubbish":
        replace(desk, tree, b"rubbish")

    report = desk.store.prune(retention=NOTHING)
    assert report.checkpoints == 5, "snapshots and conversations are pruned all the same"
    assert report.blobs == 0
    assert len(report.damaged) == 1
    assert repr(desk.ws.name) in report.damaged[0]
    assert len(desk.ws.snapshots()) == 1
    assert thread.load() == {"n": 2}

    if forged == "a newer format":
        return  # what a newer backtrail wrote is not written over
    desk.ws.snapshot()
    again = desk.store.prune(retention=NOTHING)
    assert again.damaged == (), "what could not be read went with the last snapshot that needed it"
    assert again.blobs > 0
    desk.write("a", "changed")
    desk.ws.restore(desk.ws.snapshots()[0])
    assert desk.read("a") == "2"
