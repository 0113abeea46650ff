"""The first save after a load reads nothing: the load has cached the tip. Counted in calls of the engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import backtrail

READS = ("tip", "head", "heads", "row", "rows", "steps", "payloads", "locate", "blobs", "branches")


def count_reads(store: backtrail.Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the engine's reads from now on."""
    engine, reads = store._core.context.engine, list[str]()

    def counting(name: str, read: Any, *args: Any, **options: Any) -> Any:
        reads.append(name)
        return read(*args, **options)

    for name in READS:
        monkeypatch.setattr(engine, name, partial(counting, name, getattr(engine, name)))
    return reads


@pytest.mark.parametrize("name", ["s.db", "s.jsonl"])
@pytest.mark.parametrize("at_the_head", [False, True])
def test_an_append_after_a_load_reads_nothing(
    name: str, at_the_head: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backtrail.open(tmp_path / name, durability="normal") as store:
        saved = store.thread("t").save({"log": [{"n": n} for n in range(50)], "nested": {"a": {"b": 1}}})
    with backtrail.open(tmp_path / name, durability="normal") as store:
        thread = store.thread("t")
        thread.load(at=saved.id if at_the_head else None)
        reads = count_reads(store, monkeypatch)
        thread.append("log", [{"n": 50}])
        assert reads == []
        assert thread.load()["log"] == [{"n": n} for n in range(51)]


def test_a_load_of_an_older_checkpoint_or_of_a_tree_on_pages_leaves_the_tip_to_the_save(tmp_path: Path) -> None:
    heavy = {"outer": {f"key {n}": {"text": "x" * 300, "n": n} for n in range(2000)}, "log": [1]}
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        first = store.thread("t").save({"log": [0]})
        store.thread("t").save(heavy)
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        thread = store.thread("t")
        assert thread.load(at=first.id) == {"log": [0]}
        assert thread.load() == heavy
        thread.append("log", [2])
        assert thread.load() == {**heavy, "log": [1, 2]}


def test_a_save_after_a_load_that_another_process_overtook_is_refused(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        store.thread("t").save({"log": [1]})
    with (
        backtrail.open(tmp_path / "s.db", durability="normal") as store,
        backtrail.open(tmp_path / "s.db", durability="normal") as other,
    ):
        thread = store.thread("t")
        thread.load()
        other.thread("t").append("log", [2])
        with pytest.raises(backtrail.Conflict):
            thread.save({"log": ["mine"]})
        assert thread.append("log", [3]).step == 3
        assert thread.load() == {"log": [1, 2, 3]}
