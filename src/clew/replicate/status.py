"""What an operator sees of a mirror, and how it gets into logs and metrics."""

from __future__ import annotations

import logging
from typing import Any, Literal

import msgspec

log = logging.getLogger("clew.replicate")


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two stores."""

    role: Literal["primary", "replica"]
    engine: str
    healthy: bool
    active: bool
    error: str | None = None


class SpoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in the spool. `adrift`: saves go there now, because neither side can take them."""

    adrift: bool
    records: int
    bytes: int
    since: float | None  #: when the oldest was saved, in seconds since 1970


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where a mirror stands. `behind`: lineages of which the follower lacks something; `spool`: None without one."""

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


def announce(status: Status) -> None:
    """Say a change in the log."""
    for side in (status.primary, status.replica):
        level = logging.INFO if side.healthy else logging.WARNING
        state = "healthy" if side.healthy else f"away ({side.error})"
        log.log(level, "%s (%s) is %s%s", side.role, side.engine, state, ", active" if side.active else "")
    if status.spool is not None and (status.spool.adrift or status.spool.records):
        log.warning("%d saves (%d bytes) are in the spool", status.spool.records, status.spool.bytes)


class Meters:
    """OpenTelemetry metrics of a mirror, where OpenTelemetry is installed; else nothing."""

    def __init__(self) -> None:
        self._lag: Any = None
        self._changes: Any = None
        try:
            from opentelemetry import metrics
        except ImportError:
            return
        meter = metrics.get_meter("clew")
        self._lag = meter.create_histogram("clew.mirror.lag", unit="1", description="commits the follower lacks")
        self._changes = meter.create_counter("clew.mirror.changes", unit="1", description="changes of the active side")

    def lag(self, records: int) -> None:
        if self._lag is not None:
            self._lag.record(records)

    def changed(self, to: str) -> None:
        if self._changes is not None:
            self._changes.add(1, {"active": to})
