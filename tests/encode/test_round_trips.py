"""What an encoder accepts, its decoder returns: for every encoder in the project."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct
import uuid
import zoneinfo
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backtrail
from backtrail.encode.frame import Frames
from backtrail.encode.record_types import Types
from backtrail.encode.tagged_json import from_json, to_json
from backtrail.encode.values import Values
from backtrail.engines.jsonl import readable_json
from backtrail.errors import BacktrailError, EncodeError, InvalidInput
from backtrail.history.records import Meta, pack_meta, unpack_meta
from backtrail.history.save_arguments import Facts
from backtrail.workspace import trees

VALUES = Values(Types())
ZONES = [zoneinfo.ZoneInfo(name) for name in ("Europe/Berlin", "UTC", "America/New_York")]
zones = st.none() | st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-3, seconds=7)), *ZONES])
texts = st.text(st.characters(exclude_categories=()), max_size=8)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**64, 2**300),
    st.floats(),
    texts,
    st.sampled_from(["$type", "$map", "value", "\U0010ffff", "\ud83d", "\ud83d\ude00"]),
    st.binary(max_size=6),
    st.binary(max_size=3).map(bytearray),
    st.datetimes(timezones=zones),
    st.builds(lambda one, fold: one.replace(fold=fold), st.datetimes(timezones=zones), st.integers(0, 1)),
    st.dates(),
    st.builds(lambda one, zone: one.replace(tzinfo=zone), st.times(), zones),
    st.timedeltas(),
    st.uuids(),
    st.decimals(),
)
keys = st.one_of(
    texts, st.integers(), st.booleans(), st.none(), st.uuids(), st.dates(), st.tuples(texts, st.integers())
)
names = texts | st.sampled_from([5, None, "", "Plan", b"x"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(keys, max_size=4),
        st.frozensets(keys, max_size=4).map(set),
        st.builds(backtrail.Unregistered, texts, inner),
    ),
    max_leaves=12,
)
TAGS = ["$type", "value", "$map", "$set", "$frozenset", "$tuple", "$int", "$float", "$text", "$bytes", "$datetime"]
TAGS += ["$date", "$time", "$seconds", "$uuid", "$decimal", "$bytearray", "$else"]
#: JSON as a client may send it: mostly wrong
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(texts, inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "$type",
                    "value",
                    "$map",
                    "$set",
                    "$frozenset",
                    "$tuple",
                    "$int",
                    "$float",
                    "$text",
                    "$bytes",
                    "$datetime",
                    "$date",
                    "$time",
                    "$seconds",
                    "$uuid",
                    "$decimal",
                    "$bytearray",
                    "$else",
                ]
            ),
            inner | st.lists(st.lists(inner, min_size=2, max_size=2), max_size=3),
            min_size=1,
            max_size=2,
        ),
    ),
    max_leaves=10,
)


def encoded(value: Any) -> bytes | None:
    """The canonical bytes of a value, which differ for all values that differ; None if it is refused."""
    try:
        return VALUES.encode(value)
    except EncodeError:
        return None


@settings(max_examples=300)
@given(values)
@example(backtrail.Unregistered("\ud83d", 1))
@example(backtrail.Unregistered("", 1))
@example(dt.time(1, 2, tzinfo=ZONES[0]))
def test_values(value: Any) -> None:
    data = encoded(value)
    if data is not None:
        assert encoded(VALUES.decode(data)) == data
        assert type(VALUES.decode(data)) is type(value)


@settings(max_examples=300)
@given(values)
@example(struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0])
def test_tagged_json(value: Any) -> None:
    data = encoded(value)
    if data is not None:
        shown = to_json(value)
        assert encoded(from_json(json.loads(json.dumps(shown)))) == data
        assert encoded(from_json(msgspec.json.decode(msgspec.json.encode(shown)))) == data


@settings(max_examples=300)
@given(json_values)
@example({"$type": 5, "value": 1})
@example({"$seconds": "1e999999"})
@example({"$seconds": 1e300})
@example({"$decimal": 5})
@example({"$tuple": {"a": 1}})
@example({"$int": "0x" + "f" * 6000})
@example({"$datetime": "2026-01-01T00:00:00[No/Such]"})
@example({"$time": "10:00:00[../../etc/passwd]"})
def test_json_of_a_client_is_refused_or_can_be_saved_and_loaded(value: Any) -> None:
    try:
        found = from_json(value)
    except InvalidInput:
        return
    data = encoded(found)
    if data is not None:
        assert encoded(VALUES.decode(data)) == data


@settings(max_examples=60)
@given(st.dictionaries(texts, values, max_size=4), values, st.lists(names, max_size=3), names)
def test_states_and_annotations_on_engines_of_bytes_and_of_text(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any], more: Any, tags: list[Any], label: Any
) -> None:
    for url in ("memory:", f"jsonl:{tmp_path_factory.mktemp('round') / 's'}"):
        with backtrail.open(url) as store:
            thread = store.thread("t")
            thread.save({"a": 1})
            for call in (
                lambda thread=thread: thread.save(state),
                lambda thread=thread: thread.update({"long": [more] * 90, "wide": {str(n): more for n in range(90)}}),
                lambda thread=thread: thread.save({"b": 1}, label=label, tags=tags, custom={"c": more}),
                lambda thread=thread: thread.annotate(1, label=label, tags=tags, custom={"d": more}),
            ):
                try:
                    call()
                except InvalidInput:
                    continue
            for one in thread.history():
                loaded = thread.load(one)
                if one.step == 2 and encoded(state) is not None and "a" not in loaded:
                    assert encoded(loaded) == encoded(state) or "b" in loaded
                if "c" in one.custom:
                    assert encoded(one.custom["c"]) == encoded(more)
                    assert one.label == label
            assert store.verify().ok


@settings(max_examples=200)
@given(st.one_of(st.none(), names), st.lists(names, max_size=4), st.dictionaries(texts, values, max_size=3))
def test_metadata(label: Any, tags: list[Any], custom: dict[str, Any]) -> None:
    try:
        facts = Facts.check(VALUES, label, tags, custom, None, None)
    except InvalidInput:
        return
    meta = Meta(1, None, 2, 3, bytes(16), facts.label, facts.tags, facts.custom, facts.files)
    assert unpack_meta(pack_meta(meta), "here") == meta
    if facts.custom:
        assert encoded(VALUES.decode(facts.custom)) == facts.custom


@settings(max_examples=200)
@given(st.binary(max_size=40) | values.map(lambda value: encoded(value) or b""))
def test_readable_json(content: bytes) -> None:
    for data in (content, Frames().wrap(content, "here"), Frames("zstd").wrap(content, "here")):
        for show in (readable_json.show, readable_json.show_root, readable_json.show_meta):
            assert readable_json.hide(bytes(show(data))) == data


@settings(max_examples=40)
@given(st.lists(st.dictionaries(texts, values, min_size=1, max_size=3), min_size=1, max_size=3))
def test_exports_that_are_imported_again(tmp_path_factory: pytest.TempPathFactory, said: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("export")
    with backtrail.open("memory:") as store, backtrail.open("memory:") as other:
        session = store.session("s")
        try:
            for message in said:
                session.append({"role": "user", "content": "hello", **message})
        except InvalidInput:
            return
        path = folder / "s.jsonl"
        path.write_text(store.export("s", format="jsonl"), encoding="utf-8")
        store.export("s", format="markdown").encode()
        report = other.import_(path)
        assert not report.failed
        assert list(map(encoded, other.session("s").messages())) == list(map(encoded, session.messages()))


entry_names = st.binary(min_size=1, max_size=8).filter(lambda name: b"/" not in name)
entries = st.builds(
    trees.TreeEntry,
    st.integers(trees.FILE, trees.DIR),
    st.integers(0, 0o777),
    st.integers(0, 2**40),
    st.just(b"r" * 32),
)


@settings(max_examples=200)
@given(st.dictionaries(entry_names, entries, max_size=5))
def test_trees_of_files(tree: dict[bytes, Any]) -> None:
    data = trees.encode(tree)
    try:
        assert trees.decode(data, "here") == tree
    except BacktrailError as refused:
        assert isinstance(refused, backtrail.UnsafePath)  # the scanner leaves such names out  # noqa: PT017


@pytest.mark.parametrize(
    ("value", "loaded"),
    [
        (dt.datetime(2026, 7, 1, 12, tzinfo=ZONES[0]), dt.datetime.fromisoformat("2026-07-01T12:00:00+02:00")),
        (dt.time(12, 30, tzinfo=ZONES[0]), dt.time(12, 30)),
    ],
)
@pytest.mark.parametrize("name", ["Mars/Olympus", "Europe", "../../etc/localtime", "/etc/localtime"])
def test_a_zone_that_this_machine_does_not_know_hides_nothing(value: Any, loaded: Any, name: str) -> None:
    """The zone is left out: a datetime has the offset that was stored with it, a time has none."""
    stored = VALUES.encode({"at": value})
    other = VALUES.encode({"at": value.replace(tzinfo=None)})
    assert stored != other
    inner = msgspec.msgpack.encode([value.isoformat(), name, 0])
    code = 5 if isinstance(value, dt.datetime) else 7
    data = msgspec.msgpack.encode({"at": msgspec.msgpack.Ext(code, inner), "n": 1})
    assert VALUES.decode(data) == {"at": loaded, "n": 1}
    assert VALUES.decode(data)["at"].utcoffset() == loaded.utcoffset()


def test_a_type_is_registered_under_a_name() -> None:
    for name in (5, "", "\ud800", None):
        with pytest.raises(InvalidInput, match="name"):
            backtrail.open("memory:", types={name: uuid.UUID})  # type: ignore[dict-item]


LIMITS = {"signal": decimal.Decimal("sNaN"), "long": dt.timedelta(days=999_999_999, microseconds=1), "int": -(10**5000)}


@pytest.mark.parametrize("name", LIMITS)
def test_values_at_their_limits(name: str) -> None:
    value = LIMITS[name]
    assert encoded(from_json(to_json(value))) == encoded(value)


def test_tags_labels_and_custom_have_limits(tmp_path: Path) -> None:
    thread = backtrail.open("memory:").thread("t")
    first = thread.save({}, tags=[f"tag {n}" for n in range(256)], label="l" * 512, custom={"c": "x" * 1_000_000})
    for arguments, limit in (
        ({"tags": [f"tag {n}" for n in range(257)]}, "256"),
        ({"tags": ["t" * 513]}, "512"),
        ({"label": "l" * 513}, "512"),
        ({"custom": {"c": "x" * 1_100_000}}, "1,048,576"),
    ):
        with pytest.raises(InvalidInput, match=limit):
            thread.save({"n": 1}, **arguments)
        with pytest.raises(InvalidInput, match=limit):
            thread.annotate(first, **arguments)
    assert thread.step == 1
