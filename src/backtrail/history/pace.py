"""Pace: upkeep that runs beside writers of the same process lets them through every fraction of a millisecond.

A thread that computes gives the interpreter away only every five milliseconds, which is twenty times what a save takes.
"""

from __future__ import annotations

import threading
import time

from backtrail.engines.base import Engine

_WORK = 0.0002  # seconds of work between two pauses
_PAUSE = 0.00002  # seconds; long enough for another thread to be woken


class Pace:
    """Counts the time; `breathe` is called every few rows."""

    def __init__(self, engine: Engine) -> None:
        # On an event loop there are no other threads to let through, and nothing may sleep.
        self._blocking = engine.properties.blocking
        self._since = time.perf_counter()

    def breathe(self) -> None:
        """Pause, if it is time to and anybody could be waiting."""
        if self._blocking and time.perf_counter() - self._since > _WORK and threading.active_count() > 1:
            time.sleep(_PAUSE)
            self._since = time.perf_counter()
