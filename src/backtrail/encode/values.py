"""Values <-> bytes, exactly: every value is decoded with the type it was encoded with.

The bytes are msgpack, written and read by msgspec. Plain values (None, bool, int, float, str, bytes, list, dict with
string keys) are msgpack's own; everything else is an extension, because msgspec by itself would turn a tuple into a
list and a UUID into a string. Most values are plain, so the encoder first checks if anything has to be replaced, and
passes the caller's own object to msgspec if not.

A Python str may hold half of a surrogate pair: a stream that was cut within an emoji, a transcript of a JavaScript
program. UTF-8 has no form for it, so such a string is an extension too. Strings are not searched for it: msgspec
refuses the value, and only then it is encoded again, with care.

An encoder refuses whatever its decoder would refuse: what was saved can be loaded.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from backtrail.encode.budget import COLLISIONS, Meter, check_keys, collisions
from backtrail.encode.record_types import Types, Unreadable, Unregistered, is_name, is_record
from backtrail.errors import BacktrailError, Corrupt, EncodeError

MAX_DEPTH = 128
MAX_VALUE = 128 * 1024 * 1024  # bytes of one encoded value: a larger one belongs into a file

_TUPLE, _SET, _FROZENSET, _INT, _DATETIME, _DATE, _TIME, _DELTA, _UUID, _DECIMAL, _MAP, _RECORD, _BYTEARRAY, _TEXT = (
    range(1, 15)
)
_ENCODER = msgspec.msgpack.Encoder()
_LOW, _HIGH = -(2**63), 2**64
_Ext = msgspec.msgpack.Ext


_PLAIN = frozenset({str, bool, float, bytes, type(None)})
_HASHED = frozenset({_SET, _FROZENSET, _MAP})
_MANY = 4096  # extensions in a value from which on its keys are looked at
_COLLIDE = "has too many members with the same hash"


class _Many(Exception):
    """Ends a decoding that meets many extensions."""


class _Refused(Exception):
    """Unwinds to `encode`, collecting the path on the way."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.parts: list[str] = []


def is_plain(value: Any, depth: int = 0) -> bool:
    """True if msgspec alone preserves `value` exactly."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int:
        return bool(_LOW <= value < _HIGH)
    if depth > MAX_DEPTH:
        return False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _PLAIN and not is_plain(item, depth + 1)):
                return False
        return True
    if kind is list:
        for item in value:  # noqa: SIM110  # half the time of all()
            if type(item) not in _PLAIN and not is_plain(item, depth + 1):
                return False
        return True
    return False


class Values:
    """The codec of one store, with its registered types. It has no other state and is safe to share."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.meter: Meter | None = None  #: of the load that this is for
        self._extensions = [0]  # in the value that is being decoded; one list for all copies, as they share the decoder
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._rebuild_few)

    def metered(self, meter: Meter) -> Values:
        """The same codec; what it decodes is charged to `meter`."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, meter=meter)
        return other

    def encode(self, value: Any, path: str = "state", depth: int = 0) -> bytes:
        """The canonical bytes of `value`; `EncodeError` names a part that cannot be encoded."""
        try:
            data = self._encode(value, depth)
        except _Refused as refused:
            raise EncodeError(path + "".join(reversed(refused.parts)), refused.reason) from refused.__cause__
        if len(data) > MAX_VALUE:
            limit = MAX_VALUE >> 20
            raise EncodeError(path, f"encodes to {len(data):,} bytes, more than {limit} MiB: keep it in a file")
        return data

    def decode(self, data: bytes, where: str = "a value") -> Any:
        """The value that `encode` encoded; `Corrupt` if the bytes are invalid."""
        if self.meter is not None:
            self.meter.decode(data)
        self._extensions[0] = 0
        try:
            return self._decoder.decode(data)
        except _Many:
            return self._decode_many(data, where)
        except BacktrailError:
            raise
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:  # msgspec's own are ValueErrors
            raise Corrupt(where, str(error)) from error

    def _decode_many(self, data: bytes, where: str) -> Any:
        """`decode` for a value with many extensions. msgspec would make dicts with them as keys, however their hashes
        collide; so such dicts, which backtrail does not write, are looked for first."""
        try:
            check_keys(data)
            return msgspec.msgpack.Decoder(ext_hook=self._rebuild_any).decode(data)
        except BacktrailError:
            raise
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise Corrupt(where, str(error)) from error

    def decode_items(self, parts: Sequence[bytes | memoryview], count: int, where: str) -> list[Any]:
        """The items of a list from the concatenation of their encodings."""
        items = self.decode(b"".join([b"\xdd", count.to_bytes(4, "big"), *parts]), where)
        assert type(items) is list  # an array32 header decodes to nothing else
        return items

    # -- replacing what msgpack has no word for -------------------------------------------------------------------

    def _encode(self, value: Any, depth: int) -> bytes:
        try:
            return _ENCODER.encode(value if is_plain(value, depth) else self._pack(value, depth))
        except UnicodeEncodeError:  # a string holds half of a surrogate pair
            return _ENCODER.encode(_CarefulValues(self.types)._pack(value, depth))  # noqa: SLF001  # a Values

    def _pack(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is float or kind is bytes:
            return value
        if kind is int:
            if _LOW <= value < _HIGH:
                return value
            return _Ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
        if depth > MAX_DEPTH:
            raise _Refused(f"is nested more than {MAX_DEPTH} levels deep, or contains itself")
        if kind is dict:
            return self._pack_dict(value, depth)
        if kind is list:
            return self._pack_items(value, depth)
        if kind is tuple:
            return _Ext(_TUPLE, _ENCODER.encode(self._pack_items(value, depth)))
        if kind is set or kind is frozenset:
            if collisions(list(value)) > COLLISIONS:
                raise _Refused(_COLLIDE)
            members = sorted(_ENCODER.encode(self._pack(item, depth + 1)) for item in value)
            data = b"\xdd" + len(members).to_bytes(4, "big") + b"".join(members)
            return _Ext(_SET if kind is set else _FROZENSET, data)
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            code, to_bytes = scalar
            try:
                return _Ext(code, to_bytes(value))
            except UnicodeEncodeError:
                raise
            except Exception as error:  # whatever a user's tzinfo raises
                raise _Refused(f"is a {kind.__name__} that cannot be written: {error!r}") from error
        return self._pack_record(value, depth)

    def _pack_items(self, items: Any, depth: int) -> list[Any]:
        packed = []
        try:
            for item in items:
                packed.append(self._pack(item, depth + 1))  # noqa: PERF401  # on an error, the path needs the number of items done
        except _Refused as refused:
            refused.parts.append(f"[{len(packed)}]")
            raise
        return packed

    def _pack_dict(self, value: dict[Any, Any], depth: int) -> Any:
        packed: list[Any] = []
        key: Any = None
        try:
            for key, item in value.items():
                if type(key) is not str:
                    self._refuse_odd_key(key)
                packed += (self._pack(key, depth + 1), self._pack(item, depth + 1))
        except _Refused as refused:
            refused.parts.append(f"[{key!r}]" if type(key) is not str else f'["{key}"]')
            raise
        if not all(type(key) is str for key in value) and collisions(list(value)) > COLLISIONS:
            raise _Refused(_COLLIDE)
        return _as_map(packed)

    def _refuse_odd_key(self, key: Any) -> None:
        if key != key:  # NaN: no lookup would ever find it again
            raise _Refused("is a key that is not equal to itself")
        if type(key) not in _KEYS and type(key) is not Unregistered and type(key) not in self.types.by_class:
            raise _Refused(f"is a key of type {type(key).__qualname__}, which has no encoding: use a string")

    def _pack_record(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is Unregistered:
            if not is_name(value.type):
                raise _Refused(f"is an Unregistered whose type is {value.type!r:.80}, not a name")
            return _Ext(_RECORD, _ENCODER.encode([value.type, self._pack(value.value, depth + 1)]))
        known = self.types.by_class.get(kind)
        if known is None:
            name = kind.__qualname__
            if is_record(kind) or issubclass(kind, enum.Enum):
                raise _Refused(f"is a {name}, which is not registered: add it with types=[{name}]")
            raise _Refused(f"is a {name}, which is not registered and no record: convert it to plain values first")
        try:
            fields = known.take_apart(value)
        except Unreadable as error:
            raise _Refused(str(error)) from error
        packed: list[Any] = []
        name = ""
        try:
            for name, item in fields.items():
                packed += (self._pack(name, depth + 1), self._pack(item, depth + 1))
        except _Refused as refused:
            refused.parts.append(f".{name}")
            raise
        return _Ext(_RECORD, _ENCODER.encode([known.name, _as_map(packed)]))

    # -- and back ---------------------------------------------------------------------------------------------------

    def _rebuild_few(self, code: int, data: memoryview) -> Any:
        self._extensions[0] += 1
        if self._extensions[0] > _MANY:
            raise _Many
        return self._rebuild(code, data, self._decoder)

    def _rebuild_any(self, code: int, data: memoryview) -> Any:
        return self._rebuild(code, data, msgspec.msgpack.Decoder(ext_hook=self._rebuild_any))

    def _rebuild(self, code: int, data: memoryview, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
        build = _BUILDERS.get(code)
        if build is not None:
            return build(bytes(data))
        inner = decoder.decode(data)
        hashed = inner if type(inner) is list and code in _HASHED else []
        if collisions(hashed[::2] if code == _MAP else hashed) > COLLISIONS:
            raise ValueError(_COLLIDE)
        match code, inner:
            case int(), list() if code == _TUPLE:
                return tuple(inner)
            case int(), list() if code == _SET:
                return set(inner)
            case int(), list() if code == _FROZENSET:
                return frozenset(inner)
            case int(), list() if code == _MAP and len(inner) % 2 == 0:
                return dict(zip(inner[::2], inner[1::2], strict=True))
            case int(), [str() as name, fields] if code == _RECORD:
                return self.build(name, fields)
        raise msgspec.DecodeError(f"extension {code} is unknown: written by a newer version of backtrail?")

    def build(self, name: str, fields: Any) -> Any:
        """A record from its name and fields; `Unregistered` if the name is not registered in this store."""
        known = self.types.by_name.get(name)
        if known is None or type(fields) is not dict:
            return Unregistered(name, fields)
        try:
            return known.build(fields)
        except BacktrailError:
            raise
        except Exception as error:  # whatever a user's class raises: the error names the class
            raise EncodeError(f"<{name}>", f"the registered type refused what was saved: {error}") from error


class _CarefulValues(Values):
    """Encodes values in which a string holds half of a surrogate pair."""

    def _pack(self, value: Any, depth: int) -> Any:
        if type(value) is not str or is_clean(value):
            return super()._pack(value, depth)
        return _Ext(_TEXT, text_bytes(value))


def is_clean(text: str) -> bool:
    """True if a string has a UTF-8 form."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_bytes(text: str) -> bytes:
    """The UTF-8 of a str; half of a surrogate pair, for which UTF-8 has no form, as the three bytes of its number."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """The str that `text_bytes` encoded."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogatepass")


def _as_map(packed: list[Any]) -> Any:
    """A dict from the encodings of its keys and values in turns."""
    keys = packed[::2]
    if all(type(key) is str for key in keys):
        return dict(zip(keys, packed[1::2], strict=True))
    return _Ext(_MAP, _ENCODER.encode(packed))


def zone_name(value: dt.datetime | dt.time) -> str | None:
    """The name of the time zone, if it has one."""
    zone = value.tzinfo
    if zone is None or type(zone) is dt.timezone:
        return None
    import zoneinfo  # a process that never sees a zone does not wait for it

    name = zone.key if isinstance(zone, zoneinfo.ZoneInfo) else None
    return name if is_name(name) else None


def in_zone(value: Any, name: str) -> Any:
    """A datetime or time in the zone of that name. If this machine does not know the zone, the value is returned as it
    is: a datetime with the offset that was stored with it, a time without any."""
    import zoneinfo

    try:
        return value.replace(tzinfo=zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a directory of zones
        return value


def _datetime_bytes(value: dt.datetime) -> bytes:
    return _ENCODER.encode([value.isoformat(), zone_name(value), value.fold])


def _datetime(data: bytes) -> dt.datetime:
    text, zone, fold = msgspec.msgpack.decode(data, type=tuple[str, str | None, int])
    value = dt.datetime.fromisoformat(text).replace(fold=fold)
    return value if zone is None else in_zone(value, zone)


def _time_bytes(value: dt.time) -> bytes:
    """The ISO text; with the zone's name and `fold` if there are any, as for a datetime."""
    zone = zone_name(value)
    if zone is None and not value.fold:
        return value.isoformat().encode()
    return _ENCODER.encode([value.replace(tzinfo=None).isoformat() if zone else value.isoformat(), zone, value.fold])


def _time(data: bytes) -> dt.time:
    if data[:1].isdigit():
        return dt.time.fromisoformat(data.decode())
    text, zone, fold = msgspec.msgpack.decode(data, type=tuple[str, str | None, int])
    value = dt.time.fromisoformat(text).replace(fold=fold)
    return value if zone is None else in_zone(value, zone)


def _delta_bytes(value: dt.timedelta) -> bytes:
    return _ENCODER.encode([value.days, value.seconds, value.microseconds])


_SCALARS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    dt.datetime: (_DATETIME, _datetime_bytes),
    dt.date: (_DATE, lambda value: value.isoformat().encode()),
    dt.time: (_TIME, _time_bytes),
    dt.timedelta: (_DELTA, _delta_bytes),
    uuid.UUID: (_UUID, lambda value: value.bytes),
    decimal.Decimal: (_DECIMAL, lambda value: str(value).encode()),
    bytearray: (_BYTEARRAY, bytes),
}
_BUILDERS: dict[int, Callable[[bytes], Any]] = {
    _INT: lambda data: int.from_bytes(data, "big", signed=True),
    _DATETIME: _datetime,
    _DATE: lambda data: dt.date.fromisoformat(data.decode()),
    _TIME: _time,
    _DELTA: lambda data: dt.timedelta(*msgspec.msgpack.decode(data, type=tuple[int, int, int])),
    _UUID: lambda data: uuid.UUID(bytes=data),
    _DECIMAL: lambda data: decimal.Decimal(data.decode()),
    _BYTEARRAY: bytearray,
    _TEXT: bytes_text,
}
_KEYS = {
    int,
    float,
    bool,
    type(None),
    bytes,
    tuple,
    frozenset,
    uuid.UUID,
    decimal.Decimal,
    dt.datetime,
    dt.date,
    dt.time,
}
