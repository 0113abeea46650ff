"""Prune, verify, copy, compact, keys and the janitor on every engine, sync and async."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail import Retention
from backtrail.errors import InvalidInput, UnsupportedFormat
from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
STRICT = Retention(keep_last=2, undo_window=dt.timedelta(0), keep_labelled=False)


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)


def live(store: Any) -> None:
    thread = store.thread("t")
    for n in range(70):
        thread.append("messages", [{"n": n, "text": f"message {n} of a long talk " * 12}])
    thread.update({"paper": "long " * 20_000, "wide": {f"key {n}": f"value {n} " * 20 for n in range(80)}}, label="x")
    fork = thread.fork("fork", at=30)
    fork.append("messages", [{"n": "fork"}])
    thread.rewind(60)
    thread.append("messages", [{"n": "rewound", "text": "y" * 300}])
    store.session("chat").add("user", "hello")


def states(store: Any) -> dict[str, Any]:
    return {info.id: store.thread(info.id).load() for info in store.threads()}


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"key": KEY, "compression": "zstd"}])
def test_a_store_is_pruned_verified_copied_and_compacted(
    anywhere: Opener, options: dict[str, Any], tmp_path: Path
) -> None:
    store = anywhere(**options)
    live(store)
    before = states(store)
    assert store.verify().ok
    told = store.prune(STRICT, dry_run=True)
    report = store.prune(STRICT)
    assert (report.checkpoints, report.bytes) == (told.checkpoints, told.bytes)
    assert report.checkpoints > 60
    assert len(store.thread("t").history(all=True)) <= 5
    assert states(store) == before
    checked = store.verify()
    assert checked.ok, str(checked)
    store.compact()
    assert store.stats()["garbage"] == 0
    assert states(store) == before
    copy = str(tmp_path / "copy.db")
    store.copy_to(copy, durability="normal")
    with backtrail.open(copy) as there:
        assert states(there) == before
    store.thread("t").delete()
    store.thread("fork").delete()
    store.thread("chat").delete()
    assert store.count() == 0
    assert store.stats(survey=False)["rows"] == 0


def test_a_store_can_be_rekeyed_and_lists_its_namespaces(anywhere: Opener) -> None:
    one, two = anywhere(namespace="one", key=KEY), anywhere(namespace="two")
    for store, name in ((one, "one"), (two, "two")):
        store.thread("same").save({"mark": name})
    assert [store.thread("same").load()["mark"] for store in (one, two)] == ["one", "two"]
    assert [store.count() for store in (one, two, anywhere())] == [1, 1, 0]
    assert anywhere().namespaces() == ["one", "two"]
    one.rekey(OTHER)
    assert anywhere(namespace="one", key=OTHER).thread("same").load() == {"mark": "one"}
    with pytest.raises(InvalidInput, match="wrong key"):
        anywhere(namespace="one", key=KEY)
    with pytest.raises(UnsupportedFormat):
        anywhere(namespace="one")


def test_saves_apply_keep_last_and_the_janitor_prunes(anywhere: Opener) -> None:
    store = anywhere(retention=Retention(keep_last=3))
    thread = store.thread("t")
    for n in range(10):
        thread.save({"n": n})
    assert [thread.load(c)["n"] for c in thread.history()] == [7, 8, 9]
    janitor = store.janitor(every=3600)
    janitor.start()
    janitor.stop()
    assert not janitor.status.running
    assert store.verify().ok
