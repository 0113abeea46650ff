"""Reads the values that LangGraph's own serializer wrote, without running any code that they name.

That serializer stores an object as the names of a module and a class with the arguments to call it with; its default is
to import and call whatever is named. Here a name is only looked up: in a fixed table of harmless classes, and among the
classes that the caller passed in. An object of any other class becomes its arguments, which are plain data. Nothing is
imported by name, no method is called by name, and pickled values are refused.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import importlib
import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Item
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

from backtrail.adapters.langgraph.message_codec import MESSAGE_CLASSES
from backtrail.errors import DECODE_ERRORS, UnsupportedFormat

_MAX_DEPTH = 128  # of objects in objects
_NUMPY_DTYPE = re.compile(r"[<>|=]?[?bBiufcSUmM]\d{0,6}(\[\d{0,6}[a-zA-Z]{1,2}\])?", re.ASCII)

# LangGraph's codes of msgpack extensions
_ONE_ARGUMENT, _ARGUMENTS, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC_2, _NUMPY, _SNAPSHOT = range(8)

_SAFE: Final[tuple[type, ...]] = (
    dt.date,
    dt.time,
    dt.timedelta,
    dt.timezone,
    uuid.UUID,
    decimal.Decimal,
    set,
    frozenset,
    collections.deque,
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
    zoneinfo.ZoneInfo,
    Document,
    Command,
    GetOp,
    Interrupt,
    Item,
    Overwrite,
    TimeoutPolicy,
    *MESSAGE_CLASSES,
)


def _send(*args: Any, **kwargs: Any) -> Send:
    node, arg, *timeout = args or (kwargs["node"], kwargs["arg"])
    return Send(node, arg, timeout=timeout[0]) if timeout else Send(node, arg)


def _safe_builders() -> dict[tuple[str, str], Callable[..., Any]]:
    """(module, name) -> what builds such an object. No entry calls anything that its arguments name."""
    table: dict[tuple[str, str], Callable[..., Any]] = {(one.__module__, one.__name__): one for one in _SAFE}
    for module in ("pathlib", "pathlib._local"):
        for name in ("Path", "PosixPath", "WindowsPath"):
            table[module, name] = pathlib.Path
    for module in ("langgraph.types", "langgraph.constants"):
        table[module, "Send"] = _send
    # Before its constructors had extensions of their own, LangGraph wrote a datetime and bytes as a method's call.
    table["datetime", "datetime"] = _moment
    table["builtins", "bytes"] = bytes.fromhex
    table["builtins", "bytearray"] = bytearray.fromhex
    return table


def _moment(*args: Any, **kwargs: Any) -> dt.datetime:
    if len(args) == 1 and not kwargs:
        return dt.datetime.fromisoformat(args[0])
    return dt.datetime(*args, **kwargs)


_BUILDERS: Final = _safe_builders()
_LANGCHAIN_CLASSES: Final[dict[str, type]] = {"Document": Document, **{cls.__name__: cls for cls in MESSAGE_CLASSES}}


class StrictValues:
    """Decodes stored values, and keeps the names of the classes that it did not rebuild."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._builders = dict(_BUILDERS)
        for cls in types:
            self._builders[cls.__module__, cls.__name__] = cls
        self._depth = 0
        self.made_plain: set[str] = set()  #: `module.Class` of objects that became plain data

    def decode(self, kind: str | None, data: bytes | None) -> Any:
        """The value that was stored as `data` of this kind; `UnsupportedFormat` if it cannot be read safely."""
        if kind == "null":
            return None
        if not isinstance(data, bytes):
            raise UnsupportedFormat(f"a value of kind {kind!r} is not stored as bytes")
        if kind == "bytes":
            return data
        if kind == "bytearray":
            return bytearray(data)
        try:
            if kind == "msgpack":
                return self._unpack(data)
            if kind == "json":
                return self.decode_json(data)
        except (*DECODE_ERRORS, TypeError, OverflowError) as error:
            raise UnsupportedFormat(f"a value of kind {kind!r} is damaged: {error}") from error
        if kind == "pickle":
            raise UnsupportedFormat("a value is pickled, and reading it could run code")
        raise UnsupportedFormat(f"a value is of kind {kind!r:.80}, which only the serializer that wrote it can read")

    def decode_json(self, text: bytes | str) -> Any:
        """A value of the JSON that LangGraph wrote before msgpack, and still writes for metadata."""
        return json.loads(text, object_hook=self._revive)

    # -- msgpack ------------------------------------------------------------------------------------------------------

    def _unpack(self, data: bytes | memoryview) -> Any:
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH:
                raise ValueError(f"it has objects in objects, more than {_MAX_DEPTH} deep")
            return msgspec.msgpack.Decoder(ext_hook=self._extension).decode(data)
        finally:
            self._depth -= 1

    def _extension(self, code: int, data: memoryview) -> Any:
        if not 0 <= code <= _SNAPSHOT:
            return bytes(data)
        content = self._unpack(data)
        if code == _SNAPSHOT:
            return _DeltaSnapshot(content)
        if code == _NUMPY:
            return _array(content)
        if type(content) is not list or len(content) < 3 or type(content[0]) is not str or type(content[1]) is not str:
            return content
        module, name, payload = content[:3]
        if code == _METHOD and (module, name, content[3:]) != ("datetime", "datetime", ["fromisoformat"]):
            return payload
        if code in (_ONE_ARGUMENT, _METHOD):
            return self._build(module, name, payload, (payload,), {})
        if code == _ARGUMENTS and type(payload) is list:
            return self._build(module, name, payload, tuple(payload), {})
        if code in (_KEYWORDS, _PYDANTIC_1, _PYDANTIC_2) and type(payload) is dict:
            return self._build(module, name, payload, (), payload)
        return payload

    def _build(self, module: str, name: str, payload: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """An object of a class in the table, or else its arguments."""
        builder = self._builders.get((module, name))
        if builder is None:
            self.made_plain.add(f"{module}.{name}")
            return payload
        try:
            return builder(*args, **kwargs)
        except Exception:  # noqa: BLE001  # a class may refuse its arguments with any error
            construct = getattr(builder, "model_construct", None)
            if construct is not None and not args and all(type(key) is str for key in kwargs):
                return construct(**kwargs)
            self.made_plain.add(f"{module}.{name}")
            return payload

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def _revive(self, value: dict[str, Any]) -> Any:
        """An object of JSON, or the instance that it describes."""
        id = value.get("id")
        if value.get("type") != "constructor" or type(id) is not list or not all(type(part) is str for part in id):
            return value
        args, kwargs = value.get("args") or (), value.get("kwargs") or {}
        if not isinstance(args, list | tuple) or not isinstance(kwargs, dict) or len(id) < 2:
            return value
        payload = kwargs or (list(args) if len(args) != 1 else args[0])
        if value.get("lc") == 2:
            return self._build(".".join(id[:-1]), id[-1], payload, tuple(args), kwargs)
        if value.get("lc") == 1:  # LangChain's own ids are no module paths
            cls = _LANGCHAIN_CLASSES.get(id[-1]) if id[0] in ("langchain", "langchain_core") else None
            return self._build(cls.__module__ if cls else ".".join(id[:-1]), id[-1], payload, (), kwargs)
        return value


def _array(content: Any) -> Any:
    """A numpy array of numbers or text; its bytes if it is something else, or if numpy is not installed."""
    if type(content) is not list or len(content) != 4:
        return content
    dtype, shape, order, data = content
    if type(dtype) is not str or not _NUMPY_DTYPE.fullmatch(dtype) or type(data) is not bytes:
        return content
    try:
        numpy: Any = importlib.import_module("numpy")
        return numpy.frombuffer(data, dtype=numpy.dtype(dtype)).reshape(shape, order=order)
    except (ImportError, ValueError, TypeError, OverflowError, MemoryError):
        return content
