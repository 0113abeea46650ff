"""Exact change detection: every change is found, and nothing unchanged is written again."""

from __future__ import annotations

import copy
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail.encode.change_detection import ListSnapshot, census, same
from backtrail.encode.record_types import Types
from backtrail.encode.values import Values


class Name(enum.StrEnum):
    RED = "red"


VALUES = Values(Types([Name]))


def remember(items: list[Any]) -> ListSnapshot:
    return ListSnapshot(items, VALUES.encode, False, VALUES.types.lookalikes)


def test_census_sees_every_type_at_any_depth() -> None:
    assert census([{"a": [1, {"b": (None, 2.0)}]}, "x"]) == {dict, list, tuple, int, float, str, type(None)}
    assert census([]) == frozenset()
    assert census([{}]) == {dict}


@pytest.mark.parametrize(
    "items",
    [[{"a": [1, {"b": (None, 2.0)}]}, "x"], [{"a": {1: "x"}}], [[({"a": {True: 1}},)]], [{"a": {2}}], [b"a", True]],
    ids=repr,
)
def test_the_few_items_of_a_save_are_sorted_into_the_same_kinds_as_the_many_of_a_load(items: list[Any]) -> None:
    saved = ListSnapshot(items, VALUES.encode, False, False)
    loaded = ListSnapshot(copy.deepcopy(items), VALUES.encode, False, False, owned=True)
    assert saved.kinds | {str} == loaded.kinds | {str}
    assert (saved.encoded, saved.items) == (loaded.encoded, loaded.items)


PAIRS = [
    (1, 1.0),
    (1, True),
    (0, False),
    (0.0, -0.0),
    ("red", Name.RED),
    ([], ()),
    (b"a", bytearray(b"a")),
    ({1}, frozenset({1})),
]


@pytest.mark.parametrize(("old", "new"), [*PAIRS, *((b, a) for a, b in PAIRS)], ids=repr)
@pytest.mark.parametrize("shape", [lambda v: v, lambda v: {"k": v}, lambda v: [["deep", {"k": [v]}]]])
def test_equal_values_of_different_types_are_told_apart(old: Any, new: Any, shape: Any) -> None:
    before, after = [shape(old), "x", {"n": 1, "f": 1.5}], [shape(new), "x", {"n": 1, "f": 1.5}]
    assert not remember(before).is_prefix_of(after)
    assert remember(before).is_prefix_of(copy.deepcopy(before))


@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if Name.RED not in pair], ids=repr)
def test_they_are_told_apart_where_no_look_alike_is_registered(old: Any, new: Any) -> None:
    values = Values(Types())
    before, after = [{"k": old}, "x"], [{"k": new}, "x"]
    for one, other in ((before, after), (after, before)):
        assert not ListSnapshot(one, values.encode, False, values.types.lookalikes).is_prefix_of(other)
        assert ListSnapshot(one, values.encode, False, values.types.lookalikes).is_prefix_of(copy.deepcopy(one))


def test_odd_keys_are_told_apart() -> None:
    assert not remember([{1: "a"}]).is_prefix_of([{True: "a"}])
    assert remember([{1: "a"}]).is_prefix_of([{1: "a"}])


def test_an_item_changed_in_place_is_seen() -> None:
    items = [{"a": {"b": [1, 2]}}, {"c": "x"}]
    memory = remember(items)
    assert memory.is_prefix_of([*items, "more"])
    items[0]["a"]["b"].append(3)
    assert not memory.is_prefix_of([*items, "more"])


LEAF = st.none() | st.booleans() | st.integers(-2, 2**65) | st.floats() | st.sampled_from(["", "a", Name.RED, b"a"])
ITEM = st.recursive(
    LEAF, lambda i: st.lists(i, max_size=3) | st.dictionaries(st.text(max_size=2), i, max_size=3), max_leaves=6
)


@given(st.lists(ITEM, max_size=8), st.lists(ITEM, max_size=4), st.lists(ITEM, max_size=8))
def test_the_answer_is_that_of_the_encodings(first: list[Any], more: list[Any], other: list[Any]) -> None:
    memory = remember(first)
    memory.extend(more)
    known = [VALUES.encode(item) for item in first + more]
    for candidate in (first + more, first + more + other, other, first, copy.deepcopy(first + more)):
        exact = [VALUES.encode(item) for item in candidate[: len(known)]] == known
        assert memory.is_prefix_of(candidate) <= exact  # never "unchanged" when it is not
        if exact and not any("nan" in repr(item) for item in candidate):
            assert memory.is_prefix_of(candidate)


@given(ITEM, ITEM)
def test_same_is_equality_of_encodings_up_to_the_order_of_keys(one: Any, other: Any) -> None:
    if same(one, other):
        assert VALUES.encode(one) == VALUES.encode(other)
    assert same(one, copy.deepcopy(one))
