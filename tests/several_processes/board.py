"""How a client is told what it sees: a few bytes that it shares with the harness, read before each call to a side."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import threading

from several_processes.plan import View

VIEWS: tuple[View, ...] = ("up", "away", "lost", "silent", "slow")
_HEALED, _CLOCK = 2, 8  # after the views of both sides


class Board:
    """The harness writes it, one client and its successors read it."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 16)

    def view(self, side: int) -> View:
        return VIEWS[self._shared[side]]

    def set_view(self, side: int, view: View) -> None:
        self._shared[side] = VIEWS.index(view)

    @property
    def healed(self) -> bool:
        """Everything is well again: the client ends its work, and catches up."""
        return bool(self._shared[_HEALED])

    def heal(self) -> None:
        self._shared[0] = self._shared[1] = 0
        self._shared[_HEALED] = 1

    @property
    def clock(self) -> int:
        """Nanoseconds that the client's clock is ahead."""
        ahead: int = struct.unpack_from("q", self._shared, _CLOCK)[0]
        return ahead

    @clock.setter
    def clock(self, ahead: int) -> None:
        struct.pack_into("q", self._shared, _CLOCK, ahead)


class Fuse:
    """Kills this process when it has burned down; None never does."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self._lock = threading.Lock()

    def burn(self) -> None:
        if self._left is not None:
            with self._lock:
                self._left -= 1
                if self._left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
