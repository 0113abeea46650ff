"""Makes a redis-py client from a URL: for a server, a socket, a Sentinel's master or a cluster; blocking or asyncio.

redis-py would repeat a call by itself after a timeout. The engine must know when a commit is repeated, so redis-py's
retries are switched off wherever possible, and the engine retries itself.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff

from backtrail.engines.tls import checked_files
from backtrail.errors import InvalidInput

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)


class Login(msgspec.Struct, frozen=True):
    """Options of a connection besides the URL. They take precedence over the URL's."""

    username: str | None = None
    password: str | None = None
    db: int | None = None
    pool_size: int = 50
    connect_timeout: float = 5.0
    read_timeout: float = 5.0
    write_timeout: float | None = None
    tls: dict[str, Any] = {}  #: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs

    def __repr__(self) -> str:  # without the password
        return f"Login({self.username!r})"

    @property
    def waiting(self) -> float:
        """Seconds that a caller waits for a connection while all are in use."""
        return self.connect_timeout + self.read_timeout

    def options(self, *, asynchronous: bool) -> dict[str, Any]:
        """The options under redis-py's names. It has one timeout for reads and writes, so the longer of ours counts."""
        retry = redis.asyncio.retry.Retry if asynchronous else redis.retry.Retry
        return {
            **self.tls,
            **self.given(),
            "socket_connect_timeout": self.connect_timeout,
            "socket_timeout": max(self.read_timeout, self.write_timeout or 0.0),
            "retry": retry(NoBackoff(), 0),
            "protocol": 2,
        }

    def given(self) -> dict[str, Any]:
        """User name, password and database, if they were given."""
        texts = {"username": self.username, "password": self.password}
        who: dict[str, Any] = {name: str(value) for name, value in texts.items() if value is not None}
        return who if self.db is None else {**who, "db": self.db}


def is_cluster(url: str) -> bool:
    """True if the URL names a cluster."""
    return urlsplit(url).scheme.endswith("+cluster")


def connect(url: str, login: Login, *, asynchronous: bool) -> Any:
    """A client for the URL. It sends nothing yet, except that a blocking cluster client discovers its nodes."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidInput(f"{parts.scheme!r} is not a Redis URL; known are {', '.join(SCHEMES)}")
    secure = parts.scheme.startswith("rediss")
    if login.tls and not secure:
        raise InvalidInput(f"{next(iter(login.tls))} needs a URL that begins with rediss")
    checked_files({name: file for name, file in login.tls.items() if name != "ssl_cert_reqs"})
    if secure:
        # Older versions of redis-py do not check the host name of a certificate.
        named = login.tls.get("ssl_cert_reqs") != "none"
        login = msgspec.structs.replace(login, tls={**login.tls, "ssl_check_hostname": named})
    if parts.scheme.endswith("+sentinel"):
        return _by_sentinel(url, login, asynchronous=asynchronous)
    options = login.options(asynchronous=asynchronous)
    if is_cluster(url):
        options.pop("db", None)
        # A redirected call needs a retry of the client itself; the engine allows for such unseen repetitions.
        cluster = redis.asyncio.cluster.RedisCluster if asynchronous else redis.RedisCluster
        options["retry"] = type(options["retry"])(NoBackoff(), 3)
        options["max_connections"] = login.pool_size
        return cluster.from_url(url.replace("+cluster", "", 1), **options)
    source: Any = redis.asyncio if asynchronous else redis
    # Callers beyond the pool's size wait for a connection rather than fail.
    pool = source.BlockingConnectionPool.from_url(
        url, max_connections=login.pool_size, timeout=login.waiting, **options
    )
    # In redis-py the URL takes precedence; with us, an option does.
    pool.connection_kwargs.update(login.given())
    return source.Redis.from_pool(pool)


def _by_sentinel(url: str, login: Login, *, asynchronous: bool) -> Any:
    """`redis+sentinel://user:password@host:port,host:port/service/db`."""
    parts = urlsplit(url)
    who, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service or not hosts or not (db == "" or (db.isascii() and db.isdigit())):
        raise InvalidInput("a Sentinel URL is redis+sentinel://host:port,host:port/service-name/db")
    sentinels = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":")
        if not name or not (port.isascii() and port.isdigit()):
            raise InvalidInput(f"{host!r} in a Sentinel URL must be host:port")
        sentinels.append((name, int(port)))
    options = login.options(asynchronous=asynchronous)
    user, _, password = who.partition(":")
    for option, value in (("username", user), ("password", password), ("db", db)):
        if value:
            options.setdefault(option, int(value) if option == "db" else unquote(value))
    options["ssl"] = parts.scheme.startswith("rediss")
    timeouts = {name: options[name] for name in ("socket_connect_timeout", "socket_timeout")}
    finder: Any = redis.asyncio.sentinel.Sentinel if asynchronous else redis.sentinel.Sentinel
    found = finder(sentinels, sentinel_kwargs=timeouts, **options)
    return found.master_for(service, max_connections=login.pool_size)
