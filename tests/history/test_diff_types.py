"""A diff shows that a state became another record type, or stopped being one."""

from __future__ import annotations

import dataclasses
from typing import Any

import backtrail
from backtrail.engines.memory import MemoryEngine


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
