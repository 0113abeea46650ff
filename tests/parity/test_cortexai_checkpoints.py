"""S2, cortexai: each operation of its checkpoint store, and the traps it had."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

import backtrail


@dataclasses.dataclass
class AgentState:
    messages: list[dict[str, str]]
    step_name: str = "start"


def test_metadata_has_every_field_and_times_are_finer_than_seconds(store: Any) -> None:
    thread = store.thread("t")
    parent = thread.save({"n": 0})
    saved = thread.save({"n": 1}, label="l", tags=["a"], custom={"k": "v"})
    assert (saved.thread_id, saved.parent_id, saved.step) == ("t", parent.id, 2)
    assert (saved.label, saved.tags, saved.custom) == ("l", ("a",), {"k": "v"})
    assert saved.size > 0
    assert saved.created_at > parent.created_at
    assert saved.created_at - parent.created_at < dt.timedelta(minutes=1)


def test_the_step_counter_survives_a_restart(opener: Any) -> None:
    opener().thread("t").save({"n": 1})
    again = opener().thread("t")
    assert again.step == 1
    assert again.save({"n": 2}).step == 2


def test_typed_state_comes_back_as_its_type(store: Any) -> None:
    thread = store.thread("t", type=AgentState)
    thread.save(AgentState([{"role": "user"}], "plan"))
    assert thread.load() == AgentState([{"role": "user"}], "plan")
    assert store.thread("t").load(as_=AgentState) == AgentState([{"role": "user"}], "plan")


def test_save_load_load_latest_list_delete_count_and_list_threads(store: Any) -> None:
    thread = store.thread("t")
    first, second = thread.save({"n": 1}), thread.save({"n": 2})
    store.thread("u").save({"n": 3})
    assert thread.load(first.id) == {"n": 1}
    assert thread.load() == {"n": 2}
    assert [c.id for c in thread.history()] == [first.id, second.id]
    assert [info.id for info in store.threads()] == ["t", "u"]
    assert store.threads()[0].count == 2
    thread.delete(first)
    assert [c.id for c in thread.history()] == [second.id]
    store.thread("u").delete()
    assert [info.id for info in store.threads()] == ["t"]


def test_a_thread_without_checkpoints_is_not_listed(store: Any) -> None:
    thread = store.thread("t")
    ids = [thread.save({"n": n}).id for n in range(3)]
    for id in ids:
        thread.delete(id)
    assert store.threads() == []
    assert store.count() == 0


def test_history_is_oldest_first(store: Any) -> None:
    thread = store.thread("t")
    assert [thread.save({"n": n}).step for n in range(4)] == [c.step for c in thread.history()] == [1, 2, 3, 4]


def test_save_with_label_tags_and_custom_keeps_all_three(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1}, label="before tools", tags=["safe", "tested"], custom={"cost": 0.5})
    found = thread.find(tag="tested")
    assert thread.find(label="before tools") == found
    assert (found[0].label, found[0].tags, found[0].custom) == ("before tools", ("safe", "tested"), {"cost": 0.5})


def test_a_fork_keeps_its_lineage(store: Any) -> None:
    thread = store.thread("t")
    points = [thread.save({"n": n}) for n in range(3)]
    fork = thread.fork("what-if", at=points[1])
    first = fork.save({"n": "other"})
    assert first.parent_id == points[1].id
    assert [c.id for c in fork.history()] == [points[0].id, points[1].id, first.id]


def test_rewind_destroys_nothing(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(4)]
    thread.rewind(saved[1])
    assert thread.step == 2
    assert thread.load() == {"n": 1}
    assert thread.load(saved[3]) == {"n": 3}
    assert thread.undo() == saved[3]


def test_deleting_leaves_no_dangling_parent(store: Any) -> None:
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(4)]
    thread.delete(saved[0])
    thread.delete(saved[2])
    ids = {c.id for c in thread.history()}
    assert all(c.parent_id is None or c.parent_id in ids for c in thread.history())


def test_auto_checkpoint_interval_is_read(store: Any) -> None:
    thread = store.thread("t")
    auto = thread.autosave(every=5)
    saved = [auto({"n": n}) for n in range(12)]
    assert [c.step for c in saved if c is not None] == [1, 2]
    auto.flush()
    assert thread.load() == {"n": 11}


def test_compression_makes_the_store_smaller(opener: Any) -> None:
    text = "the same words again and again " * 300
    plain = opener().thread("plain").save({"text": text, "more": text * 10})
    packed = opener(compression="zstd").thread("packed").save({"text": text, "more": text * 10})
    assert packed.written < plain.written / 5


def test_errors_have_their_own_types(store: Any) -> None:
    thread = store.thread("t")
    with pytest.raises(backtrail.ThreadNotFound):
        thread.load()
    with pytest.raises(backtrail.EncodeError):
        thread.save({"f": object()})
    thread.save({"n": 1})
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.load("00000000")
    with pytest.raises(backtrail.InvalidInput):
        thread.save("not a state")
