"""Extreme numbers in a store: a typed error or the right data, after bounded work.

The numbers are written through the engine, with checksums that hold: as somebody would who knows the format.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import backtrail
from backtrail.encode.frame import Frames, describe_row
from backtrail.engines.base import LAST_STEP, Commit, Engine, Head, Mark, NewRow, Swap
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import BacktrailError, Corrupt
from backtrail.history.records import (
    LAST_TIME,
    MOST,
    Meta,
    chain,
    meta_of,
    open_note,
    pack_meta,
    seal_branch,
    seal_note,
)
from fix_stores import open_stores

EXTREMES = [-1, 0, 2**31, LAST_STEP, 2**32, MOST, 2**62, 2**63 - 1]
NUMBERS = ["step", "version", "created", "updated", "count", "size"]
FRAMES = Frames()
MOST_CALLS = 1500  # of the engine, for everything that is tried on a store of three threads


class Counted:
    """An engine whose calls are counted."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if name in Engine.__abstractmethods__:
            self.calls += 1
        return found


@pytest.fixture(params=["memory", "sqlite", "jsonl", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    opened = open_stores(request.param, "blocking", tmp_path, request)
    yield build(next(opened)())
    next(opened, None)


def build(store: Any) -> Any:
    thread = store.thread("t")
    for n in range(4):
        thread.append("messages", [{"n": n, "text": "x" * 200}])
    thread.fork("f", at=2).append("messages", [{"n": "f"}])
    store.thread("other").save({"x": 1})
    store.session("s").add("user", "hello")
    return store


def context_of(store: Any) -> Any:
    return store._core.context


def try_everything(store: Any) -> None:
    """What users do: typed errors only, in bounded work, and other threads are not touched by it."""
    context = context_of(store)
    counted = context.engine = Counted(context.engine)
    thread = store.thread("t")
    calls: list[Callable[[], Any]] = [
        thread.load,
        lambda: thread.load(2),
        lambda: thread.load(-2),
        lambda: thread.tail("messages", 2),
        thread.history,
        lambda: thread.history(limit=3),
        lambda: thread.history(all=True),
        lambda: thread.get("@~1"),
        thread.outline,
        lambda: thread.diff(1, 2),
        lambda: store.thread("f").history(),
        lambda: store.thread("f").load(1),
        store.stats,
        lambda: store.prune(dry_run=True),
        store.verify,
        lambda: thread.append("messages", [{"n": "more"}]),
        thread.load,
        lambda: thread.rewind(1),
        thread.undo,
    ]
    for call in calls:
        try:
            call()
        except BacktrailError:
            continue
    listed = {info.id: info for info in store.threads()}
    assert {"f", "other", "s", "t"} <= set(listed)
    assert all(info.updated_at.year < 10_000 for info in listed.values())
    assert listed["other"].damage is None
    assert store.thread("other").load() == {"x": 1}
    assert store.sessions()
    assert counted.calls < MOST_CALLS
    context.engine = counted._engine


def engine_of(store: Any) -> Engine:
    engine: Engine = context_of(store).engine
    return engine


def plant(store: Any, commit: Commit) -> bool:
    """False if this engine has no place for such a number."""
    context_of(store).caches.tips.take("t")
    try:
        finish(engine_of(store).commit(commit))
    except (OverflowError, BacktrailError):
        return False
    return True


@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_of_a_head(store: Any, field: str) -> None:
    planted = 0
    for value in EXTREMES:
        head = finish(engine_of(store).head("t"))
        assert head is not None
        try:
            bare = msgspec.structs.replace(head, **{field: value})
            forged = msgspec.structs.replace(bare, note=seal_note(FRAMES, bare, open_note(FRAMES, head)))
        except BacktrailError:  # no head with this number has a checksum
            forged = msgspec.structs.replace(head, **{field: value})
        if not plant(store, Commit("t", [Swap("t", head.key, forged)])):
            continue
        planted += 1
        try_everything(store)
        last = finish(engine_of(store).head("t"))
        put_back = msgspec.structs.replace(head, note=seal_note(FRAMES, head, open_note(FRAMES, head)))
        if last is not None and not plant(store, Commit("t", [Swap("t", last.key, put_back)])):
            break
    assert planted >= 4


def test_a_damaged_head_is_listed_and_marked(store: Any) -> None:
    head = finish(engine_of(store).head("t"))
    assert head is not None
    assert plant(store, Commit("t", [Swap("t", head.key, msgspec.structs.replace(head, updated=2**58, note=b"x"))]))
    session = finish(engine_of(store).head("s"))
    assert session is not None
    assert plant(store, Commit("s", [Swap("s", session.key, msgspec.structs.replace(session, created=2**58))]))
    listed = {info.id: info for info in store.threads()}
    assert listed["t"].damage is not None
    assert "out of bounds" in listed["t"].damage
    assert listed["t"].updated_at == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert listed["f"].damage is None
    assert [(info.id, info.damage is None, info.messages) for info in store.sessions()] == [("s", False, 0)]
    with pytest.raises(Corrupt):
        store.thread("t").load()
    assert not store.verify().ok


@pytest.mark.parametrize("value", EXTREMES)
def test_the_origin_of_a_branch(store: Any, value: int) -> None:
    fork, main = (finish(engine_of(store).head(name)) for name in ("f", "t"))
    assert fork is not None
    assert main is not None
    branch = next(one for one in finish(engine_of(store).branches("t")) if one.id == fork.branch)
    new = msgspec.structs.replace(branch, id=b"n" * 16, origin=(main.branch, max(value, 0)))
    forged = seal_branch(FRAMES, new, bytes(16))
    step = min(abs(value) + 1, LAST_STEP)
    bare = msgspec.structs.replace(fork, branch=new.id, step=step, version=fork.version + 1)
    head = msgspec.structs.replace(bare, note=seal_note(FRAMES, bare, open_note(FRAMES, fork)))
    if plant(store, Commit("t", [Swap("f", fork.key, head)], branches=[forged])):
        try_everything(store)


def test_branches_that_go_round_in_a_circle(store: Any) -> None:
    head = finish(engine_of(store).head("t"))
    assert head is not None
    branch = next(one for one in finish(engine_of(store).branches("t")) if one.id == head.branch)
    ids = [bytes([n]) * 16 for n in (201, 202, 203)]
    circle = [
        seal_branch(FRAMES, msgspec.structs.replace(branch, id=id, origin=(ids[n - 1], 5 + n)), bytes(16))
        for n, id in enumerate(ids)
    ]
    bare = msgspec.structs.replace(head, branch=ids[0], step=50, version=head.version + 1)
    forged = msgspec.structs.replace(bare, note=seal_note(FRAMES, bare, open_note(FRAMES, head)))
    assert plant(store, Commit("t", [Swap("t", head.key, forged)], branches=circle))
    try_everything(store)
    with pytest.raises(Corrupt):
        store.thread("t").history()
    with pytest.raises(Corrupt):
        store.thread("t").load(3)


@pytest.mark.parametrize("value", [-1, MOST + 1, 2**62])
@pytest.mark.parametrize("field", ["created", "size", "written"])
def test_a_number_of_the_metadata(store: Any, field: str, value: int) -> None:
    head = finish(engine_of(store).head("t"))
    assert head is not None
    before = finish(engine_of(store).row("t", *head.position))
    assert before is not None
    step, id = head.step + 1, b"i" * 16
    meta = Meta(**{"created": 1, "parent": before.id, "size": 1, "written": 1, "body": bytes(16), field: value})
    packed = FRAMES.wrap(pack_meta(meta), meta_of(describe_row(head.branch, step), id))
    row = NewRow(head.branch, step, id, packed, chain(before.digest, id, packed), before.root, b"")
    bare = msgspec.structs.replace(head, step=step, version=head.version + 1)
    note = msgspec.structs.replace(open_note(FRAMES, head), checkpoint=id)
    forged = msgspec.structs.replace(bare, note=seal_note(FRAMES, bare, note))
    assert plant(store, Commit("t", [Swap("t", head.key, forged)], [row]))
    try_everything(store)


@pytest.mark.parametrize("value", [2**53, 2**62, LAST_TIME + 1])
def test_the_time_of_a_mark(store: Any, value: int) -> None:
    head = finish(engine_of(store).head("t"))
    assert head is not None
    data = msgspec.msgpack.encode((head.branch, 2, (value, False, "label", (), b"")))
    assert plant(store, Commit("t", marks=[Mark(head.branch, 2, FRAMES.wrap(data, ""))]))
    try_everything(store)


def test_a_thread_at_the_last_step_refuses_a_save_before_anything_is_written() -> None:
    engine = MemoryEngine()
    store = backtrail.open(engine)
    store.thread("t").save({"n": 1})
    old = engine._heads["t"]
    log = next(iter(engine._lineages["t"].logs.values()))
    row = log.rows.pop(1)
    log.steps.clear()
    log.add(row._replace(step=LAST_STEP))
    bare = msgspec.structs.replace(old, step=LAST_STEP)
    engine._heads["t"] = msgspec.structs.replace(bare, note=seal_note(FRAMES, bare, open_note(FRAMES, old)))
    store = backtrail.open(engine)
    with pytest.raises(BacktrailError):
        store.thread("t").save({"n": 2})
    assert isinstance(engine._heads["t"], Head)
    assert engine._heads["t"].step == LAST_STEP


def test_a_save_whose_step_is_taken_although_the_head_has_not_moved_starts_a_branch(store: Any) -> None:
    """A comparison of two sides that was cut leaves such a row, and so does a head that was put back."""
    old = finish(engine_of(store).head("t"))
    store.thread("t").append("messages", [{"n": "lost"}])
    new = finish(engine_of(store).head("t"))
    assert old is not None
    assert new is not None
    put_back = msgspec.structs.replace(old, version=new.version + 1)
    put_back = msgspec.structs.replace(put_back, note=seal_note(FRAMES, put_back, open_note(FRAMES, old)))
    assert plant(store, Commit("t", [Swap("t", new.key, put_back)]))
    counted = context_of(store).engine = Counted(engine_of(store))
    saved = store.thread("t").append("messages", [{"n": "after"}])
    assert counted.calls < 20
    assert saved.step == 5
    assert [message["n"] for message in store.thread("t").load()["messages"]] == [0, 1, 2, 3, "after"]
    head = finish(engine_of(store).head("t"))
    assert head is not None
    assert head.branch != old.branch
    context_of(store).engine = counted._engine
