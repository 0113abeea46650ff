"""The options of a mirror, checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from backtrail.engines.base import Engine
from backtrail.errors import InvalidInput

_AS_GIVEN = ("replication", "spool", "on_change")  # the options that no text in a URL has to be converted for


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options for keeping two sides equal, and for failover."""

    replication: Literal["sync", "async"] = "sync"
    replica_required: bool = False  #: sync only: refuse a save that the replica did not get
    failover: bool = True
    max_failovers: int = 3  #: within `failover_window` seconds
    failover_window: float = 600.0
    failback_after: float = 300.0  #: seconds of health before the primary is active again
    health_every: float = 30.0
    max_pending: int = 10_000  #: commits that may wait for the follower; beyond that, their lineages are compared
    back_pressure: bool = False  #: async only: a save waits while that many are pending
    drain: float = 10.0  #: seconds that close() waits for pending commits
    spool: str | os.PathLike[str] | Engine | None = None  #: a directory, or an engine, for saves that no side can take
    spool_limit: int | None = None  #: bytes of saves in it beyond which more are refused; None: until the disk is full
    on_change: Callable[[Any], None] | None = None  #: called with a status when a role or a side's health changes

    @classmethod
    def read(cls, given: dict[str, Any]) -> Settings:
        """Settings from keywords or from the text of a URL."""
        values = dict(given)
        for name, value in given.items():
            if isinstance(value, str) and name not in _AS_GIVEN:
                types = {field.name: field.type for field in msgspec.structs.fields(cls)}
                try:
                    values[name] = msgspec.convert(value, types[name], strict=False)
                except msgspec.ValidationError as error:
                    raise InvalidInput(f"{name}={value!r} makes no sense: {error}") from error
        return cls(**values)

    def __post_init__(self) -> None:
        if self.replication not in ("sync", "async"):
            raise InvalidInput(f"replication={self.replication!r} is unknown: use 'sync' or 'async'")
        if self.replica_required and self.replication == "async":
            raise InvalidInput(
                "replica_required=True needs replication='sync': async acknowledges before the replica has it"
            )
        if self.back_pressure and self.replication == "sync":
            raise InvalidInput("back_pressure=True needs replication='async': in sync nothing waits")
        if self.replica_required and self.spool is not None:
            raise InvalidInput(
                "replica_required=True refuses a save that is not on both sides, spool= keeps one that is on neither: "
                "choose one of them"
            )
        if self.spool_limit is not None and self.spool is None:
            raise InvalidInput("spool_limit= needs spool=: there is no spool to limit")
        if self.on_change is not None and not callable(self.on_change):
            raise InvalidInput(f"on_change={self.on_change!r} must be a function: no URL can give it")
        for name in ("failover_window", "failback_after", "health_every", "drain"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InvalidInput(f"{name}={value!r} must be a number of seconds above 0")
        for name in ("max_failovers", "max_pending", "spool_limit"):
            value = getattr(self, name)
            if name == "spool_limit" and value is None:
                continue
            if type(value) is not int or value < 1:
                raise InvalidInput(f"{name}={value!r} must be a whole number from 1 up")


OPTIONS = frozenset(Settings.__struct_fields__)
