"""Byte strings as JSON that a person can read, wherever that can be undone exactly.

An engine's bytes are opaque. But most of what clew keeps is a raw frame (a zero byte, the content, a CRC-32) around
msgpack or text, and here that is shown as what it says. Each form is tried and taken back before it is used: bytes that
would not come back identical (compressed, encrypted, or of a kind this module does not know) are shown in base64.

* `""`: no bytes
* `{"items": [{"stream", "start", "at", "of": [item, …]}, …], "slots": [value, …]}`: the payload of a row
* `{"list": [value, …]}`: a msgpack array
* `{"text": "…"}`: UTF-8
* `{"b64": "…"}`: anything else

A single item or value that JSON cannot express (bytes, a date, NaN) is `{"$msgpack": "<base64>"}`.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from clew.errors import Corrupt

_encode = msgspec.msgpack.Encoder().encode
_decode_list: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[Any]).decode
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode

_COUNTS = struct.Struct("<HH")
_SECTION = struct.Struct("<HIIQI")
_LENGTH = struct.Struct("<I")
_ARRAY = struct.Struct(">BI")
_ARRAY_HEADS = frozenset(bytes([head]) for head in (*range(0x90, 0xA0), 0xDC, 0xDD))
_PACKED = "$msgpack"
_EMPTY = msgspec.Raw(b'""')
#: what decoding or encoding may say about bytes that are not of the form that is tried
_NO = (msgspec.MsgspecError, struct.error, UnicodeDecodeError, ValueError, TypeError, OverflowError, RecursionError)


def show(data: bytes) -> msgspec.Raw:
    """`data` as JSON."""
    if not data:
        return _EMPTY
    content = _content(data)
    if content is not None:
        for form, shown in _LIST_FIRST if content[:1] in _ARRAY_HEADS else _PAYLOAD_FIRST:
            try:
                text = _to_json(form(content, shown))
                if hide(text) == data:
                    return msgspec.Raw(text)
            except _NO:
                continue
    return veil(data)


def veil(data: bytes) -> msgspec.Raw:
    """`data` in base64, without a look at it."""
    return msgspec.Raw(b'{"b64":"' + base64.b64encode(data) + b'"}') if data else _EMPTY


def hide(shown: bytes | msgspec.Raw) -> bytes:
    """The bytes that were shown; ValueError if these cannot have been."""
    form = _from_json(shown)
    if form == "":
        return b""
    if "b64" in form:
        return base64.b64decode(form["b64"], validate=True)
    if "text" in form:
        content: bytes = form["text"].encode()
    elif "list" in form:
        content = _array(form["list"], b"".join(map(_pack, form["list"])))
    else:
        content = _hide_payload(form["items"], form["slots"])
    frame = b"\0" + content
    return frame + _LENGTH.pack(zlib.crc32(frame))


def revealed(shown: bytes | msgspec.Raw, where: str) -> bytes:
    """`hide`, for what was read from a file."""
    try:
        return hide(shown)
    except (*_NO, KeyError, AttributeError, binascii.Error) as error:
        raise Corrupt(where, f"not written by clew: {error}") from error


def _content(data: bytes) -> bytes | None:
    if len(data) < 5 or data[0] != 0 or _LENGTH.pack(zlib.crc32(data[:-4])) != data[-4:]:
        return None
    return data[1:-4]


Shown = Callable[[list[Any]], list[Any]]
Form = Callable[[bytes, Shown], Any]


def _show_payload(content: bytes, shown: Shown) -> Any:
    sections, slots = _COUNTS.unpack_from(content)
    at = _COUNTS.size
    heads = [_SECTION.unpack_from(content, at + n * _SECTION.size) for n in range(sections)]
    at += sections * _SECTION.size
    at += slots * _LENGTH.size
    items = []
    for stream, start, count, offset, length in heads:
        values = _decode_list(_ARRAY.pack(0xDD, count) + content[at : at + length])
        items.append({"stream": stream, "start": start, "at": offset, "of": shown(values)})
        at += length
    values = _decode_list(_ARRAY.pack(0xDD, slots) + content[at:])
    return {"items": items, "slots": shown(values)}


def _hide_payload(items: list[dict[str, Any]], slots: list[Any]) -> bytes:
    data = [b"".join(map(_pack, section["of"])) for section in items]
    values = [_pack(slot) for slot in slots]
    heads = [
        _SECTION.pack(section["stream"], section["start"], len(section["of"]), section["at"], len(packed))
        for section, packed in zip(items, data, strict=True)
    ]
    lengths = [_LENGTH.pack(len(value)) for value in values]
    return b"".join([_COUNTS.pack(len(items), len(slots)), *heads, *lengths, *data, *values])


def _show_list(content: bytes, shown: Shown) -> Any:
    return {"list": shown(_decode_list(content))}


def _array(values: list[Any], packed: bytes) -> bytes:
    return _encode([None] * len(values))[: -len(values) or None] + packed


def _show_text(content: bytes, shown: Shown) -> Any:  # noqa: ARG001 - one signature for all forms
    return {"text": content.decode()}


def _as_it_is(values: list[Any]) -> list[Any]:
    """All values as plain JSON: nearly always right, and checked as a whole."""
    return values


def _one_by_one(values: list[Any]) -> list[Any]:
    """Each value as plain JSON if that is exact for it, else packed."""
    return [value if _exact(value) else {_PACKED: base64.b64encode(_encode(value)).decode()} for value in values]


def _exact(value: Any) -> bool:
    if isinstance(value, dict) and _PACKED in value:
        return False
    try:
        return bool(_encode(_from_json(_to_json(value))) == _encode(value))
    except _NO:
        return False


def _pack(value: Any) -> bytes:
    if isinstance(value, dict) and _PACKED in value:
        return base64.b64decode(value[_PACKED], validate=True)
    return _encode(value)


#: A list nearly always holds bytes somewhere (an id), so it is shown value by value at once.
_LIST_FIRST: tuple[tuple[Form, Shown], ...] = (
    (_show_list, _one_by_one),
    (_show_payload, _as_it_is),
    (_show_payload, _one_by_one),
    (_show_text, _as_it_is),
)
_PAYLOAD_FIRST: tuple[tuple[Form, Shown], ...] = (
    (_show_payload, _as_it_is),
    (_show_payload, _one_by_one),
    (_show_text, _as_it_is),
)
