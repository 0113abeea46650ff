"""The floor: the time that the machine itself needs to write the same new bytes durably, and to encode them."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import Job, SyncContender

SYNCHRONOUS = {"full": "PRAGMA synchronous=FULL", "normal": "PRAGMA synchronous=NORMAL"}
_encode = msgspec.msgpack.Encoder().encode


class BareSqliteCommit(SyncContender):
    """A bare sqlite3 commit of one row: WAL, 8 KB pages, the new messages already encoded."""

    name = "floor: bare sqlite3 commit"

    def __init__(self, directory: Path, durability: str = "full") -> None:
        self._db = sqlite3.connect(directory / "floor.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA page_size=8192")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(SYNCHRONOUS[durability])
        self._db.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")

    def prepare(self, job: Job) -> Any:
        return (_encode(job.new),)

    def save(self, prepared: Any) -> None:
        self._db.execute("INSERT INTO log (data) VALUES (?)", prepared)

    def close(self) -> None:
        self._db.close()


class MsgspecEncode(SyncContender):
    """No store at all: msgspec encodes the whole state."""

    name = "msgspec encodes the state"

    def prepare(self, job: Job) -> Any:
        return job.state

    def save(self, prepared: Any) -> None:
        _encode(prepared)


class JsonFileRewrite(SyncContender):
    """The whole state as one JSON file: written to a temporary file, fsynced, renamed."""

    name = "JSON file, fsync + rename"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "state.json"
        self._temporary = directory / "state.json.new"

    def prepare(self, job: Job) -> Any:
        return job.state

    def save(self, prepared: Any) -> None:
        with self._temporary.open("w", encoding="utf-8") as file:
            json.dump(prepared, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        self._temporary.replace(self._path)


class JsonLinesAppend(SyncContender):
    """One line per message at the end of a file, then fsync."""

    name = "JSONL append, fsync"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "log.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def prepare(self, job: Job) -> Any:
        return job.new

    def save(self, prepared: Any) -> None:
        lines = "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in prepared)
        os.write(self._file, lines.encode())
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)
