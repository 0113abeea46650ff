"""No connection to SQLite crosses a fork: they are closed just before, and each side opens its own afterwards.

A child that inherited one would share the parent's idea of who holds which lock, and could damage the store. Closing
before the fork also closes the lock file, which a child would otherwise hold for as long as it lives.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref

from clew.engines.sqlite.readers import Readers
from clew.engines.sqlite.writer import Writer

PATIENCE = 10.0  #: seconds that a fork waits for reads and writes of other threads


class Hands:
    """The writer and the readers of one engine: everything that holds a connection."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self.writer = writer
        self.readers = readers
        self._paused = False
        _living.add(self)

    def before(self) -> None:
        deadline = time.monotonic() + PATIENCE
        self._paused = self.writer.pause(PATIENCE)
        if self._paused:
            self.writer.shut()
        self.readers.pause()
        self.readers.drain(deadline)

    def after_in_parent(self) -> None:
        self.readers.resume()
        if self._paused:
            self.writer.resume()

    def after_in_child(self) -> None:
        left = self.writer.renew()
        # Closing these would undo locks and files of the parent: they are kept, unused, for as long as the child lives.
        _abandoned.extend([*self.readers.renew(), *([left] if left is not None else [])])


_living: weakref.WeakSet[Hands] = weakref.WeakSet()
_abandoned: list[sqlite3.Connection] = []
_forking: list[Hands] = []


def _before() -> None:
    _forking[:] = _living
    for hands in _forking:
        hands.before()


def _after_in_parent() -> None:
    for hands in _forking:
        hands.after_in_parent()
    _forking.clear()


def _after_in_child() -> None:
    for hands in _forking:
        hands.after_in_child()
    _forking.clear()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
