"""Byte strings as JSON that a person can read, if it converts back to exactly the same bytes.

An engine's bytes are opaque. But most of what backtrail keeps is a raw frame (a zero byte, the content, a CRC-32)
around msgpack or text, and these are shown decoded. A form is used only if it is known to convert back to the same
bytes: because all its values are of types that JSON preserves exactly and that encode to these bytes again, or because
the conversion back was tried. Other bytes (compressed, encrypted, or of a kind this module does not know) are shown in
base64.

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

import binascii
import re
import struct
import zlib
from collections.abc import Callable
from math import isfinite
from types import NoneType
from typing import Any

import msgspec

from backtrail.errors import DECODE_ERRORS, Corrupt


def _plain_lists(depth: int) -> Any:
    """Lists of values that JSON preserves exactly, nested to this depth; only a float may still be NaN or infinite."""
    scalar = None | bool | int | float | str
    kind: Any = scalar
    for _ in range(depth):
        kind = scalar | list[kind] | dict[str, kind]
    return list[kind]


class Section(msgspec.Struct):
    """Items of one stream, as they are shown."""

    stream: int
    start: int
    at: int
    of: list[Any]


class Form(msgspec.Struct, rename={"values": "list"}):
    """The form in which bytes that are not empty are shown."""

    items: list[Section] | None = None
    slots: list[Any] = []
    values: list[Any] | None = None
    text: str | None = None
    b64: str | None = None
    escaped: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
_decode_list: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[Any]).decode
_decode_plain: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(_plain_lists(6)).decode
_to_json = msgspec.json.Encoder().encode
_form = msgspec.json.Decoder(Form | str).decode

_COUNTS = struct.Struct("<HH")
_SECTION = struct.Struct("<HIIQI")
_LONE = struct.Struct("<HHHIIQI")  # the counts and the head of a payload that is one section
_LENGTH = struct.Struct("<I")
_ARRAY = struct.Struct(">BI")
_ARRAY_HEADS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
_VALUE_HEADS = frozenset((*range(0x80, 0xC0), *range(0xD9, 0xE0)))  # maps, arrays, texts
_FLOAT = b"\xcb"
#: Bytes in a list that may be such a value. 16 bytes are checked more strictly, because most of those are digests.
_READABLE = re.compile(
    rb"(?s)\xc4(?:\x10[\x80-\x9f\xaf]|[^\x10][\x80-\xbf\xd9-\xdf])|(?:\xc5..|\xc6....)[\x80-\xbf\xd9-\xdf]"
)
_NUMBERS = b"\0\x95"
_SOUND = 0x2144DF1C  # CRC-32 of any message followed by its own little-endian CRC-32
_PACKED = "$msgpack"
_EMPTY = msgspec.Raw(b'""')
_AS_THEY_ARE = frozenset({str, int, bool, NoneType})
#: errors of decoding or encoding bytes that are not of the form that is tried
_NO = (*DECODE_ERRORS, struct.error, TypeError, OverflowError)
#: errors of undoing JSON that was not made here
NOT_OURS = (*_NO, binascii.Error, LookupError)


def show(data: bytes) -> msgspec.Raw:
    """`data` as JSON."""
    if not data:
        return _EMPTY
    if data[0] == 0 and len(data) >= 5 and zlib.crc32(data) == _SOUND:
        content = data[1:-4]
        for form in _LIST_FIRST if data[1] in _ARRAY_HEADS else _PAYLOAD_FIRST:
            try:
                text = form(content)
            except _NO:
                continue
            if text is not None:
                return msgspec.Raw(text)
    return veil(data)


def show_meta(data: bytes) -> msgspec.Raw:
    """The metadata of a row as JSON, if it holds more than five numbers and digests (which are of no use to a
    reader)."""
    return veil(data) if data.startswith(_NUMBERS) else show(data)


def show_root(data: bytes) -> msgspec.Raw:
    """The root of a row as JSON, if it holds any value inline, and not only pointers."""
    return show(data) if _READABLE.search(data) else veil(data)


def veil(data: bytes) -> msgspec.Raw:
    """`data` in base64, without trying other forms."""
    return msgspec.Raw(b'{"b64":"' + binascii.b2a_base64(data, newline=False) + b'"}') if data else _EMPTY


def hide(shown: bytes | msgspec.Raw) -> bytes:
    """The bytes that this JSON stands for; ValueError if it is not a form that `show` makes."""
    return undo(_form(shown))


def undo(form: Form | str) -> bytes:
    """The bytes that this form stands for; ValueError if there are none."""
    if isinstance(form, str):
        if form:
            raise ValueError(f"{form[:40]!r} shows no bytes")
        return b""
    if form.b64 is not None:
        return binascii.a2b_base64(form.b64, strict_mode=True)
    pack = _pack if form.escaped else _encode
    if form.items is not None:
        content = _hide_payload(form.items, form.slots, pack)
    elif form.values is not None:
        content = _hide_list(form.values, pack)
    elif form.text is not None:
        content = form.text.encode()
    else:
        raise ValueError("it shows no bytes")
    frame = b"\0" + content
    return frame + _LENGTH.pack(zlib.crc32(frame))


def revealed(shown: bytes | msgspec.Raw, where: str) -> bytes:
    """`hide` for JSON that was read from a file: `Corrupt` if it is invalid."""
    try:
        return hide(shown)
    except NOT_OURS as error:
        raise Corrupt(where, f"not written by backtrail: {error}") from error


# -- forms: each returns JSON that converts back to exactly the content, or None, or raises one of `_NO` ---------------


def _lone_section(content: bytes) -> bytes | None:
    """The form of nearly every payload: one section of plain JSON."""
    sections, slots, stream, start, count, at, length = _LONE.unpack_from(content)
    data = content[_LONE.size :]
    if (sections, slots, length) != (1, 0, len(data)):
        return None
    values = _decode_plain(_ARRAY.pack(0xDD, count) + data)
    if b"".join(map(_encode, values)) != data:
        return None
    text = b'{"items":[{"stream":%d,"start":%d,"at":%d,"of":%b}],"slots":[]}' % (stream, start, at, _to_json(values))
    # The only place for NaN or infinity, which JSON does not have.
    return text if _FLOAT not in data or hide(text)[1:-4] == content else None


def _list_with_bytes(content: bytes) -> bytes | None:
    """A msgpack array. It nearly always holds bytes somewhere (an id), so it is escaped without trying plain JSON."""
    values = _decode_list(content)
    if _encode(values) != content:
        return None
    return _to_json({"list": _escape(values), "escaped": True})


def _tried(show: Callable[[bytes], dict[str, Any]]) -> Callable[[bytes], bytes | None]:
    """A form that is not known to be exact: it is converted back at once, and used only if the bytes are the same."""

    def form(content: bytes) -> bytes | None:
        text = _to_json(show(content))
        return text if hide(text)[1:-4] == content else None

    return form


def _payload(content: bytes) -> dict[str, Any]:
    return _show_payload(content, list)


def _payload_escaped(content: bytes) -> dict[str, Any]:
    return {**_show_payload(content, _escape_each), "escaped": True}


def _show_payload(content: bytes, escape: Callable[[list[Any]], list[Any]]) -> dict[str, Any]:
    sections, slots = _COUNTS.unpack_from(content)
    at = _COUNTS.size
    heads = [_SECTION.unpack_from(content, at + n * _SECTION.size) for n in range(sections)]
    at += sections * _SECTION.size + slots * _LENGTH.size
    items = []
    for stream, start, count, offset, length in heads:
        values = _decode_list(_ARRAY.pack(0xDD, count) + content[at : at + length])
        items.append({"stream": stream, "start": start, "at": offset, "of": escape(values)})
        at += length
    return {"items": items, "slots": escape(_decode_list(_ARRAY.pack(0xDD, slots) + content[at:]))}


def _list_escaped(content: bytes) -> dict[str, Any]:
    return {"list": _escape_each(_decode_list(content)), "escaped": True}


def _text(content: bytes) -> dict[str, Any]:
    return {"text": content.decode()}


#: Forms to try, in this order.
_LIST_FIRST = (
    _list_with_bytes,
    _tried(_list_escaped),
    _lone_section,
    _tried(_payload),
    _tried(_payload_escaped),
    _tried(_text),
)
_PAYLOAD_FIRST = _LIST_FIRST[2:]

# -- and back ----------------------------------------------------------------------------------------------------------

Pack = Callable[[Any], bytes]


def _hide_payload(items: list[Section], slots: list[Any], pack: Pack) -> bytes:
    if len(items) == 1 and not slots:
        lone = items[0]
        data = b"".join(map(pack, lone.of))
        return _LONE.pack(1, 0, lone.stream, lone.start, len(lone.of), lone.at, len(data)) + data
    packed = [b"".join(map(pack, section.of)) for section in items]
    values = [pack(slot) for slot in slots]
    heads = [
        _SECTION.pack(section.stream, section.start, len(section.of), section.at, len(data))
        for section, data in zip(items, packed, strict=True)
    ]
    lengths = [_LENGTH.pack(len(value)) for value in values]
    return b"".join([_COUNTS.pack(len(items), len(slots)), *heads, *lengths, *packed, *values])


def _hide_list(values: list[Any], pack: Pack) -> bytes:
    head = _encode([None] * len(values))
    return head[: len(head) - len(values)] + b"".join(map(pack, values))


# -- values that are not plain JSON ------------------------------------------------------------------------------------


def _escape_each(values: list[Any]) -> list[Any]:
    """Escape each value by itself, so that one that JSON cannot express does not hide the others."""
    found = []
    for value in values:
        try:
            found.append(_escape(value))
        except _NO:
            found.append({_PACKED: _in_base64(_encode(value))})
    return found


def _escape(value: Any) -> Any:
    """The value with its bytes escaped; ValueError if it holds anything else that JSON cannot express."""
    kind = type(value)
    if kind is list:
        return [item if type(item) in _AS_THEY_ARE else _escape(item) for item in value]
    if kind is dict:
        if any(type(key) is not str or key.startswith("$") for key in value):
            raise ValueError("a key that looks like an escape")
        return {key: item if type(item) in _AS_THEY_ARE else _escape(item) for key, item in value.items()}
    if kind is bytes:
        return _escape_bytes(value)
    if kind in _AS_THEY_ARE or (kind is float and isfinite(value)):
        return value
    raise ValueError(f"JSON has no {kind.__name__} like that")


def _escape_bytes(data: bytes) -> dict[str, Any]:
    if data and data[0] in _VALUE_HEADS:
        try:
            value = _decode(data)
            if _encode(value) == data:
                return {"$packed": _escape(value)}
        except _NO:
            return {"$bytes": _in_base64(data)}
    return {"$bytes": _in_base64(data)}


def _in_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _pack(value: Any) -> bytes:
    if isinstance(value, dict) and _PACKED in value:
        return binascii.a2b_base64(value[_PACKED], strict_mode=True)
    return _encode(_unescape(value))


def _unescape(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$packed" in value:
        return _pack(value["$packed"])
    if "$bytes" in value:
        return binascii.a2b_base64(value["$bytes"], strict_mode=True)
    return {key: _unescape(item) for key, item in value.items()}
