"""Byte strings as readable JSON that converts back exactly, and the names of files."""

from __future__ import annotations

import json
import math
import zlib

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backtrail.encode.frame import Frames
from backtrail.encode.payload_format import Section, pack_payload
from backtrail.engines.jsonl import readable_json
from backtrail.engines.jsonl.file_names import file_name
from backtrail.errors import Corrupt

encode = msgspec.msgpack.encode
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def framed(content: bytes) -> bytes:
    return Frames().wrap(content, "here")


def shown(data: bytes) -> object:
    """The readable form, once it is known that it can be undone, and that any JSON parser can read it."""
    text = bytes(readable_json.show(data))
    assert b"\n" not in text
    assert readable_json.hide(text) == data
    return json.loads(text)


@given(st.binary())
@example(b"")
@example(b"\0")
@example(b"\0" + zlib.crc32(b"\0").to_bytes(4, "little"))
def test_any_bytes_come_back(data: bytes) -> None:
    shown(data)
    shown(framed(data))


@given(st.lists(json_values, max_size=5), st.lists(json_values, max_size=3), st.integers(0, 2**40))
def test_any_payload_comes_back_and_is_shown(items: list[object], slots: list[object], offset: int) -> None:
    section = Section(3, 7, len(items), offset, b"".join(map(encode, items)))
    found = shown(framed(pack_payload([section], [encode(slot) for slot in slots])))
    assert isinstance(found, dict)
    assert set(found) - {"escaped"} == {"items", "slots"}


@given(st.lists(json_values, min_size=1, max_size=5), st.integers(0, 2**40))
@example([{"deep": [{"deep": [{"deep": [{"deep": ["deep"]}]}]}]}], 0)
@example([{"temperature": 0.7}, {"temperature": -0.0}, {"temperature": 1e300}], 1)
@example([{"temperature": math.inf}], 2)
@example([{"content": "\xcb˚"}], 3)
def test_a_payload_of_one_section_comes_back_and_is_shown(items: list[object], offset: int) -> None:
    section = Section(0, 7, len(items), offset, b"".join(map(encode, items)))
    found = shown(framed(pack_payload([section], [])))
    assert isinstance(found, dict)
    assert set(found) - {"escaped"} == {"items", "slots"}


def test_deep_messages_with_floats_are_plain_json() -> None:
    message: object = {"score": 0.5}
    for _ in range(12):
        message = {"inner": [message]}
    found = shown(framed(pack_payload([Section(0, 0, 1, 0, encode(message))], [])))
    assert found == {"items": [{"stream": 0, "start": 0, "at": 0, "of": [message]}], "slots": []}


@given(st.binary(max_size=60))
def test_a_payload_with_a_damaged_head_is_never_shown_as_another(tail: bytes) -> None:
    whole = pack_payload([Section(0, 0, 1, 0, encode({"role": "user"}))], [])
    for cut in range(0, len(whole), 3):
        shown(framed(whole[:cut] + tail))
        shown(framed(whole[:cut] + tail + whole[cut:]))


def test_messages_are_plain_json() -> None:
    message = {"role": "user", "content": 'Grüße, "Welt"\n🙂', "n": [1, 1.0, True, None], "tool": {"a": {}}}
    data = framed(pack_payload([Section(0, 0, 2, 0, encode(message) * 2)], []))
    assert shown(data) == {"items": [{"stream": 0, "start": 0, "at": 0, "of": [message, message]}], "slots": []}


def test_bytes_in_a_message_hide_nothing_else_of_it() -> None:
    message = {"role": "user", "content": [{"text": "look"}, {"image": b"\x00\xff"}]}
    found = shown(framed(pack_payload([Section(0, 0, 1, 0, encode(message))], [])))
    assert isinstance(found, dict)
    assert found["items"][0]["of"] == [{"role": "user", "content": [{"text": "look"}, {"image": {"$bytes": "AP8="}}]}]


def test_only_the_item_that_json_cannot_express_is_packed() -> None:
    items = [{"role": "user"}, math.nan, {"$bytes": "an innocent key"}, {"when": msgspec.msgpack.Ext(5, b"x")}]
    found = shown(framed(pack_payload([Section(0, 0, 4, 0, b"".join(map(encode, items)))], [])))
    assert isinstance(found, dict)
    first, *others = found["items"][0]["of"]
    assert first == {"role": "user"}
    assert all(set(other) == {"$msgpack"} for other in others)


def test_values_inside_of_a_root_are_shown() -> None:
    messages = [{"role": "user", "content": "hi", "image": b"\x00"}]
    root = encode([1, 0, {"messages": [0, encode(messages)], "id": [0, b"\xff" * 16]}])
    found = shown(framed(root))
    assert isinstance(found, dict)
    assert found["list"][2] == {
        "messages": [0, {"$packed": [{"role": "user", "content": "hi", "image": {"$bytes": "AA=="}}]}],
        "id": [0, {"$bytes": "/////////////////////w=="}],
    }


@given(json_values | st.text())
@example({"n": 1})
def test_metadata_and_roots_come_back_and_are_shown_where_there_is_text(value: object) -> None:
    numbers = [1794786218539496, bytes(16), 25876, 2002, b"\xa3" * 16]
    root = [1, 0, [4, None, 10, {"key": [0, encode(value)]}], []]
    for show, record in (
        (readable_json.show_meta, numbers),
        (readable_json.show_meta, [*numbers, "label"]),
        (readable_json.show_meta, [*numbers, None, ["tag"]]),
        (readable_json.show_root, root),
    ):
        data = framed(encode(record))
        text = bytes(show(data))
        assert readable_json.hide(text) == data
        words = (
            any(type(part) in (str, list) for part in record) if show is readable_json.show_meta else type(value) is str
        )
        assert not words or text == bytes(readable_json.show(data))
    assert readable_json.show_meta(framed(encode(numbers))) == readable_json.veil(framed(encode(numbers)))
    assert readable_json.show_meta(b"") == readable_json.show_root(b"") == readable_json.show(b"")


def test_texts_and_lists_are_shown_and_what_is_compressed_is_not() -> None:
    assert shown(framed(b"Ein Text")) == {"text": "Ein Text"}
    assert shown(framed(encode(["label", ["a tag"], 3]))) == {"list": ["label", ["a tag"], 3], "escaped": True}
    assert set(shown(Frames("zstd").wrap(b"much of the same " * 100, "here"))) == {"b64"}  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "text", ["5", "{}", '{"b64": "?"}', '{"items": 1, "slots": []}', '{"list": [{"$msgpack": 1}], "escaped": true}']
)
def test_json_that_backtrail_cannot_have_written_is_named(text: str) -> None:
    with pytest.raises(Corrupt, match="line 7"):
        readable_json.revealed(text.encode(), "a.jsonl, line 7")


# -- file names ------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.text(max_size=100) | st.sampled_from(["a:b", "a_b", "A", "a", "con", "CON", "a.", ".a", "é", "e\u0301"]),
        max_size=8,
    )
)
def test_names_never_meet_even_where_case_does_not_count(lineages: list[str]) -> None:
    names = {file_name(lineage).casefold() for lineage in lineages}
    assert len(names) == len(set(lineages))


@given(st.text() | st.text('./\\:*?"<>|~ab', max_size=20))
@example("../../etc/passwd")
@example("x" * 10_000)
@example("nul.txt")
@example("\0")
@example("-rf")
def test_names_are_safe_everywhere(lineage: str) -> None:
    name = file_name(lineage)
    assert name.endswith(".jsonl")
    assert len(name) < 120
    assert not name.startswith((".", "-"))
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~")
    assert name.split(".")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt1"}


def test_names_are_readable() -> None:
    assert file_name("session-7_b.2") == "session-7_b.2.jsonl"
    assert file_name("telegram:Chat 42").startswith("telegram-Chat-42~")
