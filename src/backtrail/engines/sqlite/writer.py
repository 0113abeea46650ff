"""The one connection that writes, and group commit: waiting writers share one transaction, hence one fsync.

The caller that owns the queue (see `write_queue`) commits all tickets in it in one transaction. If one of them is
refused, all are done again with a savepoint for each, so that the others still succeed. A lone writer pays only for an
uncontended lock.

Writers of other processes queue on a lock file around BEGIN … COMMIT: the kernel wakes them one after another, where
SQLite's own busy handler would sleep and poll.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from backtrail.engines import conflicts
from backtrail.engines.base import Head, Row
from backtrail.engines.lockfile import LockFile
from backtrail.engines.sqlite import ordinary_save
from backtrail.engines.sqlite.database_file import DRIVER, DatabaseFile
from backtrail.engines.sqlite.disk_check import looks_damaged, twice_if_damaged
from backtrail.engines.sqlite.saved_tips import SavedTips
from backtrail.engines.sqlite.write_queue import Ticket, WriteQueue
from backtrail.errors import BacktrailError, Unavailable

A = TypeVar("A")
R = TypeVar("R")
Work = Callable[[sqlite3.Cursor, A], R]
Single = Callable[[sqlite3.Cursor, A], bool]

#: Errors that fail one ticket and not the others.
_FAILS_ONE = (BacktrailError, conflicts.Refused, *DRIVER, ValueError, TypeError)


class SharedWrite:
    """A write that waits until other coroutines' writes are ready, too."""

    def __init__(self, writer: GroupCommitWriter, work: Work[A, R], argument: A, single: Single[A] | None) -> None:
        self._writer = writer
        self.ticket = Ticket(work, argument, single)

    def write_all(self, parked: Sequence[SharedWrite]) -> None:
        self._writer.write_all([shared.ticket for shared in parked])


class _WriteConnection(NamedTuple):
    """The connection, its cursor and the lock file: opened together and closed together."""

    connection: sqlite3.Connection
    cursor: sqlite3.Cursor
    lock: LockFile


class GroupCommitWriter:
    """Does all writes of this process, in as few transactions as possible."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._queue = WriteQueue()
        self.tips = SavedTips()
        self._connection: _WriteConnection | None = None
        self._closed = False
        self._careful = False  # the last batch had a ticket that was refused

    def write(self, work: Work[A, R], argument: A, single: Single[A] | None = None) -> R:
        """Run `work(cursor, argument)` in a transaction and return its result once that is committed.

        `single(cursor, argument)` does the same as one statement, which is a transaction of its own, if `work` has no
        result; or it returns False and changes nothing."""
        queue = self._queue
        if queue.try_acquire():
            try:
                return self._write_one(work, argument, single)
            finally:
                queue.release()
        ticket = Ticket(work, argument, single)
        if queue.wait(ticket):
            self._lead(queue)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[no-any-return]

    def write_all(self, tickets: Sequence[Ticket]) -> None:
        """Do the work of several tickets, in one transaction if possible; each keeps its own result or error."""
        self.pause()
        try:
            if len(tickets) == 1 or not self._write_batch(tickets):
                self._one_by_one(tickets)
        finally:
            self.resume()

    def read(self, sql: str, values: Sequence[Any], *, much: bool = False) -> list[Any] | None:
        """Read on this connection, whose cache is warm after a write; None if it is busy, or found damage.

        `much`: a long range, read here only if no write ever had to wait, since a write would have to wait for this."""
        queue = self._queue
        if self._file.readonly or (much and queue.crowded) or not queue.try_acquire():
            return None
        try:
            opened = self._connection or self._open()
            return opened.cursor.execute(sql, values).fetchall()
        except DRIVER as error:
            if looks_damaged(error):
                return None  # a reader looks again
            raise self._file.translated(error) from error
        finally:
            queue.release()

    def saved_tip(self, thread: str) -> tuple[Head, Row] | None:
        """The tip of a thread, if this process has saved it and nobody has written since; None if that is not known."""
        queue = self._queue
        if thread not in self.tips or not queue.try_acquire():
            return None
        try:
            return None if self._connection is None else self.tips.find(self._connection.cursor, thread)
        except DRIVER:
            return None  # the query says what is wrong
        finally:
            queue.release()

    def run_outside_transaction(self, statements: Sequence[str]) -> None:
        """Run statements that cannot be part of a transaction, with all other writers locked out."""

        def attempt() -> None:
            opened = self._connection or self._open()
            try:
                with opened.lock:
                    for statement in statements:
                        opened.cursor.execute(statement).fetchall()
            except sqlite3.DatabaseError as error:
                if looks_damaged(error):
                    self.shut()
                raise

        self.pause()
        try:
            twice_if_damaged(attempt)
        except DRIVER as error:
            raise self._file.translated(error) from error
        finally:
            self.resume()

    def close(self) -> None:
        """Close for good, after the writes in progress."""
        self.pause()
        self._closed = True
        self.shut()
        self.resume()

    # -- pausing the writer, above all for a fork --------------------------------------------------------------

    def pause(self, timeout: float = -1) -> bool:
        """Lock out all writers until `resume()`; False if earlier writes took longer than `timeout`."""
        if not self._queue.wait(Ticket(_no_work, None, alone=True), timeout):
            return False
        self._queue.batch()
        return True

    def resume(self) -> None:
        self._queue.release()

    def shut(self) -> None:
        """Close the connection, which is opened again when it is needed. Only between `pause` and `resume`."""
        if self._connection is not None:
            self._connection.connection.close()
            self._connection.lock.close()
            self._connection = None

    def renew(self) -> sqlite3.Connection | None:
        """In a forked child: start anew. Returns a connection that was not closed before the fork, never to be used."""
        left, self._connection = self._connection, None
        self._queue = WriteQueue()
        if left is None:
            return None
        left.lock.close()
        return left.connection

    # -- for the caller that owns the queue ---------------------------------------------------------------------------

    def _open(self) -> _WriteConnection:
        if self._closed:
            raise conflicts.closed("SQLite")
        if self._file.readonly:
            raise Unavailable(f"{self._file.path} is read-only: it, or its directory, may not be written")
        self.tips.clear()  # the numbers of two connections cannot be compared
        connection = self._file.connect(writes=True)
        ordinary_save.prepare(connection)
        self._connection = opened = _WriteConnection(connection, connection.cursor(), self._file.lock())
        return opened

    def _write_one(self, work: Work[A, R], argument: A, single: Single[A] | None) -> R:
        try:
            return twice_if_damaged(lambda: self._transaction(work, argument, single))
        except DRIVER as error:
            raise self._file.translated(error) from error

    def _transaction(self, work: Work[A, R], argument: A, single: Single[A] | None) -> R:
        _, cursor, lock = self._connection or self._open()
        lock.acquire()
        try:
            if single is not None and single(cursor, argument):
                return None  # type: ignore[return-value]  # which is the result of its work
            self.tips.clear()
            cursor.execute("BEGIN IMMEDIATE")
            result = work(cursor, argument)
            cursor.execute("COMMIT")
        except BaseException as error:
            self.tips.clear()  # an interrupt may have come just after the commit
            self._roll_back()
            if looks_damaged(error):
                self.shut()
            raise
        finally:
            lock.release()
        return result

    def _lead(self, queue: WriteQueue) -> None:
        batch = queue.batch()
        others = batch[1:]
        try:
            if not others or not self._write_batch(batch):
                self._one_by_one(batch)
        except BaseException as error:
            for ticket in others:
                ticket.error = Unavailable(f"the writer of {self._file.path} was interrupted: {error!r}; try again")
            raise
        finally:
            queue.release()
            for ticket in others:
                ticket.gate.release()

    def _one_by_one(self, batch: Sequence[Ticket]) -> None:
        for ticket in batch:
            try:
                ticket.result = self._write_one(ticket.work, ticket.argument, ticket.single)
            except _FAILS_ONE as error:
                ticket.error = error

    def _write_batch(self, batch: Sequence[Ticket]) -> bool:
        """Commit all tickets in one transaction; False if that was not possible, and nothing was written."""
        try:
            _, cursor, lock = self._connection or self._open()
        except BacktrailError:
            return False
        self.tips.clear()
        try:
            with lock:
                if self._careful or not self._without_savepoints(cursor, batch):
                    self._with_savepoints(cursor, batch)
        except DRIVER:
            return False
        return True

    def _without_savepoints(self, cursor: sqlite3.Cursor, batch: Sequence[Ticket]) -> bool:
        """False if any ticket was refused; then nothing was written. Each statement releases the GIL to other threads,
        so a batch without savepoints, with fewer statements, takes half the time."""
        try:
            cursor.execute("BEGIN IMMEDIATE")
            for ticket in batch:
                if ticket.single is None or not ticket.single(cursor, ticket.argument):
                    ticket.result = ticket.work(cursor, ticket.argument)
            cursor.execute("COMMIT")
        except BaseException as error:
            self.tips.clear()
            self._roll_back()
            if isinstance(error, _FAILS_ONE):
                return False
            raise
        return True

    def _with_savepoints(self, cursor: sqlite3.Cursor, batch: Sequence[Ticket]) -> None:
        execute = cursor.execute
        try:
            execute("BEGIN IMMEDIATE")
            for ticket in batch:
                execute("SAVEPOINT ticket")
                try:
                    ticket.result = ticket.work(cursor, ticket.argument)
                except _FAILS_ONE as error:
                    execute("ROLLBACK TO ticket")
                    ticket.error = self._translated(error)
                execute("RELEASE ticket")
            execute("COMMIT")
        except BaseException:
            for ticket in batch:
                ticket.error = None
            self._roll_back()
            raise
        self._careful = any(ticket.error is not None for ticket in batch)

    def _translated(self, error: Exception) -> Exception:
        if not isinstance(error, DRIVER):
            return error
        translation = self._file.translated(error)
        translation.__cause__ = error
        return translation

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.connection.in_transaction:
            try:
                self._connection.cursor.execute("ROLLBACK")
            except sqlite3.Error:
                self.shut()  # which rolls back as well: the next write needs a connection that is in no transaction


def _no_work(cursor: sqlite3.Cursor, argument: None) -> None:
    """The work of a ticket that only wants to own the queue."""
