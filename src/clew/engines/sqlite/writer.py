"""The one connection that writes, and group commit: writers that wait share one transaction, so one fsync.

Whoever holds the mutex writes. A writer that finds it taken puts a ticket into the queue and waits for the mutex like
everybody else; whoever gets it next (the leader) commits all tickets that are queued by then in one transaction, and
the others (the followers) find their tickets done when their turn comes. No extra thread, no timer, and a lone writer
pays two uncontended locks. With more than one ticket each has its own savepoint, so that one that is refused does not
take the others with it.

Writers of other processes queue on a lock file around BEGIN … COMMIT: the kernel wakes them one after another, where
SQLite's own busy handler would sleep and poll.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from clew.engines import refusals
from clew.engines.lockfile import LockFile
from clew.engines.sqlite.place import Place, translated
from clew.errors import ClewError, Unavailable

A = TypeVar("A")
R = TypeVar("R")
Work = Callable[[sqlite3.Cursor, A], R]

_DRIVER = (sqlite3.Error, OSError, OverflowError)
_REFUSED = (ClewError, *_DRIVER, ValueError, TypeError)  #: what fails one ticket and not the others


class _Ticket:
    """A piece of work that waits for its transaction."""

    __slots__ = ("argument", "done", "error", "result", "work")

    def __init__(self, work: Work[Any, Any], argument: Any) -> None:
        self.work = work
        self.argument = argument
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None


class _Line(NamedTuple):
    """What a write needs, opened together and closed together."""

    connection: sqlite3.Connection
    cursor: sqlite3.Cursor
    lock: LockFile


class Writer:
    """Serialises all writes of this process, in as few transactions as it can."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._mutex = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        self._line: _Line | None = None
        self._closed = False

    def write(self, work: Work[A, R], argument: A) -> R:
        """Run `work(cursor, argument)` in a transaction and return its result once that is committed."""
        mutex = self._mutex
        if mutex.acquire(False):
            if not self._queue:
                try:
                    return self._alone(work, argument)
                finally:
                    mutex.release()
            ticket = _Ticket(work, argument)
            self._queue.append(ticket)
        else:
            ticket = _Ticket(work, argument)
            self._queue.append(ticket)
            try:
                mutex.acquire()
            except BaseException:
                self._withdraw(ticket)
                raise
        try:
            if not ticket.done:
                self._lead(ticket)
        finally:
            mutex.release()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[no-any-return]

    def read(self, sql: str, values: Sequence[Any]) -> list[Any] | None:
        """Read on this connection, whose cache is warm after a write; None if it is busy."""
        if self._queue or self._place.readonly or not self._mutex.acquire(False):
            return None
        try:
            line = self._line or self._open()
            return line.cursor.execute(sql, values).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            raise translated(error, self._place.path) from error
        finally:
            self._mutex.release()

    def outside(self, statements: Sequence[str]) -> None:
        """Run statements that cannot be part of a transaction, with all other writers kept away."""
        with self._mutex:
            line = self._line or self._open()
            try:
                with line.lock:
                    for statement in statements:
                        line.cursor.execute(statement).fetchall()
            except sqlite3.Error as error:
                raise translated(error, self._place.path) from error

    def close(self) -> None:
        """Close for good, after the write that is going on."""
        with self._mutex:
            self._closed = True
            self.shut()

    # -- forks: no connection may cross one ------------------------------------------------------------------------

    def pause(self, seconds: float) -> bool:
        """Keep everybody out until `resume()`; False if a write takes longer than that."""
        return self._mutex.acquire(timeout=seconds)

    def shut(self) -> None:
        """Close the connection; it is opened again when it is needed. The caller holds the mutex."""
        if self._line is not None:
            self._line.connection.close()
            self._line.lock.close()
            self._line = None

    def resume(self) -> None:
        self._mutex.release()

    def renew(self) -> sqlite3.Connection | None:
        """In a forked child: start anew. A connection that was not closed before is handed back, never to be used."""
        left, self._line = self._line, None
        self._mutex = threading.Lock()
        self._queue = deque()
        if left is None:
            return None
        left.lock.close()
        return left.connection

    # -- under the mutex -------------------------------------------------------------------------------------------

    def _open(self) -> _Line:
        if self._closed:
            raise refusals.closed("SQLite")
        if self._place.readonly:
            raise Unavailable(f"{self._place.path} is read-only: it, or its directory, may not be written")
        connection = self._place.connect(writes=True)
        self._line = line = _Line(connection, connection.cursor(), self._place.lock())
        return line

    def _alone(self, work: Work[A, R], argument: A) -> R:
        _, cursor, lock = self._line or self._open()
        try:
            lock.acquire()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                result = work(cursor, argument)
                cursor.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                lock.release()
        except _DRIVER as error:
            raise translated(error, self._place.path) from error
        return result

    def _lead(self, own: _Ticket) -> None:
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        if own not in batch:  # the leader that had taken it was interrupted
            batch.append(own)
        if len(batch) == 1 or not self._together(batch):
            for ticket in batch:
                try:
                    ticket.result = self._alone(ticket.work, ticket.argument)
                except _REFUSED as error:
                    ticket.error = error
                ticket.done = True

    def _together(self, batch: Sequence[_Ticket]) -> bool:
        """Commit all tickets in one transaction; False if that was not possible and nothing happened."""
        try:
            _, cursor, lock = self._line or self._open()
        except ClewError:
            return False
        execute = cursor.execute
        try:
            with lock:
                try:
                    execute("BEGIN IMMEDIATE")
                    for ticket in batch:
                        execute("SAVEPOINT ticket")
                        try:
                            ticket.result = ticket.work(cursor, ticket.argument)
                        except _REFUSED as error:
                            execute("ROLLBACK TO ticket")
                            ticket.error = self._told(error)
                        execute("RELEASE ticket")
                    execute("COMMIT")
                except BaseException:
                    for ticket in batch:
                        ticket.error = None
                    self._roll_back()
                    raise
        except _DRIVER:
            return False
        for ticket in batch:
            ticket.done = True
        return True

    def _told(self, error: Exception) -> Exception:
        if not isinstance(error, _DRIVER):
            return error
        told = translated(error, self._place.path)
        told.__cause__ = error
        return told

    def _roll_back(self) -> None:
        if self._line is not None and self._line.connection.in_transaction:
            self._line.cursor.execute("ROLLBACK")

    def _withdraw(self, ticket: _Ticket) -> None:
        """Take back a ticket whose writer was interrupted; too late if a leader has it already."""
        with suppress(ValueError):
            self._queue.remove(ticket)
