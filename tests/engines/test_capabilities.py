"""Capabilities are found through wrappers, and never through a mirror; refusals of engines stay inside."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Engine
from backtrail.engines.capabilities import (
    FailsFast,
    SavesAdrift,
    SharesCommits,
    StoredLocally,
    WritesInGenerations,
    capability,
)
from backtrail.engines.conflicts import Refused
from backtrail.engines.coroutines import finish
from backtrail.engines.delegating_engine import DelegatingEngine
from backtrail.engines.jsonl import JSONLEngine
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.namespace import NamespaceEngine
from backtrail.engines.reserved_names import RESERVED, is_reserved, user_lineages, user_threads
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import Mirrored
from fix_flaky import Flaky

ALL = (FailsFast, WritesInGenerations, SavesAdrift, SharesCommits, StoredLocally, Mirrored)


def test_a_capability_is_found_through_a_namespace(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db")
    around = NamespaceEngine(NamespaceEngine(engine, "outer"), "inner")
    assert capability(around, SharesCommits) is engine
    assert capability(around, StoredLocally) is engine
    assert capability(around, NamespaceEngine) is around
    assert capability(around, WritesInGenerations) is None
    finish(engine.close())


def test_a_plain_engine_has_none(tmp_path: Path) -> None:
    assert all(capability(MemoryEngine(), kind) is None for kind in ALL)
    directory = JSONLEngine(tmp_path / "s")
    local = capability(directory, StoredLocally)
    assert local is not None
    assert local.path == tmp_path / "s"
    finish(directory.close())


@pytest.mark.parametrize("wrapper", [DelegatingEngine, NamespaceEngine])
def test_a_wrapper_passes_on_what_an_engine_may_do_better_than_the_contract(wrapper: type[Engine]) -> None:
    """The contract has slow implementations of some methods. Behind a wrapper, the engine's own are to be used."""
    given = {name for name, value in vars(Engine).items() if inspect.iscoroutinefunction(value)}
    assert "stats_between" in given - Engine.__abstractmethods__
    assert given - wrapper.__abstractmethods__ <= vars(wrapper).keys()


def test_one_side_of_a_mirror_does_not_speak_for_both(tmp_path: Path) -> None:
    primary, replica = SQLiteEngine(tmp_path / "a.db"), Flaky(MemoryEngine())
    mirror = Mirror(primary, replica, Settings())
    assert mirror.unwrap() is None
    assert capability(mirror, SharesCommits) is capability(mirror, StoredLocally) is None
    assert capability(mirror, WritesInGenerations) is mirror
    assert capability(mirror, Mirrored) is mirror
    assert replica.fail_fast is not None
    finish(mirror.close())


@pytest.mark.parametrize("namespace", [None, "acme"])
def test_a_store_finds_the_capabilities_of_its_engine(tmp_path: Path, namespace: str | None) -> None:
    with backtrail.open("memory:", namespace=namespace) as plain:
        assert plain._core.context.mirror is plain._core.context.spool is None
    with backtrail.open(tmp_path / "a.db", replica=tmp_path / "b.db", namespace=namespace) as mirrored:
        assert isinstance(mirrored._core.context.mirror, Mirror)
        assert mirrored._core.context.spool is None
    options: dict[str, Any] = {"replica": tmp_path / "d.db", "spool": tmp_path / "spool", "namespace": namespace}
    with backtrail.open(tmp_path / "c.db", **options) as spooled:
        context = spooled._core.context
        assert context.spool is context.engine  # it names threads as the store does
        assert not context.spool.adrift
        spooled.thread("t").save({"n": 1})
        head, row = finish(context.spool.base("t"))
        assert (head, row) == finish(context.engine.tip("t"))
        assert head.thread == "t"


def test_reserved_names_are_left_out_of_listings_and_pages_stay_full(tmp_path: Path) -> None:
    engine = MemoryEngine()
    key = bytes(range(32))
    stores = [backtrail.open(engine, key=key), backtrail.open(engine, namespace="a", key=key)]
    for store in stores:
        for name in ("one", "two", "three"):
            store.thread(name).save({})
            store.rekey(key)  # the ring is the newest record now
        for newest_first, names in ((True, ["three", "two", "one"]), (False, ["one", "three", "two"])):
            assert [info.id for info in store.threads(newest_first=newest_first)] == names
            found: list[str] = []
            while page := store.threads(limit=2, after=found[-1] if found else None, newest_first=newest_first):
                assert len(page) == min(2, 3 - len(found))
                found += [info.id for info in page]
            assert found == names
        assert store.count() == store.stats()["threads"] == 3
        inner: Engine = store._core.context.engine
        assert any(is_reserved(head.thread) for head in finish(inner.threads()))
        assert finish(user_threads(inner, prefix=RESERVED)) == []
        assert finish(user_lineages(inner)) == ["one", "three", "two"]
        assert finish(user_lineages(inner, limit=1)) == ["one"]


def _race(works: list[Callable[[], object]]) -> list[BaseException]:
    raised: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        for _ in range(15):
            try:
                work()
            except Exception as error:  # noqa: BLE001  # it is what the test looks at
                raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("options", [{}, {"namespace": "a"}, {"retention": "keep_last=3"}], ids=str)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "mirror"])
def test_writers_that_race_through_the_public_api_see_public_errors_only(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    engine = MemoryEngine() if kind == "memory" else SQLiteEngine(tmp_path / "s.db", durability="normal")
    replica: dict[str, Any] = {"replica": MemoryEngine()} if kind == "mirror" else {}
    # Two stores on one engine remember different tips, as two processes do.
    first = backtrail.open(engine, **replica, **options)
    other = first if kind == "mirror" else backtrail.open(engine, **options)
    first.thread("t").save({"n": 0, "list": []})
    first.session("s").add("user", "hi")
    (tmp_path / "files").mkdir()

    def once(store: Any) -> list[Callable[[], object]]:
        thread = store.thread("t")

        def stale() -> None:
            base = thread.head
            time.sleep(0.002)  # long enough for another to write
            thread.save({"n": 1, "list": []}, expect=base)

        def rewound() -> None:
            thread.rewind(thread.history(limit=2)[0].id)

        def snapshot() -> None:
            store.workspace(tmp_path / "files", name="w").snapshot()

        def worked() -> None:
            with store.run("r") as run:
                run.checkpoint()

        def lived() -> None:
            store.thread("gone").save({"n": 1})
            store.thread("gone").delete()

        return [
            stale,
            lambda: thread.append("list", [1]),
            rewound,
            thread.fork,
            lived,
            lambda: store.session("s").add("user", "hi"),
            worked,
            snapshot,
            store.prune,
        ]

    raised = _race(once(first) + once(other))
    strange = [error for error in raised if not isinstance(error, backtrail.BacktrailError)]
    assert not strange, strange
    assert not [error for error in raised if isinstance(error, Refused)]
    assert any(isinstance(error, backtrail.Conflict) for error in raised)  # they did meet
    assert not first.verify().problems
    first.close()
