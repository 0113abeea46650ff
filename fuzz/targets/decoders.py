"""Decoders of single records: a changed encoding is refused as damaged, or decoded to something that encodes again."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from backtrail.encode import payload_format, row_format
from backtrail.encode.frame import Frames
from backtrail.encode.record_types import Types, Unregistered
from backtrail.encode.row_format import Blob, Inline, ListNode, Piece, Root, Slot, Tail, Tree
from backtrail.encode.tagged_json import from_json, to_json
from backtrail.encode.values import Values
from backtrail.engines.jsonl import readable_json
from backtrail.errors import DECODE_ERRORS
from backtrail.history import records
from backtrail.history.records import MarkBody, Meta
from backtrail.workspace import trees
from fuzz.mutate import JSON_SCALARS, change, damage

_BRANCH, _OTHER = bytes(range(16)), bytes(range(16, 32))
_values = Values(Types([]))
_frames = Frames("zstd")
_VALUE = {
    "text": "hello", "list": [1, -5, 2**70, 1.5, None, True], "tuple": (1, (2,)), "set": {1, "a"}, "bytes": b"x" * 9,
    "time": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "date": dt.date(2026, 1, 1), "of day": dt.time(1, 2, 3),
    "delta": dt.timedelta(days=1, microseconds=5), "id": uuid.UUID(int=5), "decimal": decimal.Decimal("1.50"),
    "keys": {1: 2, (3,): 4}, "record": Unregistered("Plan", {"a": 1}), "array": bytearray(b"abc"),
}  # fmt: skip
_ROOT = Root(
    Tree(
        None,
        {
            "inline": Inline(b"\xa2hi"),
            "slot": Slot(_OTHER, 4, 1, 300, bytes(16)),
            "blob": Blob(bytes(32), 9000, True),
            "list": ListNode((Piece(_BRANCH, 0, 0, 4, 1, 4, 0, 200),), 4, 200, Tail(_BRANCH, 0, 4, 200)),
            "tree": Tree("Plan", {"x": Inline(b"\x01")}, 1),
        },
        500,
    ),
    1,
)
_PAYLOAD = payload_format.pack_payload([payload_format.Section(0, 0, 2, 0, b"\x01\x02")], [b"\xa2hi", b"\xc0" * 40])


def _again(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    """Decode; what was decoded can be encoded, and decodes to the same."""

    def attempt(data: bytes) -> None:
        value = decode(data)
        once = encode(value)
        assert encode(decode(once)) == once, f"{value!r:.200} decodes to something else"

    return attempt


def _json(data: bytes) -> None:
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return  # such text is refused before
    value = from_json(plain)
    assert from_json(to_json(value)) == value or value != value, f"{value!r:.200} comes back as another value"
    encoded = _values.encode(value)
    _values.encode(_values.decode(encoded, "a value"))


_TREE = trees.encode(
    {
        b"a.py": trees.TreeEntry(trees.FILE, 0o644, 5, bytes(32)),
        b"deep": trees.TreeEntry(trees.DIR, 0o755, 0, bytes(32)),
        b"link": trees.TreeEntry(trees.LINK, 0o777, 4, b"a.py"),
    }
)
#: name -> (a right encoding, what to do with a changed one)
_DECODERS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "value": (_values.encode(_VALUE), _again(lambda data: _values.decode(data, "a value"), _values.encode)),
    "root": (
        row_format.pack_root(_ROOT, _BRANCH),
        _again(
            lambda data: row_format.unpack_root(data, _BRANCH, "a root"), lambda r: row_format.pack_root(r, _BRANCH)
        ),
    ),
    "page": (
        row_format.pack_page(_ROOT.tree.children or {}, _BRANCH),
        _again(
            lambda data: row_format.unpack_page(data, _BRANCH, "a page"), lambda p: row_format.pack_page(p, _BRANCH)
        ),
    ),
    "payload": (_PAYLOAD, lambda data: payload_format.unpack_payload(b"\x00" + data + bytes(4), "a payload")),
    "frame": (_frames.wrap(_PAYLOAD * 50, "a frame"), lambda data: _frames.unwrap(data, "a frame")),
    "meta": (
        records.pack_meta(Meta(1, None, 2, 3, bytes(16), "label", ("tag",), _values.encode({"a": 1}), "files")),
        _again(lambda data: records.unpack_meta(data, "metadata"), records.pack_meta),
    ),
    "mark": (
        records.seal_mark(_frames, _BRANCH, 3, MarkBody(1, False, "label", ("tag",), b"")).data or b"",
        lambda data: records.open_mark(_frames, _BRANCH, 3, data),
    ),
    "directory": (_TREE, _again(lambda data: trees.decode(data, "a directory"), trees.encode)),
    "tagged json": (msgspec.json.encode(to_json(_VALUE)), _json),
    "readable json": (
        bytes(readable_json.show(_frames.wrap(_values.encode([1, "a", b"x", {"k": 1.5}]), "a value"))),
        lambda data: readable_json.revealed(data, "a value"),
    ),
}


def make(rng: random.Random) -> bytes:
    name = rng.choice(list(_DECODERS))
    data = _DECODERS[name][0]
    library: Any = msgspec.json if name.endswith("json") else msgspec.msgpack
    if rng.random() < 0.6 and name not in ("payload", "frame"):
        try:
            scalars = JSON_SCALARS if library is msgspec.json else (*JSON_SCALARS, b"x", msgspec.msgpack.Ext(12, b"x"))
            data = library.encode(change(library.decode(data), rng, scalars))
        except (*DECODE_ERRORS, OverflowError, TypeError):
            data = damage(data, rng)
    if rng.random() < 0.5:
        data = damage(data, rng)
    return name.encode() + b"\n" + data


def attempt(data: bytes) -> None:
    name, _, content = data.partition(b"\n")
    _DECODERS[name.decode()][1](content)
