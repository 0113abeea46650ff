"""The clients: the same few calls over redis-py's blocking client, its asyncio client, or the connections of either.

A script is called by its digest, and sent in full only to a server that does not know it. Every error of the driver
becomes `Unavailable`, or `Interrupted` if a retry may help.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, Protocol

import redis
import redis.asyncio
from redis import exceptions

from backtrail.engines import tls
from backtrail.engines.redis.connect import Login
from backtrail.engines.redis.pooled_client import AsyncConnections, BlockingConnections, packed
from backtrail.engines.retry import Interrupted
from backtrail.errors import Unavailable

Argument = bytes | str | int

_FOR_EVER = (exceptions.AuthenticationError, exceptions.AuthorizationError)
_FOR_NOW = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,  # a master that was made a replica: the next attempt finds the new one
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.RedisClusterException,
    exceptions.ClusterError,
    OSError,
)
#: The driver's errors have no common base class.
_ANY = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
#: Messages of transient states. Before Redis 7, an error inside a script comes after a prefix of its own and a dash.
_PASSING = re.compile(r"(?:^|-)(?:LOADING|MASTERDOWN|BUSY|UNBLOCKED|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|READONLY) ")


class Script:
    """One Lua file, known to the server by its digest. The texts of the files `before` come before it."""

    def __init__(self, name: str, *before: str) -> None:
        folder = resources.files(__package__).joinpath("scripts")
        self.text = b"".join(folder.joinpath(f"{one}.lua").read_bytes() for one in (*before, name))
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()
        self.by_digest = (b"EVALSHA", self.sha.encode(), b"1")
        self.whole = (b"EVAL", self.text, b"1")


class Client(Protocol):
    """The calls that the engine makes to a server."""

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        """Run a script in the slot of `key`."""

    async def warm(self, connections: int) -> None:
        """Open some connections before they are needed."""

    async def ping(self) -> None:
        """Ask the server for any answer."""

    async def sleep(self, seconds: float) -> None:
        """Sleep, without blocking other callers."""

    async def close(self) -> None:
        """Close all connections, if they are ours."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise the driver's errors as backtrail's."""
    try:
        yield
    except _ANY as error:
        raise _translation(error) from error


def _translation(error: Exception) -> Unavailable:
    if isinstance(error, _FOR_EVER):
        return Unavailable(f"Redis refused the login: {error}; check user name and password")
    if tls.handshake_failed(error):
        return Unavailable(
            f"Redis and backtrail do not agree on TLS: {error}; check the host name and the ssl_… options"
        )
    if isinstance(error, _FOR_NOW):
        return Interrupted(f"Redis did not answer: {str(error) or type(error).__name__}")
    if isinstance(error, exceptions.OutOfMemoryError):
        return Unavailable(f"Redis has no memory left, nothing was written: {error}; raise maxmemory or prune")
    if _PASSING.search(str(error)):
        return Interrupted(f"Redis is not ready: {error}")
    return Unavailable(f"Redis refused the call, nothing was written: {error}")


class BlockingClient:
    """Over `redis.Redis` or `redis.RedisCluster`: never suspends."""

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._ours = ours

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        with translated():
            try:
                return self._client.evalsha(script.sha, 1, key, *args)
            except exceptions.NoScriptError:
                return self._client.eval(script.text, 1, key, *args)

    async def warm(self, connections: int) -> None:
        pool = self._client.connection_pool
        with translated():
            opened = [pool.get_connection() for _ in range(connections)]
        for connection in opened:
            pool.release(connection)

    async def ping(self) -> None:
        with translated():
            self._client.ping()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (a blocking engine blocks)

    async def close(self) -> None:
        if self._ours:
            pools = _pools(self._client)
            self._client.close()
            for pool in pools:
                pool.disconnect()
            for sentinel in _sentinels(self._client):
                sentinel.close()


class RawBlockingClient(BlockingClient):
    """Over the connections of a `redis.Redis` that is used by nothing else: never suspends."""

    def __init__(self, client: Any, login: Login) -> None:
        super().__init__(client, ours=True)
        self._connections = BlockingConnections(client.connection_pool, login.pool_size, login.waiting)

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        try:
            try:
                return self._connections.call(packed((*script.by_digest, key), args))
            except exceptions.NoScriptError:
                return self._connections.call(packed((*script.whole, key), args))
        except _ANY as error:
            raise _translation(error) from error

    async def ping(self) -> None:
        with translated():
            self._connections.call(packed((b"PING",), ()))

    async def warm(self, connections: int) -> None:
        taken: list[Any] = []
        try:
            with translated():
                while len(taken) < connections:
                    taken.append(self._connections.take())
        finally:
            for connection in taken:
                self._connections.give_back(connection)

    async def close(self) -> None:
        self._connections.close()
        await super().close()


class AsyncClient:
    """Over `redis.asyncio.Redis` or its RedisCluster."""

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._ours = ours
        self._first = asyncio.Lock()
        self._initialized = False

    async def _initialize(self) -> None:
        # While a cluster client discovers its nodes, it closes connections that other first calls have just opened.
        async with self._first:
            if not self._initialized:
                await self._client.initialize()
                self._initialized = True

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        with translated():
            if not self._initialized:
                await self._initialize()
            try:
                return await self._client.evalsha(script.sha, 1, key, *args)
            except exceptions.NoScriptError:
                return await self._client.eval(script.text, 1, key, *args)

    async def warm(self, connections: int) -> None:
        pool = self._client.connection_pool
        with translated():
            opened = [await pool.get_connection() for _ in range(connections)]
        for connection in opened:
            await pool.release(connection)

    async def ping(self) -> None:
        with translated():
            await self._client.ping()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._ours:
            await self._client.aclose()
            for sentinel in _sentinels(self._client):
                await sentinel.aclose()


class RawAsyncClient(AsyncClient):
    """Over the connections of a `redis.asyncio.Redis` that is used by nothing else."""

    def __init__(self, client: Any, login: Login) -> None:
        super().__init__(client, ours=True)
        self._connections = AsyncConnections(client.connection_pool, login.pool_size, login.waiting)

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        try:
            try:
                return await self._connections.call(packed((*script.by_digest, key), args))
            except exceptions.NoScriptError:
                return await self._connections.call(packed((*script.whole, key), args))
        except _ANY as error:
            raise _translation(error) from error

    async def ping(self) -> None:
        with translated():
            await self._connections.call(packed((b"PING",), ()))

    async def warm(self, connections: int) -> None:
        taken: list[Any] = []
        try:
            with translated():
                while len(taken) < connections:
                    taken.append(await self._connections.take())
        finally:
            for connection in taken:
                await self._connections.give_back(connection)

    async def close(self) -> None:
        await self._connections.close()
        await super().close()


def _pools(client: Any) -> list[Any]:
    """The connection pools, one for each node, that closing a blocking cluster client leaves open."""
    nodes = client.get_nodes() if hasattr(client, "get_nodes") else []
    return [node.redis_connection.connection_pool for node in nodes if node.redis_connection is not None]


def _sentinels(client: Any) -> list[Any]:
    """The Sentinel clients, if any, through which a client finds its master: closing it leaves them open."""
    finder = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return [] if finder is None else list(finder.sentinels)


def client_for(client: Any, login: Login | None) -> BlockingClient | AsyncClient:
    """Our client over one of redis-py; `login` has the options it was made with, None if the user passed it in."""
    if login is not None and isinstance(client, redis.Redis):
        return RawBlockingClient(client, login)
    if login is not None and isinstance(client, redis.asyncio.Redis):
        return RawAsyncClient(client, login)
    blocking = isinstance(client, redis.Redis | redis.RedisCluster)
    return (BlockingClient if blocking else AsyncClient)(client, ours=login is not None)
