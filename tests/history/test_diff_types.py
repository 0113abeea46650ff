"""A diff shows that a state became another record type, or stopped being one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import backtrail
from backtrail.engines.memory import MemoryEngine
from backtrail.history import diff


@dataclasses.dataclass
class Plan:
    goal: str
    done: list[str]


@dataclasses.dataclass
class Task:
    goal: str
    done: list[str]


def changes(thread: Any, a: int, b: int) -> list[tuple[Any, ...]]:
    return [(change.path, change.kind, change.old, change.new) for change in thread.diff(a, b).changes]


def test_a_state_that_became_another_type_shows_it_beside_what_else_changed() -> None:
    thread: Any = backtrail.open("memory:", types=[Plan, Task]).thread("t")
    thread.save({"goal": "tea", "done": ["water"]})
    thread.save(Plan("tea", ["water"]))
    thread.save(Task("tea", ["water", "leaves"]))
    thread.save({"goal": "tea", "done": ["water", "leaves"]})
    assert changes(thread, 1, 2) == [("(type)", "changed", "dict", "Plan")]
    assert changes(thread, 2, 3) == [("(type)", "changed", "Plan", "Task"), ("done[1]", "added", None, "leaves")]
    assert changes(thread, 3, 4) == [("(type)", "changed", "Task", "dict")]
    assert not thread.diff(2, 2)
    assert "~ (type): 'dict' -> 'Plan'" in str(thread.diff(1, 2))


def test_a_key_named_like_the_type_change_is_told_apart() -> None:
    thread = backtrail.open("memory:").thread("t")
    thread.save({"(type)": 1})
    thread.save({"(type)": 2})
    assert changes(thread, 1, 2) == [('["(type)"]', "changed", 1, 2)]


def test_a_store_without_the_types_registered_shows_the_change_too() -> None:
    engine = MemoryEngine()
    with_types: Any = backtrail.open(engine, types=[Plan, Task]).thread("t")
    with_types.save(Plan("tea", []))
    with_types.save(Task("tea", []))
    without = backtrail.open(engine).thread("t")
    assert changes(without, 1, 2) == changes(with_types, 1, 2)


_NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 1) | st.sampled_from(["", "a", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("abc"), inner)
        | st.dictionaries(st.integers(0, 2), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=_NESTED, new=_NESTED)
def test_what_lies_deep_is_compared_as_what_does_not(monkeypatch: pytest.MonkeyPatch, old: Any, new: Any) -> None:
    found = []
    for levels in (0, 1, 100):
        monkeypatch.setattr(diff, "_ENCODED_LEVELS", levels)
        with backtrail.open("memory:") as store:
            thread = store.thread("t")
            thread.save({"v": {"w": old}})
            thread.save({"v": {"w": new}})
            found.append(str(thread.diff(1, 2)).splitlines()[1:])
    assert found[0] == found[1] == found[2]
