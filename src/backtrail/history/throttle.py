"""A throttle: lets other threads of the process run while a whole lineage is read or swept.

A thread that computes releases Python's lock, the GIL, only every five milliseconds, twenty times as long as a save
takes. One that makes many short calls of SQLite is no better: it has the lock again before another thread could wake
up. So whoever goes through many rows sleeps for a moment every now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from backtrail.engines.base import Engine

T = TypeVar("T")

_WORK = 0.0002  # seconds of work between two pauses
_PAUSE = 0.00002  # seconds; long enough for another thread to wake up
_FEW = 16  # items that take far less than that


class Throttle:
    """The pauses of one sweep, or of another task that reads whole lineages.

    On an event loop there are no other threads to let run, and nothing may sleep."""

    def __init__(self, engine: Engine) -> None:
        self._blocking = engine.properties.blocking
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Sleep for a moment, if it is time to and another thread could be waiting. Called every few rows."""
        if self._blocking and time.perf_counter() - self._since > _WORK and threading.active_count() > 1:
            time.sleep(_PAUSE)
            self._since = time.perf_counter()

    def over(self, items: Iterable[T]) -> Iterable[T]:
        """The same items, with pauses between them."""
        return self._with_pauses(items) if self._blocking and threading.active_count() > 1 else items

    def _with_pauses(self, items: Iterable[T]) -> Iterator[T]:
        for number, item in enumerate(items, 1):
            yield item
            if number % _FEW == 0:
                self.pause()
