"""Tells a disk that fails from a file that is damaged: SQLite reports both as "malformed".

SQLite turns an input/output error of a read into SQLITE_CORRUPT. So a call that found damage is repeated once, on a new
connection: a passing fault is over by then. If there is damage again, all bytes of the store are read. Only if that
succeeds, the bytes are there, and do not fit.

A descriptor of the database file stays open as long as this process has the store open: closing it would release the
locks that SQLite has on the same file, because POSIX locks belong to the process.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from backtrail.owned_files import open_regular

R = TypeVar("R")
_CHUNK = 1 << 20
_VALID = 10.0  # seconds, and times the duration of a check: for so long a good result holds

Identity = tuple[int, int]  # device and inode
_KEPT: dict[Identity, int] = {}  # descriptors
_GUARD = threading.Lock()


def looks_damaged(error: BaseException) -> bool:
    """True if SQLite reports damage, or could not read."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def twice_if_damaged(attempt: Callable[[], R]) -> R:
    """Repeat an attempt that found damage. It uses a new connection each time."""
    try:
        return attempt()
    except sqlite3.DatabaseError as error:
        if not looks_damaged(error):
            raise
    return attempt()


class DiskCheck:
    """Whether all bytes of a store can be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._valid_until = 0.0

    def fault(self) -> OSError | None:
        """The error of reading the store's bytes; None if all of them can be read, or could be a short while ago."""
        begun = time.monotonic()
        if begun < self._valid_until:
            return None
        try:
            _read(self._descriptor())
            for suffix in ("-wal", "-journal"):  # SQLite has no locks on these
                beside = self._path.with_name(self._path.name + suffix)
                if beside.exists():
                    fd = open_regular(beside)
                    try:
                        _read(fd)
                    finally:
                        os.close(fd)
        except OSError as error:
            return error
        now = time.monotonic()
        self._valid_until = now + _VALID * max(1.0, now - begun)
        return None

    def _descriptor(self) -> int:
        found = self._path.stat()
        identity = (found.st_dev, found.st_ino)
        with _GUARD:
            if identity not in _KEPT:
                _KEPT[identity] = open_regular(self._path)
            return _KEPT[identity]


def release(identity: Identity) -> None:
    """Close the descriptor of a file that nobody in this process has open any more."""
    with _GUARD:
        fd = _KEPT.pop(identity, None)
    if fd is not None:
        os.close(fd)


def _read(fd: int) -> None:
    offset = 0
    while part := os.pread(fd, _CHUNK, offset):
        offset += len(part)
