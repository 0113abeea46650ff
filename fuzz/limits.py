"""The limits of one input: five seconds and 512 MB."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 5.0
MEMORY = 512 * 2**20


class TooMuch(Exception):
    """An input took too long or too much memory."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise `TooMuch` if the block takes longer than SECONDS; main thread only."""

    def too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise TooMuch(f"it took more than {SECONDS:g} seconds")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def allow_memory() -> None:
    """Let this process have MEMORY more than it has now: beyond that, an allocation fails with MemoryError."""
    now = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))
