"""Byte strings as JSON that a person can read, wherever that can be undone exactly.

An engine's bytes are opaque. But most of what clew keeps is a raw frame (a zero byte, the content, a CRC-32) around
msgpack or text, and here that is shown as what it says. Each form is tried and taken back before it is used: bytes that
would not come back identical (compressed, encrypted, or of a kind this module does not know) are shown in base64.

* `""`: no bytes
* `{"items": [{"stream", "start", "at", "of": [item, …]}, …], "slots": [value, …]}`: the payload of a row
* `{"list": [value, …]}`: a msgpack array
* `{"text": "…"}`: UTF-8
* `{"b64": "…"}`: anything else

`"escaped": true` beside the first two says that some of their values are not plain JSON: `{"$bytes": "<base64>"}` are
bytes, `{"$packed": value}` bytes that are the msgpack of that value, and an item or value that JSON cannot express at
all (a date, NaN) is `{"$msgpack": "<base64>"}`.
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
_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
_decode_list: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[Any]).decode
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode

_COUNTS = struct.Struct("<HH")
_SECTION = struct.Struct("<HIIQI")
_LENGTH = struct.Struct("<I")
_ARRAY = struct.Struct(">BI")
_ARRAY_HEADS = frozenset(bytes([head]) for head in (*range(0x90, 0xA0), 0xDC, 0xDD))
_VALUE_HEADS = frozenset(bytes([head]) for head in (*range(0x80, 0xC0), *range(0xD9, 0xE0)))  # maps, arrays, texts
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
        for form, escape in _LIST_FIRST if content[:1] in _ARRAY_HEADS else _PAYLOAD_FIRST:
            try:
                text = _to_json(form(content, escape))
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
    pack = _pack if form.get("escaped") else _encode
    if "text" in form:
        content: bytes = form["text"].encode()
    elif "list" in form:
        content = _hide_list(form["list"], pack)
    else:
        content = _hide_payload(form["items"], form["slots"], pack)
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


Escape = Callable[[list[Any]], list[Any]]
Form = Callable[[bytes, Escape | None], dict[str, Any]]
Pack = Callable[[Any], bytes]


def _show_payload(content: bytes, escape: Escape | None) -> dict[str, Any]:
    sections, slots = _COUNTS.unpack_from(content)
    at = _COUNTS.size
    heads = [_SECTION.unpack_from(content, at + n * _SECTION.size) for n in range(sections)]
    at += sections * _SECTION.size + slots * _LENGTH.size
    items = []
    for stream, start, count, offset, length in heads:
        values = _decode_list(_ARRAY.pack(0xDD, count) + content[at : at + length])
        items.append({"stream": stream, "start": start, "at": offset, "of": escape(values) if escape else values})
        at += length
    values = _decode_list(_ARRAY.pack(0xDD, slots) + content[at:])
    form = {"items": items, "slots": escape(values) if escape else values}
    return {**form, "escaped": True} if escape else form


def _hide_payload(items: list[dict[str, Any]], slots: list[Any], pack: Pack) -> bytes:
    data = [b"".join(map(pack, section["of"])) for section in items]
    values = [pack(slot) for slot in slots]
    heads = [
        _SECTION.pack(section["stream"], section["start"], len(section["of"]), section["at"], len(packed))
        for section, packed in zip(items, data, strict=True)
    ]
    lengths = [_LENGTH.pack(len(value)) for value in values]
    return b"".join([_COUNTS.pack(len(items), len(slots)), *heads, *lengths, *data, *values])


def _show_list(content: bytes, escape: Escape | None) -> dict[str, Any]:
    values = _decode_list(content)
    return {"list": escape(values), "escaped": True} if escape else {"list": values}


def _hide_list(values: list[Any], pack: Pack) -> bytes:
    head = _encode([None] * len(values))
    return head[: len(head) - len(values)] + b"".join(map(pack, values))


def _show_text(content: bytes, escape: Escape | None) -> dict[str, Any]:  # noqa: ARG001 - one signature for all forms
    return {"text": content.decode()}


# -- values that are not plain JSON ----------------------------------------------------------------------------------


def _escape_all(values: list[Any]) -> list[Any]:
    """Right nearly always, and checked as a whole."""
    return [_escape(value) for value in values]


def _escape_each(values: list[Any]) -> list[Any]:
    """Checks each value, so that one that JSON cannot express hides no other."""
    found = []
    for value in values:
        packed = _encode(value)
        try:
            escaped = _escape(value)
            exact = _pack(_from_json(_to_json(escaped))) == packed
        except _NO:
            exact = False
        found.append(escaped if exact else {_PACKED: base64.b64encode(packed).decode()})
    return found


def _escape(value: Any) -> Any:
    """The same value with its bytes escaped; ValueError if there is anything else that JSON cannot express."""
    kind = type(value)
    if kind is bytes:
        return _escape_bytes(value)
    if kind is list:
        return [_escape(item) for item in value]
    if kind is dict:
        if any(type(key) is not str or key.startswith("$") for key in value):
            raise ValueError("a key that looks like an escape")
        return {key: _escape(item) for key, item in value.items()}
    return value


def _escape_bytes(data: bytes) -> dict[str, Any]:
    if data[:1] in _VALUE_HEADS:
        try:
            value = _escape(_decode(data))
            if _pack(_from_json(_to_json(value))) == data:
                return {"$packed": value}
        except _NO:
            return {"$bytes": base64.b64encode(data).decode()}
    return {"$bytes": base64.b64encode(data).decode()}


def _pack(value: Any) -> bytes:
    if isinstance(value, dict) and _PACKED in value:
        return base64.b64decode(value[_PACKED], validate=True)
    return _encode(_unescape(value))


def _unescape(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$packed" in value:
        return _pack(value["$packed"])
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"], validate=True)
    return {key: _unescape(item) for key, item in value.items()}


#: What to try. A list nearly always holds bytes somewhere (an id), so it is escaped at once.
_LIST_FIRST: tuple[tuple[Form, Escape | None], ...] = (
    (_show_list, _escape_all),
    (_show_list, _escape_each),
    (_show_payload, None),
    (_show_payload, _escape_each),
    (_show_text, None),
)
_PAYLOAD_FIRST = _LIST_FIRST[2:]
