"""A small pool of connections that read while the writer writes. Last in, first out: the warmest is taken first."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from typing import Any

from backtrail.engines import conflicts
from backtrail.engines.retry import DRAIN_POLL
from backtrail.engines.sqlite.database_file import DRIVER, DatabaseFile
from backtrail.engines.sqlite.disk_check import twice_if_damaged

KEPT = 4  #: idle connections that stay open


class ReaderPool:
    """Runs one SELECT at a time on each connection, and returns the connection to the pool at once."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._idle: list[sqlite3.Connection] = []
        self._all: set[sqlite3.Connection] = set()
        self._opening = threading.Lock()
        self._closed = False

    def fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            return twice_if_damaged(lambda: self._fetch(sql, values))
        except DRIVER as error:
            raise self._file.translated(error) from error

    def _fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            found = connection.execute(sql, values).fetchall()
        except BaseException:
            self._discard(connection)
            raise
        if self._file.immutable:
            self._discard(connection)
        else:
            self._idle.append(connection)
            if len(self._idle) > KEPT:  # checked afterwards: many threads that check before could all find room
                self._thin_out()
        return found

    def close(self, deadline: float = float("inf")) -> None:
        """Close for good; waits for reads in progress, but not past the deadline (`time.monotonic`)."""
        self._closed = True
        with self._opening:
            self.drain(deadline)

    def drain(self, deadline: float) -> None:
        """Close every connection. The caller has called `pause()`: otherwise new reads could keep this from ending."""
        while self._all and time.monotonic() < deadline:
            try:
                self._discard(self._idle.pop())
            except IndexError:
                time.sleep(DRAIN_POLL.backoff)

    def pause(self) -> None:
        """From now on, a reader that finds no idle connection waits for `resume()`."""
        self._opening.acquire()

    def resume(self) -> None:
        self._opening.release()

    def renew(self) -> set[sqlite3.Connection]:
        """In a forked child: start anew. Returns the connections that the parent could not close, never to be used."""
        left, self._all, self._idle = self._all, set(), []
        self._opening = threading.Lock()
        return left

    def _open(self) -> sqlite3.Connection:
        with self._opening:
            if self._closed:
                raise conflicts.closed("SQLite")
            connection = self._file.connect()
            self._all.add(connection)
            return connection

    def _thin_out(self) -> None:
        """Close an idle connection, if there still is one."""
        try:
            self._discard(self._idle.pop(0))
        except IndexError:
            return

    def _discard(self, connection: sqlite3.Connection) -> None:
        connection.close()
        self._all.discard(connection)
