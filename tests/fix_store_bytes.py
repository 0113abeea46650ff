"""Everything that a store keeps, as the bytes that its engine keeps: for tests that look for a planted secret.

Stores are opened without compression, so that a secret in them can be found.
"""

from __future__ import annotations

import base64
import gc
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import psycopg
import pytest
import redis
from psycopg import sql

from backtrail.engines.memory import MemoryEngine
from fix_stores import address

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}")


class StoreOnDisk(NamedTuple):
    """A store's address, and what reads all bytes behind it."""

    target: Any
    options: dict[str, Any]
    contents: Callable[[], bytes]


def store_on_disk(engine: str, api: str, tmp_path: Path, request: pytest.FixtureRequest) -> StoreOnDisk:
    """An empty store of an engine."""
    if engine == "memory":
        shared = MemoryEngine()
        return StoreOnDisk(shared, {"compression": None}, lambda: b"\n".join(_bytes_in(vars(shared))))
    url, options = address(engine, api, tmp_path, request)
    options = {**options, "compression": None}
    if engine == "sqlite":
        return StoreOnDisk(url, options, lambda: _file_contents(tmp_path))
    if engine == "jsonl":
        return StoreOnDisk(url, options, lambda: _jsonl_contents(Path(str(url).removeprefix("jsonl:"))))
    read = _redis_contents if engine == "redis" else _postgres_contents
    return StoreOnDisk(url, options, lambda: read(url, options))


def _file_contents(directory: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())


def _jsonl_contents(directory: Path) -> bytes:
    """All files, and what the base64 in them stands for."""
    contents = _file_contents(directory)
    return b"\n".join([contents, *(base64.b64decode(found + b"===") for found in _BASE64.findall(contents))])


def _bytes_in(root: Any) -> list[bytes]:
    """All bytes and text inside an object of Python."""
    found: list[bytes] = []
    seen: dict[int, Any] = {}
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, bytes | bytearray | memoryview):
            found.append(bytes(value))
        elif isinstance(value, str):
            found.append(value.encode("utf-8", "surrogatepass"))
        elif id(value) not in seen and not isinstance(value, type | ModuleType | FunctionType):
            seen[id(value)] = value
            left += gc.get_referents(value)
    return found


def _redis_contents(url: str, options: dict[str, Any]) -> bytes:
    found: list[bytes] = []
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"*{options['prefix']}*", count=1000):
            kind = client.type(key)
            read: dict[bytes, Callable[[], Any]] = {
                b"string": lambda key=key: client.get(key),
                b"hash": lambda key=key: client.hgetall(key),
                b"list": lambda key=key: client.lrange(key, 0, -1),
                b"set": lambda key=key: client.smembers(key),
                b"zset": lambda key=key: client.zrange(key, 0, -1),
            }
            found += [key, *_bytes_in(read[kind]())]
    return b"\n".join(found)


def _postgres_contents(url: str, options: dict[str, Any]) -> bytes:
    found: list[bytes] = []
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [options["schema"]])
        for (table,) in tables.fetchall():
            query = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(options["schema"], table))
            with connection.cursor().copy(query) as copy:
                found += [bytes(part) for part in copy]
    return b"".join(found)
