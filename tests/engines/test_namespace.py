"""Namespaces of one store are separate, and the engine of a namespace keeps the contract."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Engine, Head
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.namespace import NamespaceEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.errors import Conflict, InvalidInput, ThreadNotFound
from backtrail.testing import sample_records
from backtrail.testing.contract import EngineContract


class TestNamespaceInMemory(EngineContract):
    def make_engine(self, directory: Path) -> Engine:
        return NamespaceEngine(MemoryEngine(), "acme")


class TestNamespaceInSQLite(EngineContract):
    """Another namespace, and a store outside of both, are in the same file and never seen."""

    def make_engine(self, directory: Path) -> Engine:
        engine = SQLiteEngine(directory / "store.db", durability="normal")
        neighbours = (engine, NamespaceEngine(engine, "acme/2"), NamespaceEngine(engine, "Acme"))
        for number, neighbour in enumerate(neighbours, 9001):
            with contextlib.suppress(Refused):  # some cases open the same file twice
                finish(neighbour.commit(sample_records.first(sample_records.branch("t", number))))
        return NamespaceEngine(engine, "acme")


def fill(store: Any, mark: str) -> None:
    thread = store.thread("same")
    for n in range(5):
        thread.save({"mark": mark, "n": n, "paper": "long " * 20_000}, tags=[mark])
    thread.fork()
    store.session("chat").add("user", mark)


ROOMS = [None, "a", "b", "a/b", "a%", "ä", "keys", "a b"]


def test_no_call_sees_or_touches_another_namespace(opener: Any) -> None:
    stores = {room: opener(**({} if room is None else {"namespace": room})) for room in ROOMS}
    for room, store in stores.items():
        fill(store, str(room))
    for room, store in stores.items():
        assert [info.id for info in store.threads()] == ["chat", "same", "same#fork-1"]
        assert [info.id for info in store.sessions()] == ["chat"]
        assert store.thread("same").load()["mark"] == str(room)
        assert {c.tags for c in store.thread("same").history()} == {(str(room),)}
        assert store.count() == 3
        stats = store.stats()
        assert (stats["threads"], stats["rows"], stats["blobs"]) == (3, 6, 1)
        assert store.verify().threads == 3
    stores["a"].prune(backtrail.Retention(keep_last=1))
    stores["a"].thread("same#fork-1").delete()
    stores["b"].compact()
    stores[None].prune(backtrail.Retention(keep_last=2))
    for room, store in stores.items():
        kept = {"a": 1, None: 2}.get(room, 5)
        assert len(store.thread("same").history()) == kept
        assert store.thread("same#fork-1").exists() == (room != "a")
        assert store.verify().ok


def test_names_that_look_like_another_namespace_stay_where_they_are(opener: Any) -> None:
    inner = opener(namespace="a")
    inner.thread("x").save({"secret": 1})
    outer = opener()
    for name in ("a\x1fx", "a/x", "a:x", "\x1fx", "a\x1f"):
        assert not outer.thread(name).exists()
        outer.thread(name).save({"mine": name})
        assert opener(namespace="b").count() == 0
    with pytest.raises(InvalidInput):
        outer.thread("\U0010ffffa\x1fx")
    with pytest.raises(InvalidInput):
        outer.thread("t").fork("\U0010ffffa\x1fx")
    assert inner.count() == 1
    assert inner.thread("x").load() == {"secret": 1}
    assert outer.threads(prefix="\U0010ffff") == []
    with pytest.raises(ThreadNotFound):
        opener(namespace="aa").thread("x").load()


def test_listing_is_paged_within_a_namespace(opener: Any) -> None:
    for room in ("a", "b", None):
        store = opener(**({} if room is None else {"namespace": room}))
        for n in range(7):
            store.thread(f"t{n}").save({"n": n})
    for room in ("a", None):
        store = opener(**({} if room is None else {"namespace": room}))
        for newest_first in (False, True):
            found: list[str] = []
            while page := store.threads(limit=3, after=found[-1] if found else None, newest_first=newest_first):
                found += [info.id for info in page]
            assert sorted(found) == [f"t{n}" for n in range(7)]


def test_locks_of_the_same_name_are_different_locks(opener: Any) -> None:
    one, two = opener(namespace="a"), opener(namespace="b")
    for store in (one, two):
        store.thread("t").save({})
    with one.thread("t").lock(timeout=0), two.thread("t").lock(timeout=0):
        two.thread("t").save({"n": 1})


def test_the_outermost_store_can_tell_which_namespaces_there_are(opener: Any) -> None:
    assert opener().namespaces() == []
    for room in ("b", "a", "a/b"):
        opener(namespace=room).thread("t").save({})
        opener(namespace=room).thread("u").save({})
    assert opener().namespaces() == ["a", "a/b", "b"]
    with pytest.raises(InvalidInput):
        opener(namespace="a").namespaces()


def test_each_namespace_can_have_a_key_of_its_own(opener: Any) -> None:
    one, two = bytes(range(32)), bytes(range(1, 33))
    opener(namespace="a", key=one).thread("t").save({"n": "a"})
    opener(namespace="b", key=two).thread("t").save({"n": "b"})
    opener().thread("t").save({"n": "plain"})
    assert opener(namespace="a", key=one).thread("t").load() == {"n": "a"}
    assert opener(namespace="a", key=one).count() == 1
    assert opener().thread("t").load() == {"n": "plain"}


def test_a_copy_takes_one_namespace_into_another(opener: Any, tmp_path: Path) -> None:
    source = opener(namespace="a")
    fill(source, "a")
    opener(namespace="b").thread("other").save({})
    source.copy_to(str(tmp_path / "copy.db"), namespace="moved")
    with (
        backtrail.open(tmp_path / "copy.db", namespace="moved") as copy,
        backtrail.open(tmp_path / "copy.db") as outside,
    ):
        assert [info.id for info in copy.threads()] == ["chat", "same", "same#fork-1"]
        assert copy.thread("same").load()["mark"] == "a"
        assert outside.count() == 0
        with pytest.raises(Conflict):
            copy.thread("same").fork("chat")


@pytest.mark.parametrize("name", ["", "a\0b", "a\x1fb", "x" * 65, "\U0010ffff", "\ud800", 7, b"a", "line\n"])
def test_what_is_no_namespace_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput):
        backtrail.open("memory:", namespace=name)


def test_the_url_can_name_the_namespace() -> None:
    engine = MemoryEngine()
    backtrail.open(engine, namespace="a").thread("t").save({"n": 1})
    with backtrail.open("memory:?namespace=a") as store:
        assert store.count() == 0
    assert backtrail.open(engine, namespace="a").count() == 1


def test_a_page_of_threads_outside_of_all_namespaces_does_not_read_those_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, read = MemoryEngine(), 0
    with backtrail.open(engine) as root, backtrail.open(engine, namespace="n") as inside:
        for number in range(30):
            root.thread(f"t{number:02}").save({"n": number})
        for number in range(1500):
            inside.thread(f"t{number:04}").save({"n": number})
        threads = MemoryEngine.threads

        async def reading(self: MemoryEngine, **options: Any) -> list[Head]:
            nonlocal read
            found = await threads(self, **options)
            read += len(found)
            return found

        monkeypatch.setattr(MemoryEngine, "threads", reading)
        expected = [f"t{number:02}" for number in range(30)]
        for newest_first in False, True:
            order = expected[::-1] if newest_first else expected
            for kind in None, "thread":
                listed: list[str] = []
                while page := root.threads(
                    limit=20, newest_first=newest_first, after=listed[-1] if listed else None, kind=kind
                ):
                    listed += [info.id for info in page]
                assert listed == order
        assert root.threads(limit=20, kind="session", newest_first=True) == []
    assert read < 500
