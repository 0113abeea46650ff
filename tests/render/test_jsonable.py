"""Values as JSON and back: exact, and never confused with each other."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backtrail import InvalidInput, Unregistered
from backtrail.render.jsonable import from_json, json_bytes, short_text, to_json, truncate

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.times().map(lambda time: time.replace(fold=0))  # ISO 8601 cannot express it
    | st.datetimes(timezones=st.just(dt.UTC)).map(lambda moment: moment.replace(fold=0))
)
_KEYS = st.text() | st.integers() | st.booleans() | st.tuples(st.integers())
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner) | st.dictionaries(_KEYS, inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other work may share the machine
@given(_VALUES)
def test_every_value_comes_back_from_its_json_as_it_was(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(value))))
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2, 3},
        frozenset({"a"}),
        bytearray(b"x"),
        dt.timedelta(seconds=1.5),
        uuid.UUID(int=7),
        decimal.Decimal("1.10"),
        Unregistered("Plan", {"step": 1}),
        {"$bytes": "not really"},
        {"$type": "x", "value": 1},
        2**70,
        math.inf,
    ],
)
def test_a_value_that_json_cannot_express_comes_back_too(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(value))))
    assert back == value
    assert type(back) is type(value)


def test_not_a_number_comes_back_as_not_a_number() -> None:
    assert math.isnan(from_json(to_json(math.nan)))


@pytest.mark.parametrize(
    "value", [{"$nope": 1}, {"$bytes": "%%"}, {"$uuid": "x"}, {"$map": [1]}, {"$int": "1", "b": 2}]
)
def test_a_tag_that_backtrail_never_writes_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        from_json(value)


def test_long_texts_and_lists_are_truncated_and_marked() -> None:
    assert truncate("x" * 10, 4) == {"$cut": "xxxx", "size": 10}
    assert len(truncate(list(range(500)), 10)) == 201
    assert truncate({"a": "short"}, 10) == {"a": "short"}


def test_a_short_text_is_one_line() -> None:
    assert short_text({"a": [1, "two\nlines"], "b": b"123"}) == "{a: [1, two lines], b: 3 bytes}"
    assert len(short_text("x" * 500, 60)) == 60


def test_a_file_name_that_is_not_utf8_can_be_encoded() -> None:
    for value in ({"path": "bad\udcff.txt"}, {"path": "ünïcödé 🎉", "n": [1, 2.5, None, True]}):
        assert json.loads(json_bytes(value)) == value
