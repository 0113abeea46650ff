"""Values are decoded with the types they were encoded with, or are refused with an error that names them."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import sys
import uuid
import zoneinfo
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backtrail
from backtrail.encode import values
from backtrail.encode.record_types import Types
from backtrail.encode.values import Values
from backtrail.engines.memory import MemoryEngine
from backtrail.errors import Corrupt, EncodeError, InvalidInput


@dataclasses.dataclass
class Plan:
    goal: str
    steps: list[str] = dataclasses.field(default_factory=list)
    owner: Any = None


class Model(pydantic.BaseModel):
    name: str
    plan: Any = None


class Record(msgspec.Struct):
    n: int
    other: Any = None


@attrs.define
class Attrs:
    x: int
    y: Any = attrs.field(factory=list)


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


VALUES = Values(Types([Plan, Model, Record, Attrs, Point, Colour, Level]))


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)


EXAMPLES = [
    None,
    True,
    1,
    1.0,
    -(2**63),
    2**64 - 1,
    2**64,
    -(2**100),
    float("inf"),
    "text 🧵",
    b"\x00\xff",
    bytearray(b"ab"),
    [],
    (),
    (1, (2, [3])),
    {1, 2},
    frozenset({"a"}),
    {1: "int", 0: "zero"},
    {True: "bool"},
    {(1, 2): "tuple key", b"k": 1, None: 2, 1.5: 3},
    dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    dt.date(2026, 1, 2),
    dt.time(3, 4, 5),
    dt.timedelta(days=-1, microseconds=3),
    uuid.UUID(int=5),
    decimal.Decimal("1.10"),
    Plan("g", ["a"], Plan("inner")),
    Model(name="m", plan=Plan("p")),
    Record(1, {"a": (1,)}),
    Attrs(1, [Point(1, 2)]),
    Point(3, 4),
    Colour.RED,
    Level.HIGH,
]


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: f"{type(value).__name__}-{str(value)[:20]}")
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    for shape in (value, [value], {"key": value}, {"deep": [{"key": (value,)}]}):
        assert same(VALUES.decode(VALUES.encode(shape)), shape)


def test_a_zone_keeps_its_name_and_its_fold() -> None:
    zoned = dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    back = VALUES.decode(VALUES.encode(zoned))
    assert (back.tzinfo, back.fold, back.utcoffset()) == (zoned.tzinfo, 1, dt.timedelta(hours=1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner) | st.sets(st.integers())
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_value_comes_back_exactly(value: Any) -> None:
    data = VALUES.encode(value)
    assert same(VALUES.decode(data), value)
    assert VALUES.encode(VALUES.decode(data)) == data


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    refusal = ""
    try:
        VALUES.decode(data, "row 7")
    except (Corrupt, EncodeError) as error:
        refusal = str(error)
    assert not refusal or "row 7" in refusal or "registered type refused" in refusal


class Foreign:
    pass


@pytest.mark.parametrize(
    ("state", "path", "reason"),
    [
        ({"plan": [1, 2, 3, Plan("x", owner=Foreign())]}, 'state["plan"][3].owner', "not registered"),
        ({"a": {"b": (1, Foreign())}}, 'state["a"]["b"][1]', "convert it"),
        ({"a": {float("nan"): 1}}, 'state["a"][nan]', "not equal to itself"),
        ({"a": {Foreign: 1}}, 'state["a"]', "has no encoding"),
        ({"a": 1j}, 'state["a"]', "complex"),
        ({"a": {"b": lambda: 0}}, 'state["a"]["b"]', "function"),
    ],
)
def test_what_has_no_encoding_is_named_by_its_path(state: Any, path: str, reason: str) -> None:
    store = backtrail.open("memory:", types=[Plan])
    with pytest.raises(EncodeError) as caught:
        store.thread("t").save(state)
    assert caught.value.path.startswith(path)
    assert reason in str(caught.value)
    assert not store.thread("t").exists()


def test_a_cycle_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    items: list[Any] = []
    items.append(items)
    for state in (loop, {"items": items}, {"a": {"b": items}}):
        with pytest.raises(EncodeError, match="contains itself"):
            backtrail.open("memory:").thread("t").save(state)


def test_200_levels_are_too_deep_and_120_are_not() -> None:
    def nest(levels: int) -> Any:
        value: Any = 1
        for i in range(levels):
            value = [value] if i % 2 else {"k": value}
        return value

    thread = backtrail.open("memory:").thread("t")
    with pytest.raises(EncodeError, match="more than 128 levels"):
        thread.save({"deep": nest(200)})
    thread.save({"deep": nest(120)})
    assert thread.load() == {"deep": nest(120)}


def test_a_string_of_200_mb_is_refused_and_nothing_is_written() -> None:
    thread = backtrail.open("memory:").thread("t")
    huge = "x" * 200_000_000
    for state in ({"text": huge}, {"list": [huge]}, {"deep": {"er": {"text": huge}}}):
        with pytest.raises(EncodeError, match="128 MiB"):
            thread.save(state)
    assert not thread.exists()


def test_an_unknown_type_loads_as_a_value_that_says_what_it_was() -> None:
    from backtrail.engines.memory import MemoryEngine

    engine = MemoryEngine()
    backtrail.open(engine, types=[Plan, Colour]).thread("t").save({"plan": Plan("g"), "colour": Colour.RED})
    stranger = backtrail.open(engine).thread("t")
    state = stranger.load()
    assert state["plan"] == backtrail.Unregistered("Plan", {"goal": "g", "steps": [], "owner": None})
    assert state["colour"] == backtrail.Unregistered("Colour", {"value": "red"})
    stranger.save({**state, "more": 1})
    assert backtrail.open(engine, types=[Plan, Colour]).thread("t").load() == {
        "plan": Plan("g"),
        "colour": Colour.RED,
        "more": 1,
    }


def test_loading_imports_nothing_that_the_data_names() -> None:
    data = VALUES.encode(backtrail.Unregistered("antigravity.fly", {"a": 1}))
    sys.modules.pop("antigravity", None)
    assert VALUES.decode(data).type == "antigravity.fly"
    assert "antigravity" not in sys.modules


def test_a_state_may_be_a_registered_record_and_comes_back_as_one() -> None:
    thread = backtrail.open("memory:").thread("t", type=Plan)
    thread.save(Plan("g", [f"step {n} " * 30 for n in range(20)]))
    loaded = thread.load()
    assert isinstance(loaded, Plan)
    loaded.steps.append("last")
    saved = thread.save(loaded)
    assert saved.written < 1000
    assert thread.load() == loaded
    assert thread.diff(1, 2).changes[0].path == "steps[20]"


def test_load_as_a_type_validates_the_state() -> None:
    class Shape(msgspec.Struct):
        name: str
        size: int = 3

    class Loose(pydantic.BaseModel):
        name: str

    thread = backtrail.open("memory:").thread("t")
    thread.save({"name": "a"})
    assert thread.load(as_=Shape) == Shape("a", 3)
    assert thread.load(as_=Loose) == Loose(name="a")
    thread.save({"name": 5})
    for wanted in (Shape, Loose):
        with pytest.raises(InvalidInput, match="is not a"):
            thread.load(as_=wanted)


def test_a_field_that_the_class_got_later_has_its_default() -> None:
    old = Values(Types({"Plan": Plan}))

    @dataclasses.dataclass
    class Newer:
        goal: str
        priority: int = 7

    new = Values(Types({"Plan": Newer}))
    assert new.decode(old.encode(Plan("g"))) == Newer("g", 7)


def test_two_types_of_one_name_are_refused_unless_named() -> None:
    other = type("Plan", (Plan,), {"__module__": "elsewhere", "__qualname__": "Plan"})
    with pytest.raises(InvalidInput, match="two registered types"):
        Types([Plan, other])
    assert len(Types({"a": Plan, "b": other}).by_name) == 2


@pytest.mark.parametrize("state", [None, 5, "text", [1], (1,), b"x", Foreign(), Plan("unregistered"), Colour.RED])
def test_a_state_that_is_no_dict_and_no_record_is_refused(state: Any) -> None:
    with pytest.raises(EncodeError, match="not a dict or a registered record"):
        backtrail.open("memory:").thread("t").save(state)


# -- what a second look found ------------------------------------------------------------------------------------------


def test_members_of_sets_and_keys_of_a_type_that_is_not_registered_load_as_plain_values() -> None:
    engine = MemoryEngine()
    state = {"set": {Colour.RED, 2}, "keys": {Colour.RED: 1}, "items": [{Colour.RED, "x" * 40}] * 20}
    backtrail.open(engine, types=[Colour]).thread("t").save(state)
    stranger = backtrail.open(engine).thread("t")
    loaded = stranger.load()
    red = backtrail.Unregistered("Colour", {"value": Colour.RED.value})
    assert loaded["set"] == {red, 2}
    assert loaded["keys"] == {red: 1}
    stranger.save(loaded)
    assert backtrail.open(engine, types=[Colour]).thread("t").load() == state


@pytest.mark.parametrize(
    "value",
    [
        dt.time(2, 30, fold=1),
        dt.time(12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        dt.time(12, 0, 0, 5, tzinfo=dt.UTC),
        dt.time(1),
    ],
    ids=repr,
)
def test_a_time_keeps_its_zone_and_fold(value: dt.time) -> None:
    loaded = VALUES.decode(VALUES.encode(value))
    assert repr(loaded) == repr(value)


def test_the_hint_for_a_type_that_cannot_be_registered_is_to_convert_it() -> None:
    store = backtrail.open("memory:")
    for value in (collections.OrderedDict(a=1), collections.defaultdict(list), object(), range(3)):
        with pytest.raises(backtrail.EncodeError, match="convert it"):
            store.thread("t").save({"x": [value]})
    assert store.count() == 0


def test_a_record_that_cannot_be_read_is_named() -> None:
    store = backtrail.open("memory:", types=[Plan])
    broken = object.__new__(Plan)  # no field was ever set
    for state, path in (
        ({"plan": broken}, 'state["plan"]'),
        ({"plans": [Plan("g"), broken]}, 'state["plans"][1]'),
        (broken, "state"),
    ):
        with pytest.raises(backtrail.EncodeError, match="Plan") as caught:
            store.thread("t").save(state)
        assert caught.value.path == path
    store.thread("t").save({"plan": Plan("g" * 400)})
    with pytest.raises(backtrail.EncodeError, match="Plan"):
        store.thread("t").save({"plan": broken})


def test_a_pydantic_model_with_aliases_comes_back() -> None:
    class Aliased(pydantic.BaseModel):
        first: int = pydantic.Field(alias="FirstOne")
        second: str = pydantic.Field(validation_alias=pydantic.AliasChoices("two", "deux"))

    value = Aliased.model_validate({"FirstOne": 1, "deux": "x" * 300})
    store = backtrail.open("memory:", types=[Aliased])
    store.thread("t").save({"m": value, "l": [value] * 3})
    assert store.thread("t").load() == {"m": value, "l": [value] * 3}


@pytest.mark.parametrize("name", [5, None, b"Plan", ["Plan"]])
def test_an_unregistered_value_that_could_not_be_loaded_again_is_refused(name: Any) -> None:
    with pytest.raises(backtrail.InvalidInput, match="must be a str"):
        backtrail.Unregistered(name, {"a": 1})


def test_a_load_is_not_slowed_down_by_the_extensions_of_earlier_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values with thousands of extensions are looked at more closely, which is slow: each is counted by itself."""
    looked_at: list[bytes] = []
    monkeypatch.setattr(values, "check_keys", looked_at.append)
    with backtrail.open("memory:") as store:
        store.thread("t").save({"v": {"a": [(number,) for number in range(1000)]}})
        for _ in range(10):
            store.thread("t").load()
    assert not looked_at
