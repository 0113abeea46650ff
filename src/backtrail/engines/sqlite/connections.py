"""No connection to SQLite crosses a fork: they are closed just before, and each side opens its own afterwards.

A child that inherited one would share the parent's idea of who holds which lock, and could damage the store. Closing
before the fork also closes the lock file, which a child would otherwise hold for as long as it lives.
"""

from __future__ import annotations

import sqlite3
import time

from backtrail.engines import process_fork
from backtrail.engines.retry import FORK
from backtrail.engines.sqlite.reader_pool import ReaderPool
from backtrail.engines.sqlite.writer import GroupCommitWriter


class ForkSafeConnections:
    """The writer and the readers of one engine: everything that holds a connection."""

    def __init__(self, writer: GroupCommitWriter, readers: ReaderPool) -> None:
        self.writer = writer
        self.readers = readers
        self._paused = False
        process_fork.watch(self)

    def before_fork(self) -> None:
        deadline = time.monotonic() + FORK.deadline
        self._paused = self.writer.pause(FORK.deadline)
        if self._paused:
            self.writer.shut()
        self.readers.pause()
        self.readers.drain(deadline)

    def after_fork_in_parent(self) -> None:
        self.readers.resume()
        if self._paused:
            self.writer.resume()

    def after_fork_in_child(self) -> None:
        left = self.writer.renew()
        # Closing these would undo locks and files of the parent: they are kept, unused, for as long as the child lives.
        _abandoned.extend([*self.readers.renew(), *([left] if left is not None else [])])


_abandoned: list[sqlite3.Connection] = []
