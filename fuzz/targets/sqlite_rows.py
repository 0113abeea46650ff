"""SQLite stores with one record changed and its checksums made right again: what a forger can do without a key."""

from __future__ import annotations

import random
import sqlite3
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import zstandard

import backtrail
from backtrail.encode.frame import Frames
from backtrail.engines.base import Branch
from backtrail.errors import DECODE_ERRORS
from backtrail.history.records import NO_DIGEST, body_digest, chain, first_link, seal_branch
from fuzz.mutate import BYTES, INTEGERS, TEXTS, change, damage
from fuzz.targets import battery

_FRAMED = {
    ("steps", "meta"),
    ("steps", "root"),
    ("steps", "payload"),
    ("marks", "data"),
    ("heads", "note"),
    ("blobs", "data"),
}
_TABLES = ("branches", "steps", "steps", "steps", "stretches", "marks", "heads", "heads", "blobs")


@cache
def _store(compression: str | None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.db")
        with backtrail.open(path, compression=compression, durability="normal") as store:
            battery.fill(store)
        return without_wal(path)


def without_wal(path: Path) -> bytes:
    """The bytes of a database, which a connection to memory can take over: that has no write-ahead log."""
    data = path.read_bytes()
    return data[:18] + b"\x01\x01" + data[20:]


def make(rng: random.Random) -> bytes:
    """A store with a few of its cells changed."""
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.deserialize(_store(rng.choice((None, "zstd"))))
    for _ in range(rng.choice((1, 1, 2, 4))):
        change_cell(connection, rng)
    if rng.random() < 0.8:
        seal_again(connection)
    connection.commit()
    return connection.serialize()


def attempt(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.db")
        path.write_bytes(data)
        with backtrail.open(path, durability="normal") as store:
            battery.read_all(store)
            battery.write_some(store)


def change_cell(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(_TABLES)
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    name = rng.choice(names)
    values = [row[0] for row in connection.execute(f"SELECT {name} FROM {table}")]
    if not values:
        return
    number = rng.randrange(len(values))
    new = values[rng.randrange(len(values))] if rng.random() < 0.2 else _other(values[number], (table, name), rng)
    keys = [row[5] for row in connection.execute(f"PRAGMA table_info({table})")]
    key = [column for column, position in zip(names, keys, strict=True) if position]
    chosen = connection.execute(f"SELECT {', '.join(key)} FROM {table} LIMIT 1 OFFSET {number}").fetchone()
    try:
        where = " AND ".join(f"{column} IS ?" for column in key)
        connection.execute(f"UPDATE {table} SET {name} = ? WHERE {where}", (new, *chosen))
    except (sqlite3.Error, OverflowError):  # SQLite itself does not allow it: a forger could not either
        return


def _other(value: Any, column: tuple[str, str], rng: random.Random) -> Any:
    if isinstance(value, int):
        return rng.choice((*INTEGERS, value + 1, value - 1, rng.choice(TEXTS), None))
    if isinstance(value, str):
        return rng.choice((*TEXTS, value + "x", 7, b"x", None))
    if not isinstance(value, bytes):
        return rng.choice((1, b"", "x"))
    return _reframe(value, rng) if column in _FRAMED else rng.choice((damage(value, rng), *BYTES, 7, "text"))


def _reframe(frame: bytes, rng: random.Random) -> bytes:
    """A frame whose content is changed, as a tree where it is one, with the right checksum."""
    kind, content = frame[:1], frame[1:-4]
    if kind == b"\x01":
        content = zstandard.ZstdDecompressor().decompress(content, max_output_size=2**24)
    try:
        content = (
            msgspec.msgpack.encode(change(msgspec.msgpack.decode(content), rng))
            if rng.random() < 0.7
            else damage(content, rng)
        )
    except (*DECODE_ERRORS, OverflowError):
        content = damage(content, rng)
    if kind == b"\x01":
        content = zstandard.ZstdCompressor().compress(content)
    if rng.random() < 0.1:
        kind = bytes([rng.randrange(5)])
    return _with_checksum(kind + content)


def _with_checksum(frame: bytes) -> bytes:
    return frame + struct.pack("<I", zlib.crc32(frame))


def seal_again(connection: sqlite3.Connection) -> None:
    """Make seals of branches, body digests and the chain of digests fit the records as they are now."""
    frames = Frames()
    digests: dict[tuple[Any, Any], bytes] = {}  # by branch and step
    for n, id, lineage, thread, owner, origin, origin_step in connection.execute(
        "SELECT n, id, lineage, thread, owner, origin, origin_step FROM branches ORDER BY n"
    ).fetchall():
        try:
            branch = Branch(id, lineage, thread, owner, None if origin is None else (origin, origin_step))
            before = digests.get((origin, origin_step), NO_DIGEST)
            previous = first_link(branch, before)
            connection.execute(
                "UPDATE branches SET seal = ? WHERE n = ?", (seal_branch(frames, branch, before).seal, n)
            )
            for pos, step, row, meta, root, payload in connection.execute(
                "SELECT pos, step, id, meta, root, payload FROM steps WHERE branch = ? ORDER BY step", (n,)
            ).fetchall():
                fields = msgspec.msgpack.decode(meta[1:-4])
                fields[4] = body_digest(root, payload)
                meta = _with_checksum(b"\x00" + msgspec.msgpack.encode(fields))
                previous = digests[id, step] = chain(previous, row, meta)
                connection.execute("UPDATE steps SET meta = ?, digest = ? WHERE pos = ?", (meta, previous, pos))
        except (
            TypeError,
            IndexError,
            ValueError,
            AttributeError,
            LookupError,
            struct.error,
            msgspec.DecodeError,
            OverflowError,
        ):
            continue  # not a record any more that could be sealed
