"""Changing a JSON text in place: the value is what it should be, and every other character stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail.agents.install.json_text import add_item, parse, remove_item
from backtrail.errors import InvalidInput

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)
layouts = st.sampled_from([{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"indent": 4}])


@given(values, layouts)
def test_a_text_is_read_as_json_reads_it(value: Any, layout: dict[str, Any]) -> None:
    assert parse(json.dumps(value, **layout), "x").plain() == value


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), values, layouts)
def test_a_member_that_is_added_and_removed_again_leaves_the_text_as_it_was(
    value: dict[str, Any], new: Any, layout: dict[str, Any]
) -> None:
    value.pop("new", None)
    text = json.dumps(value, **layout)
    more = add_item(text, parse(text, "x"), "new", new)
    assert json.loads(more) == {**value, "new": new}
    root = parse(more, "x")
    again = remove_item(more, root, len(value))
    assert json.loads(again) == value
    assert again == text


@given(st.lists(values, min_size=1, max_size=4), st.data(), layouts)
def test_an_item_that_is_removed_takes_its_comma_with_it(
    value: list[Any], data: st.DataObject, layout: dict[str, Any]
) -> None:
    text = json.dumps(value, **layout)
    number = data.draw(st.integers(0, len(value) - 1))
    assert json.loads(remove_item(text, parse(text, "x"), number)) == value[:number] + value[number + 1 :]


def test_comments_commas_at_the_end_and_the_layout_stay() -> None:
    text = '{\n  // mine\n  "a": [1, 2,], /* and\n this */\n  "b": "x", // last\n}\n'
    assert parse(text, "x").plain() == {"a": [1, 2], "b": "x"}
    more = add_item(text, parse(text, "x"), "c", {"d": 1})
    assert (
        more == '{\n  // mine\n  "a": [1, 2,], /* and\n this */\n  "b": "x",\n  "c": {\n    "d": 1\n  }, // last\n}\n'
    )
    assert parse(more, "x").plain() == {"a": [1, 2], "b": "x", "c": {"d": 1}}


def test_a_comment_in_a_list_that_becomes_empty_stays() -> None:
    text = '{"a": [ /* mine */ 1 ]}'
    list_value = parse(text, "x").get("a")
    assert list_value is not None
    assert parse(remove_item(text, list_value, 0), "x").plain() == {"a": []}
    assert "/* mine */" in remove_item(text, list_value, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"}',
        '{"a": }',
        "[1 2]",
        "{'a': 1}",
        '{"a": 1} x',
        "nul",
        '{"a": 1, "a": 2}',
        "[" * 500,
        '"\n"',
        "{1: 2}",
        ",",
        "01x",
    ],
)
def test_what_is_not_json_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"settings\.json is not JSON at line 1"):
        parse(text, "settings.json")
