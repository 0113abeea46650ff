"""No connection to SQLite crosses a fork: they are closed just before, and each side opens its own afterwards.

An inherited connection would carry the parent's record of its locks, which the child does not hold, and could damage
the store. The lock file is closed as well, which a child would otherwise keep locked until it exits.
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
        # Closing these would release locks and delete files of the parent, so the child keeps them, unused, until it
        # exits.
        _abandoned.extend([*self.readers.renew(), *([left] if left is not None else [])])


_abandoned: list[sqlite3.Connection] = []
