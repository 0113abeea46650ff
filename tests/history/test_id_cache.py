"""Ids that callers choose are cached, so that no save has to search its whole thread."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish


def chosen(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, store: Any) -> list[str]:
    """The lineages that were looked through."""
    looked: list[str] = []
    engine = store._core.context.engine
    locate = engine.locate

    async def count(lineage: str, *rest: Any) -> Any:
        looked.append(lineage)
        return await locate(lineage, *rest)

    monkeypatch.setattr(engine, "locate", count)
    return looked


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        yield store


def test_a_thread_whose_ids_are_chosen_is_looked_through_only_at_first(store: Any, counted: list[str]) -> None:
    thread = store.thread("t")
    for number in range(50):
        thread.append("log", [number], id=chosen(number))
    assert len(counted) <= 2
    for number in range(50):
        assert thread.get(chosen(number)).step == number + 1
        assert thread.append("log", ["again"], id=chosen(number)).step == number + 1
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.load(at=chosen(99))
    assert len(counted) <= 2
    assert thread.load() == {"log": list(range(50))}


def test_an_id_is_not_searched_for_in_the_history_if_all_ids_are_cached(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.thread("t")
    for number in range(50):
        thread.append("log", [number], id=chosen(number))
    read: list[int] = []
    engine = store._core.context.engine
    steps = engine.steps

    async def count(*what: Any, **how: Any) -> Any:
        read.append(1)
        return await steps(*what, **how)

    monkeypatch.setattr(engine, "steps", count)
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.get(chosen(99))
    assert not read
    assert thread.get(chosen(7)).step == 8
    assert len(read) <= 2


def test_an_id_that_another_process_saved_is_still_a_repetition(store: Any, tmp_path: Path) -> None:
    thread = store.thread("t")
    for number in range(5):
        thread.append("log", [number], id=chosen(number))
    with backtrail.open(tmp_path / "s.db", durability="normal") as other:
        other.thread("t").append("log", ["theirs"], id=chosen(7))
        assert thread.append("log", ["ours"], id=chosen(7)).step == 6
        assert thread.load(at=chosen(7)) == thread.load() == {"log": [0, 1, 2, 3, 4, "theirs"]}
        assert thread.append("log", ["ours"], id=chosen(8)).step == 7
        assert other.thread("t").load(at=chosen(8))["log"][-1] == "ours"


def test_an_id_that_was_deleted_may_be_used_again(store: Any) -> None:
    thread = store.thread("t")
    for number in range(5):
        thread.append("log", [number], id=chosen(number))
    thread.delete(chosen(2))
    with pytest.raises(backtrail.CheckpointNotFound, match="deleted"):
        thread.load(at=chosen(2))
    assert thread.append("log", ["anew"], id=chosen(2)).step == 6
    assert thread.load(at=chosen(2))["log"][-1] == "anew"


def test_ids_that_a_prune_took_are_not_found_any_more(store: Any) -> None:
    thread = store.thread("t")
    for number in range(20):
        thread.append("log", [number], id=chosen(number))
    store.prune(backtrail.Retention(keep_last=3))
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.load(at=chosen(4))
    assert thread.load(at=chosen(18))["log"][-1] == 18
    assert thread.append("log", ["again"], id=chosen(19)).step == 20
    assert thread.append("log", ["new"], id=chosen(4)).step == 21


def test_a_fork_knows_what_it_inherited_and_what_its_parent_did_later_is_not_its_own(store: Any) -> None:
    thread = store.thread("t")
    for number in range(5):
        thread.append("log", [number], id=chosen(number))
    fork = thread.fork("f", at=chosen(2))
    for number in range(10, 14):
        fork.append("log", [number], id=chosen(number))
    assert fork.append("log", ["again"], id=chosen(1)).step == 2
    for number in range(20, 24):
        thread.append("log", [number], id=chosen(number))
    with pytest.raises(backtrail.CheckpointNotFound):
        fork.load(at=chosen(21))
    assert fork.append("log", ["own"], id=chosen(21)).step == 8
    assert fork.load(at=chosen(21))["log"] == [0, 1, 2, 10, 11, 12, 13, "own"]


def test_a_caller_who_is_behind_does_not_make_those_in_front_forget(store: Any, counted: list[str]) -> None:
    thread = store.thread("t")
    for number in range(5):
        thread.append("log", [number], id=chosen(number))
    context = store._core.context
    behind = finish(context.engine.head("t"))
    thread.append("log", [5], id=chosen(5))
    before = len(counted)
    finish(context.caches.ids.positions(context.engine, behind, uuid.UUID(chosen(9)).bytes))
    assert len(counted) == before + 1, "it gets the engine's word"
    for number in range(6, 20):
        thread.append("log", [number], id=chosen(number))
    assert len(counted) == before + 1


def test_a_thread_that_was_deleted_and_made_anew_has_new_ids(store: Any, counted: list[str]) -> None:
    thread = store.thread("t")
    for number in range(10):
        thread.append("log", [number], id=chosen(number))
    store.thread("t").delete()
    again = store.thread("t")
    for number in range(10):
        assert again.append("log", [number], id=chosen(number)).step == number + 1
    assert again.load() == {"log": list(range(10))}
    assert len(counted) <= 5


def test_a_repetition_is_none_after_another_process_deleted_the_thread(store: Any, tmp_path: Path) -> None:
    """The rows of a deleted fork stay until they are swept: they must not pass for what a save has done."""
    store.thread("t").save({"log": []})
    fork = store.thread("t").fork("fork")
    for number in range(3):
        fork.append("log", [number], id=chosen(number))
    with backtrail.open(tmp_path / "s.db", durability="normal") as other:
        other.thread("fork").delete()
        fork.append("log", ["anew"], id=chosen(2))
        assert other.thread("fork").load() == fork.load() == {"log": ["anew"]}


def test_a_checkpoint_that_was_fetched_before_its_save_told_of_it_is_there_once(store: Any, tmp_path: Path) -> None:
    thread, context = store.thread("t"), store._core.context
    thread.save({"log": []})
    before = finish(context.engine.head("t"))
    finish(context.caches.ids.positions(context.engine, before, bytes(16)))
    with backtrail.open(tmp_path / "s.db", durability="normal") as other:  # stands for a save that has just committed
        saved = other.thread("t").append("log", [1], id=chosen(1))
    finish(context.caches.ids.positions(context.engine, before, b"\1" * 16))
    now = finish(context.engine.head("t"))
    context.caches.ids.saved(before, now, uuid.UUID(saved.id).bytes, (now.branch, now.step))
    thread.append("log", [2])
    assert thread.get(chosen(1)) == saved


def test_an_id_that_was_looked_for_in_vain_is_not_looked_for_again_by_its_save(store: Any, counted: list[str]) -> None:
    thread = store.thread("t")
    thread.save({"log": []})
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.get(chosen(1))
    before = len(counted)
    saved = thread.append("log", [1], id=chosen(1))
    assert len(counted) == before
    assert thread.append("log", ["again"], id=chosen(1)) == saved
    assert thread.load() == {"log": [1]}


def test_an_id_that_was_looked_for_in_vain_is_found_once_another_process_saved_it(store: Any, tmp_path: Path) -> None:
    thread = store.thread("t")
    thread.save({"log": []})
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.get(chosen(1))
    with backtrail.open(tmp_path / "s.db", durability="normal") as other:
        theirs = other.thread("t").append("log", ["theirs"], id=chosen(1))
    assert thread.append("log", ["ours"], id=chosen(1)) == theirs
    assert thread.load() == {"log": ["theirs"]}
