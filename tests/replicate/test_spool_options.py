"""A spool belongs to one store: its keys, namespaces, limit, files and options."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate.spool import FILE, Spool
from fix_flaky import Flaky
from fix_pairs import Pair, both_unreachable, landed

LONG = "text that is long enough to be kept in pieces " * 8
NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


def test_a_sealed_store_has_a_sealed_spool(tmp_path: Path) -> None:
    key, secret = b"k" * 32, "a secret that nobody may read " * 20
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())

    def open_() -> backtrail.Store:
        return backtrail.open(sides[0], replica=sides[1], key=key, spool=tmp_path / "spool", **NEVER)

    store = open_()
    store.thread("t").append("messages", [secret])
    sides[0].up = sides[1].up = False
    store.thread("t").append("messages", [secret])
    store.thread("new").save({"big": secret * 500})
    again = open_()  # in a new process, while both are away
    again.thread("t").append("messages", ["three"])
    for file in (tmp_path / "spool").iterdir():
        assert b"a secret that" not in file.read_bytes()
    with pytest.raises(backtrail.BacktrailError, match="key"):
        backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **NEVER)
    sides[0].up = sides[1].up = True
    last = open_()
    assert last.thread("t").load() == {"messages": [secret, secret, "three"]}
    assert last.thread("new").load() == {"big": secret * 500}
    assert (
        last.status().spool
        == backtrail.open(sides[0], replica=sides[1], key=key, spool=tmp_path / "spool").status().spool
    )


def test_a_spool_is_not_delivered_to_a_store_with_other_keys(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(sides[0], replica=sides[1], key=b"k" * 32, spool=tmp_path / "spool", **NEVER)
    store.thread("t").save({"n": 1})
    sides[0].up = sides[1].up = False
    store.thread("t").save({"n": 2})
    for key in (b"k" * 32, None):
        with pytest.raises(backtrail.InvalidInput, match="another key ring"):
            backtrail.open(MemoryEngine(), replica=MemoryEngine(), key=key, spool=tmp_path / "spool").thread(
                "x"
            ).exists()
    sides[0].up = sides[1].up = True
    assert store.thread("t").load() == {"n": 2}


def test_a_spool_that_is_empty_may_be_used_for_another_store(tmp_path: Path) -> None:
    for key, namespaces in ((b"k" * 32, ["one", None]), (b"l" * 32, [None])):
        sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
        for namespace in namespaces:
            store = backtrail.open(sides[0], replica=sides[1], key=key, namespace=namespace, spool=tmp_path, **NEVER)
            store.thread("t").save({"n": 1})


def test_namespaces_share_a_spool_and_know_nothing_of_each_other(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())

    def open_(namespace: str | None) -> backtrail.Store:
        return backtrail.open(sides[0], replica=sides[1], namespace=namespace, spool=tmp_path / "spool", **NEVER)

    rooms = {name: open_(name) for name in ("one", "two", None)}
    for name, store in rooms.items():
        store.thread("t").save({"room": name})
    sides[0].up = sides[1].up = False
    for name, store in rooms.items():
        store.thread("t").update({"again": name})
        store.thread("new").save({"room": name})
    sides[0].up = sides[1].up = True
    for name in rooms:
        store = open_(name)
        assert store.thread("t").load() == {"room": name, "again": name}
        assert store.thread("new").load() == {"room": name}


def test_sessions_retention_and_compression_go_on_as_well(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    options: dict[str, Any] = {"retention": backtrail.Retention(keep_last=3), "compression": "zstd"}
    store = backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **options, **NEVER)
    session = store.session("s")
    thread = store.thread("t")
    for n in range(4):
        session.append({"role": "user", "content": f"{n} {LONG}"})
        thread.append("items", [n, LONG])
    sides[0].up = sides[1].up = False
    for n in range(4, 9):
        session.append({"role": "user", "content": f"{n} {LONG}"})
        thread.append("items", [n, LONG])
    assert store.status().spool.records == 10  # type: ignore[union-attr]
    sides[0].up = sides[1].up = True
    assert [message["content"][0] for message in session.messages()] == list("012345678")
    assert len(thread.history()) == 3
    store.catch_up()
    for side in sides:
        alone = backtrail.open(side.engine, **options)
        assert not alone.verify().problems
        assert alone.thread("t").load() == thread.load()


def test_a_spool_that_is_damaged_or_full_says_so_and_harms_nobody(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    store = backtrail.open(sides[0], replica=sides[1], spool=tmp_path / "spool", **NEVER)
    for name in ("a", "b"):
        store.thread(name).save({"n": 1})
    sides[0].up = sides[1].up = False
    for name in ("a", "b"):
        store.thread(name).save({"n": 2})
    with sqlite3.connect(tmp_path / "spool" / FILE) as damage:
        damage.execute("UPDATE steps SET meta = CAST(x'00' || meta AS BLOB) WHERE pos = (SELECT min(pos) FROM steps)")
    damage.close()
    sides[0].up = sides[1].up = True
    status = store.catch_up()
    assert status.spool is not None
    assert status.spool.records == 1
    assert "digest" in (status.last_error or "")
    assert (store.thread("a").load(), store.thread("b").load()) == ({"n": 1}, {"n": 2})
    sides[0].up = sides[1].up = False
    finish(store._core.context.engine._spool.engine.close())  # type: ignore[attr-defined]
    with pytest.raises(backtrail.Unavailable, match=r"primary: .*replica: .*the spool cannot be used"):
        store.thread("b").save({"n": 3})


def test_a_spool_that_is_full_refuses_a_save_and_keeps_what_it_has(pair: Pair, tmp_path: Path) -> None:
    store = pair.open(spool=tmp_path / "spool", spool_limit=20_000)
    thread = store.thread("t")
    thread.append("messages", ["one"])
    both_unreachable(pair)
    thread.append("messages", ["two"])
    store.thread("whole").save({"text": "x" * 10_000})
    held = store.status().spool
    for save in (
        lambda: thread.append("messages", ["y" * 15_000]),
        lambda: store.thread("whole").save({"text": "z" * 30_000}),
        lambda: store.thread("new").save({"big": "z" * 300_000}),
    ):
        with pytest.raises(
            backtrail.Unavailable, match=r"primary: .*replica: .*spool is full.*spool_limit=20000.*nothing was"
        ):
            save()
    still = store.status().spool
    assert (still.adrift, still.records, still.bytes, still.limit) == (True, held.records, held.bytes, 20_000)
    thread.append("messages", ["three"])  # there is room for this one
    assert landed(pair, store).diverged == 0
    assert thread.load() == {"messages": ["one", "two", "three"]}
    assert store.thread("whole").load() == {"text": "x" * 10_000}
    assert not store.thread("new").exists()
    both_unreachable(pair)
    thread.append("messages", ["y" * 15_000])  # and again, now that it is empty
    landed(pair, store)
    pair.equal()
    assert not store.verify().problems


def test_what_another_process_delivered_makes_room(tmp_path: Path) -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    stores = [
        backtrail.open(one, replica=two, spool=tmp_path / "spool", spool_limit=20_000, **NEVER)
        for one, two in (sides, [Flaky(side.engine) for side in sides])
    ]
    for store in stores:
        store.thread("t").append("messages", ["one"])
    sides[0].up = sides[1].up = False
    stores[0].thread("a").save({"text": "x" * 15_000})
    stores[1].catch_up()
    stores[0].thread("b").save({"text": "x" * 15_000})
    assert stores[0].status().spool.records == 1  # type: ignore[union-attr]
    sides[0].up = sides[1].up = True
    assert stores[0].thread("a").load() == stores[0].thread("b").load()


def test_a_spool_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    backtrail.open(MemoryEngine(), replica=MemoryEngine(), spool=tmp_path / "deep" / "spool").thread("t").save({"n": 1})
    assert stat.S_IMODE((tmp_path / "deep" / "spool").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "deep" / "spool").iterdir()} == {0o600}


def test_bad_spools_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with backtrail.open(f"jsonl:{tmp_path}/store"):
        pass
    before = sorted(tmp_path.iterdir())
    here, there = tmp_path / "a.db", tmp_path / "b.db"
    for spool, reason in (
        (tmp_path / "file", "not a directory"),
        (5, "give a path"),
        ("", "give a path"),
        (tmp_path / "store" / "spool", "inside the store"),
        (tmp_path / "store", "inside the store"),
    ):
        with pytest.raises(backtrail.InvalidInput, match=reason):
            backtrail.open(here, replica=there, spool=spool)
    with pytest.raises(backtrail.InvalidInput, match="a side of the mirror"):
        backtrail.open(tmp_path / "x" / FILE, replica=there, spool=tmp_path / "x")
    with pytest.raises(backtrail.InvalidInput, match="a side of the mirror"):
        backtrail.open(here, replica=f"jsonl:{tmp_path}/y", spool=tmp_path / "y" / "z")
    with pytest.raises(backtrail.InvalidInput, match="needs replica="):
        backtrail.open(here, spool=tmp_path / "spool")
    with pytest.raises(backtrail.InvalidInput, match="needs spool="):
        backtrail.open(here, replica=there, spool_limit=1000)
    for limit in (0, -1, 1.5, True):
        with pytest.raises(backtrail.InvalidInput, match="spool_limit"):
            backtrail.open(here, replica=there, spool=tmp_path / "spool", spool_limit=limit)
    with pytest.raises(backtrail.InvalidInput, match="spool_limit"):
        backtrail.open(f"sqlite:{here}?replica={there}&spool={tmp_path}/spool&spool_limit=much")
    with pytest.raises(backtrail.InvalidInput, match="choose one"):
        backtrail.open(here, replica=there, replica_required=True, spool=tmp_path / "spool")
    assert sorted(tmp_path.iterdir()) == before
    with backtrail.open(tmp_path / FILE) as store:
        store.thread("t").save({"n": 1})
    with pytest.raises(backtrail.InvalidInput, match="a store of its own"):
        backtrail.open(here, replica=there, spool=tmp_path).thread("t").exists()


def test_a_spool_may_stand_in_the_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db?replica={tmp_path}/b.db&spool={tmp_path}/spool&spool_limit=1000000"
    with backtrail.open(url) as store:
        store.thread("t").save({"n": 1})
        status = store.status().spool
    assert status is not None
    assert (status.records, status.adrift, status.limit) == (0, False, 1_000_000)
    assert (tmp_path / "spool" / FILE).exists()


def test_a_spool_knows_a_save_by_its_bytes(tmp_path: Path) -> None:
    """A save comes back as it was put in, and a second save of one step is refused."""
    from backtrail.engines.base import Branch, Commit, Head, NewRow, Swap
    from backtrail.engines.conflicts import Refused
    from backtrail.replicate.lineage_copy import new_row

    spool = Spool.open(tmp_path, True)
    branch = Branch(b"b" * 16, "l", "t", b"o" * 16)
    head = Head("t", "l", b"o" * 16, branch.id, 1, 1, "thread", 1, 1, 1, 1, b"note")
    row = NewRow(branch.id, 1, b"i" * 16, b"meta", b"d" * 16, b"root", b"payload")
    commit = Commit("l", (Swap("t", None, head),), (row,), (branch,), (), {b"x": b"blob"})
    finish(spool.put(commit))
    with pytest.raises(Refused):
        finish(spool.put(commit))
    found = finish(spool.read("l"))
    assert found is not None
    assert (found.bases, found.records.heads, found.marks) == ({"t": None}, {"t": head}, [])
    assert [new_row(branch.id, one) for one in finish(spool.engine.rows("l", branch.id, 0, 9))] == [row]
    assert branch in finish(spool.engine.branches("l"))
    assert finish(spool.engine.blobs("l", [b"x"])) == commit.blobs
    assert finish(spool.clear("l", found.journal))
    assert finish(spool.survey()).records == 0
    assert finish(spool.engine.lineages()) == []
    finish(spool.put(commit))
    finish(spool.engine.close())
