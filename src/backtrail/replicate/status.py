"""The status of a mirror, and the reporting of its changes to logs and callbacks."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

log = logging.getLogger("backtrail.replicate")


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two stores."""

    role: Literal["primary", "replica"]
    engine: str
    healthy: bool
    active: bool
    error: str | None = None


class SpoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The saves that wait in the spool. `adrift`: saves go there now, because neither side can take them."""

    adrift: bool = False
    records: int
    bytes: int
    since: float | None  #: when the oldest was saved, in seconds since 1970
    limit: int | None = None  #: bytes beyond which it accepts no more


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a mirror. `behind`: lineages of which the follower lacks something; `spool`: None without one."""

    active: Literal["primary", "replica"]
    generation: int
    replication: Literal["sync", "async"]
    primary: Side
    replica: Side
    behind: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    failovers: int
    failbacks: int
    last_failover: float | None  #: seconds since 1970
    diverged: int
    last_error: str | None
    spool: SpoolStatus | None = None


class Mirrored(ABC):
    """The capability of an engine that stores everything twice: it reports the state of both sides, and makes them
    equal."""

    @abstractmethod
    def status(self) -> Status:
        """The state of the mirror, as known to this process."""

    @abstractmethod
    async def settle(self) -> Status:
        """Compare both sides and ship everything now; the status shows what is left."""


def announce(status: Status) -> None:
    """Log a status that changed."""
    for side in (status.primary, status.replica):
        level = logging.INFO if side.healthy else logging.WARNING
        state = "healthy" if side.healthy else f"unreachable ({side.error})"
        log.log(level, "%s (%s) is %s%s", side.role, side.engine, state, ", active" if side.active else "")
    if status.spool is not None and (status.spool.adrift or status.spool.records):
        log.warning("%d saves (%d bytes) are in the spool", status.spool.records, status.spool.bytes)


class Announcer:
    """Reports changes to the log and to a callback, one at a time and in the order in which they happened.

    Several threads may see a change at once. A status is read and queued in one step, so an older one is never reported
    after a newer one. A thread that finds another one reporting leaves its status to that one, and waits for no
    callback."""

    def __init__(self, look: Callable[[], Status], callback: Callable[[Status], None] | None) -> None:
        self._look = look
        self._callback = callback
        self._lock = threading.Lock()
        self._line: deque[Status] = deque()
        self._telling = threading.Lock()

    def tell(self) -> None:
        """Report a change."""
        with self._lock:
            self._line.append(self._look())
        while self._line and self._telling.acquire(blocking=False):
            try:
                while self._line:
                    self._tell(self._line.popleft())
            finally:
                self._telling.release()

    def _tell(self, status: Status) -> None:
        announce(status)
        if self._callback is not None:
            try:
                self._callback(status)
            except Exception:
                # It is called in the middle of a failover, which must not fail because a callback does.
                log.exception("on_change raised; the mirror goes on")
