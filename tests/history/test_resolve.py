"""Names of checkpoints: the head, steps, labels, starts of ids; the same in every call, on every engine."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine

NAMES = [
    ("@", 6),
    ("@~2", 4),
    ("@~", 5),
    ("~3", 3),
    ("@~1~2", 3),
    ("4", 4),
    (4, 4),
    ("4~1", 3),
    (-1, 6),
    (-6, 1),
    ("-2", 5),
    ("good", 3),
    ("good~2", 1),
    ("odd~name", 5),
]


@pytest.fixture
def thread(store: Any) -> Any:
    return filled(store)


def filled(store: Any) -> Any:
    """A thread of six steps: the third is labelled `good`, the fifth `odd~name`."""
    thread = store.thread("t")
    for n in range(1, 7):
        thread.save({"n": n}, label={3: "good", 5: "odd~name"}.get(n))
    return thread


@pytest.mark.parametrize(("name", "step"), NAMES, ids=str)
def test_a_name_finds_its_checkpoint(thread: Any, name: Any, step: int) -> None:
    assert thread.get(name).step == step


def test_every_call_takes_every_kind_of_name(everywhere: Any) -> None:
    thread = filled(everywhere)
    third = thread.get(3)
    for number, name in enumerate(["good", "@~3", -4, 3, "3", third, third.id, uuid.UUID(third.id), third.id[:-1]]):
        assert thread.load(name) == {"n": 3}
        assert thread.pick(["n"], name) == {"n": 3}
        assert thread.outline(at=name).count == 1
        assert (thread.diff(name, "@~1").a.step, thread.diff(1, name).b.step) == (3, 3)
        assert thread.fork(f"at-{number}", at=name).step == 3
        assert thread.annotate(name, tags=[f"seen-{number}"]).step == 3
        assert everywhere.session("t").messages(at=name) == []
        assert everywhere.session("t").fork(f"session-{number}", at=name).thread.step == 3
        other = thread.fork(f"other-{number}")
        with pytest.raises(backtrail.Conflict):
            other.save({"n": 0}, expect=name)
        assert other.save({"n": "beside"}, parent=name).parent_id == third.id
        other = thread.fork(f"rewound-{number}")
        assert other.rewind(name).id == third.id
        assert other.save({"n": 4}, expect="@").step == 4


@pytest.mark.parametrize("name", ["good", "@~3", -4, 3])
def test_a_checkpoint_is_deleted_by_any_name(thread: Any, name: Any) -> None:
    third = thread.get(3).id
    thread.delete(name)
    assert third not in [c.id for c in thread.history()]


def test_the_names_of_a_forks_inherited_history_work_too(thread: Any) -> None:
    fork = thread.fork("fork", at="odd~name")
    fork.save({"n": "fork"})
    assert [fork.get(name).step for name in ("good", "@~1", -2, 2)] == [3, 5, 5, 2]


@pytest.mark.parametrize("label", ["v1~2", "good~1", "abc~2", "~x", "a~b~1"])
def test_a_label_that_looks_like_a_way_back_is_found_first(thread: Any, label: str) -> None:
    thread.annotate(5, label=label)
    assert thread.get(label).step == 5
    assert thread.get(f"{label}~1").step == 4


@pytest.mark.parametrize("label", ["@~2", "~1", "12~1", "2~1"])
def test_a_label_cannot_replace_the_head_or_a_step(thread: Any, label: str) -> None:
    thread.annotate(5, label=label)
    assert thread.get("@~2").step == 4
    assert thread.get("2~1").step == 1


def test_no_name_costs_a_walk_through_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    with backtrail.open(engine) as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for n in range(3000):
            thread.append("items", [n], label="old" if n == 4 else None)
        read: list[int] = []
        plain = engine.steps

        async def counting(*args: Any, **options: Any) -> Any:
            found = await plain(*args, **options)
            read.append(len(found))
            return found

        monkeypatch.setattr(engine, "steps", counting)
        for name in ("@", "@~2", -3, 7, "7", "7~1", thread.get(9).id, thread.get(9).id[:-2], "old", "old~2"):
            read.clear()
            thread.get(name)
            assert sum(read) < 20, name


def test_deleted_checkpoints_are_not_counted(thread: Any) -> None:
    thread.delete(5)
    assert [thread.get(name).step for name in ("@~1", -2, "@~2", "6~1")] == [4, 4, 3, 4]


def test_a_label_on_an_abandoned_checkpoint_still_works(thread: Any) -> None:
    thread.rewind(1)
    assert thread.get("good").step == 3
    assert thread.get("good~1").step == 2


def test_a_label_in_the_history_hides_the_same_one_on_an_abandoned_checkpoint(thread: Any) -> None:
    thread.rewind(1)
    again = thread.save({"n": "again"}, label="good")
    assert thread.get("good") == again
    thread.undo()
    thread.undo()
    assert thread.get("good").step == 3


def test_a_label_used_twice_is_ambiguous_and_the_error_lists_the_candidates(thread: Any) -> None:
    thread.annotate(5, label="good")
    for call in (thread.load, thread.get, thread.rewind, thread.delete, thread.diff, thread.annotate):
        with pytest.raises(backtrail.AmbiguousCheckpoint, match="several have this label") as caught:
            call("good")
        assert caught.value.steps == [5, 3]
        assert caught.value.matches == [thread.get(5).id, thread.get(3).id]
        assert all(id in str(caught.value) for id in caught.value.matches)
    assert thread.step == 6


def test_a_number_is_a_step_even_if_a_label_looks_like_it(thread: Any) -> None:
    thread.annotate(5, label="2")
    assert thread.get("2").step == 2
    labelled = thread.annotate(5, label="12")
    with pytest.raises(backtrail.CheckpointNotFound, match="a number names a step; the label '12'") as caught:
        thread.get("12")
    assert labelled.id in str(caught.value)
    assert thread.get(thread.find(label="12")[0]).step == 5


def test_the_start_of_an_id_wins_over_a_label_of_eight_digits_and_a_short_label_over_ids(store: Any) -> None:
    thread = store.thread("t")
    chosen = thread.save({"n": 1}, id="abcdef12-0000-4000-8000-000000000001")
    other = thread.save({"n": 2}, label="abcdef12")
    assert thread.get("abcdef12") == chosen
    with pytest.raises(backtrail.CheckpointNotFound, match="nothing comes before it"):
        thread.get("abcdef12~1")
    named = thread.annotate(other, label="abcdef")
    assert thread.get("abcdef") == named
    assert thread.annotate(other, label="deadbeef") == thread.get("deadbeef")
    assert thread.annotate(other, label="2026-11-17") == thread.get("2026-11-17")
    assert thread.get("abcde") == chosen


@pytest.mark.parametrize(
    "name",
    [
        "@~6",
        -7,
        "-7",
        "good~9",
        "99",
        0,
        "0",
        "no-such-label",
        "0123456789abcdef",
        "…",
        "",
        "~" * 5000,
        "@@",
        "a" * 9999,
    ],
)
def test_a_name_of_nothing_is_an_error_that_changes_nothing(thread: Any, name: Any) -> None:
    for call in (thread.get, thread.load, thread.rewind, thread.delete, lambda at: thread.fork(at=at)):
        with pytest.raises(backtrail.CheckpointNotFound) as caught:
            call(name)
        assert len(str(caught.value)) < 400
    assert thread.step == 6


@pytest.mark.parametrize("name", [3.0, True, b"id", None, ["@"], {"id": 1}])
def test_something_that_names_nothing_is_refused(thread: Any, name: Any) -> None:
    with pytest.raises(backtrail.InvalidInput, match="at must be a Checkpoint"):
        thread.get(name)


@pytest.mark.parametrize("name", ["@", "label", 3, -1])
def test_a_thread_that_does_not_exist_is_named(store: Any, name: Any) -> None:
    thread = store.thread("missing")
    for call in (thread.get, thread.load, thread.rewind, lambda at: thread.save({}, expect=at)):
        with pytest.raises(backtrail.ThreadNotFound, match="missing"):
            call(name)
