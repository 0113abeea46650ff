"""The keywords of `backtrail.open`, for editors and type checkers.

They are those of every store, of a mirror, and of the engines in this package: a keyword that none of them has is
refused by a type checker, and one that the engine at hand does not have is refused by `open`. The options of engines
from other packages go into the URL (`scheme://…?name=value`), or to the engine itself, which `open` accepts as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from backtrail.engines.base import Engine
from backtrail.model import Budget
from backtrail.typing import Key, Policy

if TYPE_CHECKING:
    from backtrail.replicate.status import Status


class StoreOptions(TypedDict, total=False):
    """The options of every store."""

    types: Iterable[type] | Mapping[str, type]  #: classes whose instances are loaded as such
    retention: Policy  #: which checkpoints may be deleted; none, if not given
    compression: Literal["zstd"] | None
    compression_level: int  #: 1 to 19
    detect: Literal["exact", "identity"]  #: how changes are found; identity promises that nothing saved is edited
    key: Key | Sequence[Key] | None  #: encrypts everything; of several, the newest is first
    budget: Budget | str | None  #: how much one load may take
    namespace: str | None  #: a part of the store that is separate from all others


class MirrorOptions(TypedDict, total=False):
    """The options of a store with a replica."""

    replica: str | PathLike[str] | Engine | None  #: a second store that holds the same data
    replication: Literal["sync", "async"]
    replica_required: bool  #: sync only: refuse a save that the replica did not get
    failover: bool
    max_failovers: int  #: within `failover_window` seconds
    failover_window: float
    failback_after: float  #: seconds of health before the primary is active again
    health_every: float
    max_pending: int  #: commits that may wait for the follower; beyond that, their lineages are compared
    back_pressure: bool  #: async only: a save waits while that many are pending
    drain: float  #: seconds that close() waits for pending commits
    spool: str | PathLike[str] | None  #: a directory for saves that neither side can take
    spool_limit: int | None  #: bytes in it beyond which more are refused
    on_change: Callable[[Status], None] | None  #: called when a role or the health of a side changes


class FileOptions(TypedDict, total=False):
    """The options of SQLite and JSONL."""

    durability: Literal["full", "normal"]  #: "full" waits for the disk; "normal" survives the process, not the machine
    create: bool  #: False refuses a store that does not exist
    salvage: bool  #: JSONL: read around damaged lines


class ServerOptions(TypedDict, total=False):
    """The options that Redis and PostgreSQL share."""

    pool_size: int
    min_idle: int
    connect_timeout: float
    read_timeout: float
    retries: int
    backoff: float  #: seconds before the first retry
    deadline: float  #: seconds for a call with all its retries


class RedisOptions(ServerOptions, total=False):
    """The options of Redis."""

    client: Any  #: a client of the `redis` package to use instead of the URL
    prefix: str  #: of all keys
    ttl: float | timedelta | None  #: a lineage that has been idle for that long expires
    shards: int | None
    username: str | None
    password: str | None
    db: int | None
    write_timeout: float | None
    lock: bool
    lock_timeout: float
    lock_expiry: float
    ssl_ca_certs: str
    ssl_certfile: str
    ssl_keyfile: str
    ssl_cert_reqs: str


class PostgresOptions(ServerOptions, total=False):
    """The options of PostgreSQL."""

    schema: str
    prepare: bool  #: prepared statements; off, for poolers
    application_name: str
    sslmode: str
    sslrootcert: str
    sslcert: str
    sslkey: str
    target_session_attrs: str


class Options(StoreOptions, MirrorOptions, FileOptions, RedisOptions, PostgresOptions, total=False):
    """Every keyword that `backtrail.open` takes."""
