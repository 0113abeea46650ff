"""What a second look at the core found: each test is a thing that once went wrong."""

from __future__ import annotations

import dataclasses
import gc
import linecache
import sys
import uuid
import weakref
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine
from backtrail.history import caches, records

LONG = "a sentence that is long enough to be kept apart from the root; " * 8


# -- ids that callers choose -------------------------------------------------------------------------------------------


def test_an_id_whose_checkpoint_was_deleted_can_be_saved_again(store: Any) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    thread.save({"n": 0})
    thread.save({"n": 1}, id=id)
    thread.delete(str(id))
    assert thread.save({"n": 2}, id=id).id == str(id)
    assert thread.load() == thread.load(id) == {"n": 2}


def test_an_id_that_a_fork_inherited_is_there_already(store: Any) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    thread.save({"n": 1}, id=id)
    fork = thread.fork("fork")
    assert fork.save({"n": 2}, id=id) == thread.head
    assert fork.load(id) == {"n": 1}


def test_an_id_of_another_thread_of_the_lineage_is_free_for_this_one(store: Any) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    thread.save({"n": 0})
    fork = thread.fork("fork")
    thread.save({"n": 1}, id=id)
    fork.save({"n": 2}, id=id)
    assert (thread.load(id), fork.load(id)) == ({"n": 1}, {"n": 2})


@pytest.mark.parametrize("on_conflict", ["raise", "branch"])
def test_a_save_that_is_repeated_under_its_id_is_no_conflict(store: Any, on_conflict: str) -> None:
    thread, id = store.thread("t"), uuid.uuid4()
    base = thread.save({"n": 1})
    late = store.thread("t")
    late.load()
    done = thread.save({"n": 2}, id=id)
    assert late.save({"n": 2}, id=id, on_conflict=on_conflict) == done
    assert late.save({"n": 2}, id=id, expect=base, on_conflict=on_conflict) == done
    assert len(thread.history(all=True)) == 2


def test_a_prefix_is_looked_for_beyond_the_checkpoints_of_other_threads(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 0}, id="11111111-0000-4000-8000-000000000000")
    fork = thread.fork("fork")
    for n in range(1, 100):
        thread.save({"n": n}, id=f"22222222-0000-4000-8000-{n:012}")
    fork.save({"n": "mine"}, id="22222222-ffff-4000-8000-000000000000")
    assert fork.load("2222") == {"n": "mine"}
    with pytest.raises(backtrail.AmbiguousCheckpoint):
        thread.load("2222")


# -- deleting and undoing ----------------------------------------------------------------------------------------------


def test_deleting_the_first_checkpoint_keeps_what_a_rewind_left_behind(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1})
    second, third = thread.save({"n": 2}), thread.save({"n": 3})
    thread.rewind(1)
    thread.delete(1)
    assert thread.head.id == third.id
    assert [c.id for c in thread.history()] == [second.id, third.id]
    thread.delete(third)
    thread.delete(second)
    assert not thread.exists()


def test_undo_passes_over_a_move_whose_way_back_was_swept_away(opener: Any) -> None:
    store = opener()
    thread = store.thread("t")
    saved = [thread.save({"n": n}) for n in range(3)]
    thread.rewind(1)
    aside = thread.save({"n": "aside"})
    thread.rewind(saved[2])
    thread.delete(aside)
    store.prune()
    again = opener().thread("t")
    assert again.undo().id in {saved[0].id, saved[1].id}
    assert again.exists()


def test_a_lineage_may_have_more_branches_than_are_remembered(opener: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_BRANCHES", 4)
    thread = opener().thread("t")
    thread.save({"n": 0})
    for n in range(1, 12):
        thread.rewind(1)
        thread.save({"n": n})
    assert thread.load() == {"n": 11}
    assert len(thread.history(all=True)) == 12
    assert thread.load(1) == {"n": 0}
    assert thread.fork(at=1).load() == {"n": 0}


def test_a_list_may_begin_anew_as_often_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    from backtrail.encode import planner
    from backtrail.history import save

    monkeypatch.setattr(planner, "MAX_STREAMS", 8)
    monkeypatch.setattr(save, "ENOUGH_STREAMS", 4)
    thread = backtrail.open("memory:").thread("t")
    for n in range(40):
        thread.save({"scratch": [n, LONG] if n % 2 else []})
        assert thread.load() == {"scratch": [n, LONG] if n % 2 else []}
    assert [c.step for c in thread.history()] == list(range(1, 41))


def test_a_fork_made_while_the_clock_is_behind_is_no_older_than_what_it_came_from(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.thread("t")
    saved = thread.save({"n": 1})
    monkeypatch.setattr(records, "clock", lambda: 1_000_000_000)
    late = thread.save({"n": 2})
    fork = thread.fork("fork")
    forked = fork.save({"n": 3})
    assert saved.created_at < late.created_at < forked.created_at
    assert saved.id < late.id < forked.id


def test_a_checkpoint_deleted_by_its_writer_is_not_brought_back_by_a_fork_that_annotates_it() -> None:
    engine = MemoryEngine()
    thread = backtrail.open(engine).thread("t")
    first = thread.save({"n": 1})
    thread.save({"n": 2})
    thread.fork("fork").save({"n": 3})
    plain = engine.commit
    deleted: list[bool] = []

    async def commit(commit: Any) -> None:
        if commit.marks and not deleted:
            deleted.append(True)
            thread.delete(first)
        await plain(commit)

    engine.commit = commit  # type: ignore[method-assign]  # a writer that is faster, just this once
    fork = backtrail.open(engine).thread("fork")
    with pytest.raises(backtrail.CheckpointNotFound, match="deleted"):
        fork.annotate(first, label="mine")
    assert [c.step for c in thread.history()] == [2]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("key", ["\ud800", 5, None], ids=repr)
def test_a_key_that_cannot_be_one_is_named(store: Any, key: Any, wide: bool) -> None:
    thread = store.thread("t")
    state = {str(n): LONG for n in range(60)} if wide else {"a": 1}
    thread.save(state)
    for attempt in (
        lambda: thread.save({**state, key: 1}),
        lambda: thread.save(
            {**state, "deep": {"er": {**state, key: 1}, "long": LONG}} if key == "\ud800" else {key: 1}
        ),
        lambda: thread.update({key: 1}),
    ):
        with pytest.raises(backtrail.EncodeError, match=r"^state"):
            attempt()
    assert thread.step == 1
    assert thread.load() == state


@pytest.mark.parametrize("append", ["ab", ("a",), ("a", "text"), (5, [1]), 7, ("", [1])], ids=repr)
def test_an_append_beside_an_update_is_checked(store: Any, append: Any) -> None:
    thread = store.thread("t")
    thread.save({"a": [1]})
    with pytest.raises(backtrail.InvalidInput, match=r"append|key"):
        thread.update({"b": 2}, append=append)
    assert thread.load() == {"a": [1]}


def test_messages_name_the_argument_that_was_wrong(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"a": [1]}, label="x", tags=None)
    for call, name in (
        (lambda: thread.pick("a"), "keys"),
        (lambda: thread.update({}, remove="a"), "remove"),
        (lambda: thread.save({}, expect="01"), "expect"),
        (lambda: thread.save({}, parent="01"), "parent"),
        (lambda: thread.save({}, id="01"), "id"),
        (lambda: store.threads(after=5), "after"),
        (lambda: store.threads(prefix="\ud800"), "prefix"),
        (lambda: store.threads(after="\ud800"), "after"),
        (lambda: store.threads(kind=5), "kind"),
        (lambda: thread.lock(timeout=None), "timeout"),
        (lambda: thread.lock(timeout=float("nan")), "timeout"),
        (lambda: thread.lock(ttl=float("inf")), "ttl"),
        (lambda: thread.lock(ttl="long"), "ttl"),
    ):
        with pytest.raises(backtrail.InvalidInput, match=rf"^{name}\b"):
            call()


# -- interrupts --------------------------------------------------------------------------------------------------------


class Interrupt:
    """Raises KeyboardInterrupt at one of the lines of backtrail that a call runs through: the n-th."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.fired = False

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/backtrail/" not in name:
            return None
        # Python itself never stops between a lock and the block that it guards.
        if event == "line" and not linecache.getline(name, frame.f_lineno).strip().startswith("with "):
            self.left -= 1
            if not self.left:
                self.fired = True
                raise KeyboardInterrupt
        return self


BASE: dict[str, Any] = {"log": ["x" * 50] * 10, "plan": LONG}
WAYS: dict[str, Any] = {
    "append": lambda thread: thread.append("log", ["new"]),
    "save": lambda thread: thread.save({**BASE, "log": [*BASE["log"], "new"]}),
    "first": lambda thread: thread.save(BASE),
    "rewind": lambda thread: thread.rewind(1),
    "delete": lambda thread: thread.delete(2),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_anywhere_leaves_nothing_half(way: str) -> None:
    number, fired = 0, True
    while fired:
        number += 1
        thread = backtrail.open("memory:").thread("t")
        if way != "first":
            thread.save(BASE)
        if way in ("rewind", "delete"):
            thread.append("log", ["second"])
        interrupt = Interrupt(number)
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            WAYS[way](thread)
        except KeyboardInterrupt:
            fired = interrupt.fired
        else:
            fired = False
        finally:
            sys.settrace(before)
        steps = len(thread.history(all=True))
        again = thread._core.context.engine
        fresh = backtrail.open(again).thread("t")
        if fresh.exists():
            assert len(fresh.load()["log"]) == 10 + fresh.step - 1
        assert fresh.append("log", ["after"]).step == fresh.step
        assert fresh.load()["log"][-1] == "after"
        assert len(fresh.history(all=True)) == steps + 1
        assert thread.append("log", ["and on"]).step == fresh.step
        assert backtrail.open(again).verify().ok
    gc.collect()  # coroutines that were never finished go now, while nobody minds


def test_autosave_keeps_what_was_said_about_the_state_that_it_saves_at_the_end(store: Any) -> None:
    thread = store.thread("t")
    with thread.autosave(every=3) as save:
        save({"n": 1})
        save({"n": 2}, label="last")
    assert thread.load() == {"n": 2}
    assert thread.head.label == "last"


def test_a_store_that_its_own_types_know_of_is_collected(tmp_path: Path) -> None:
    """Tips remember lists with the types that encode them: nothing on that way may be hidden from the collector."""
    known: list[Any] = []

    def use(path: Path) -> weakref.ref[type]:
        @dataclasses.dataclass
        class Message:
            text: str

            def store(self) -> Any:
                return store

        store = backtrail.open(path, types=[Message], durability="normal")
        known.append(weakref.ref(store._core.context))
        store.thread("t").save({"log": [Message("a long text") for _ in range(40)]})
        store.close()
        return weakref.ref(Message)

    message = use(tmp_path / "s.db")
    gc.collect()
    assert message() is None and known[0]() is None
