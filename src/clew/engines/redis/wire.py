"""The two wires: the same few calls over redis-py's blocking client and over its asyncio client.

A script is called by its digest, and sent whole only to a server that has not seen it. Every error of the driver
becomes `Unavailable`, or `Interrupted` where trying again may help.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, Protocol

import redis
from redis import exceptions

from clew.engines.patience import Interrupted
from clew.errors import Unavailable

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
_LOADING = ("LOADING", "MASTERDOWN", "BUSY", "UNBLOCKED", "CLUSTERDOWN")


class Script:
    """One Lua file, known to the server by its digest."""

    def __init__(self, name: str) -> None:
        self.text = resources.files(__package__).joinpath("scripts", f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


class Wire(Protocol):
    """What the engine asks of a client."""

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        """Run a script in the slot of `key`."""

    async def warm(self, connections: int) -> None:
        """Open some connections before they are needed."""

    async def ping(self) -> None:
        """Ask the server whether it is there."""

    async def sleep(self, seconds: float) -> None:
        """Wait, without keeping others from working."""

    async def close(self) -> None:
        """Close all connections, if they are ours."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _FOR_EVER as error:
        raise Unavailable(f"Redis refused the login: {error}; check user name and password") from error
    except _FOR_NOW as error:
        raise Interrupted(f"Redis did not answer: {str(error) or type(error).__name__}") from error
    except exceptions.OutOfMemoryError as error:
        raise Unavailable(
            f"Redis has no memory left, nothing was written: {error}; raise maxmemory or prune"
        ) from error
    except exceptions.RedisError as error:
        if str(error).startswith(_LOADING):
            raise Interrupted(f"Redis is not ready: {error}") from error
        raise Unavailable(f"Redis refused the call, nothing was written: {error}") from error


class BlockingWire:
    """Over `redis.Redis` or `redis.RedisCluster`: never suspends."""

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._ours = ours

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        with _translated():
            try:
                return self._client.evalsha(script.sha, 1, key, *args)
            except exceptions.NoScriptError:
                return self._client.eval(script.text, 1, key, *args)

    async def warm(self, connections: int) -> None:
        pool = self._client.connection_pool
        with _translated():
            opened = [pool.get_connection() for _ in range(connections)]
        for connection in opened:
            pool.release(connection)

    async def ping(self) -> None:
        with _translated():
            self._client.ping()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (a blocking engine blocks)

    async def close(self) -> None:
        if self._ours:
            self._client.close()
            for sentinel in _sentinels(self._client):
                sentinel.close()


class AwaitingWire:
    """Over `redis.asyncio.Redis` or its RedisCluster."""

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._ours = ours
        self._first = asyncio.Lock()
        self._initialized = False

    async def _initialize(self) -> None:
        # A cluster client that looks for its nodes closes connections which others of the first calls just opened.
        async with self._first:
            if not self._initialized:
                await self._client.initialize()
                self._initialized = True

    async def run(self, script: Script, key: bytes, args: Sequence[Argument]) -> Any:
        with _translated():
            if not self._initialized:
                await self._initialize()
            try:
                return await self._client.evalsha(script.sha, 1, key, *args)
            except exceptions.NoScriptError:
                return await self._client.eval(script.text, 1, key, *args)

    async def warm(self, connections: int) -> None:
        pool = self._client.connection_pool
        with _translated():
            opened = [await pool.get_connection() for _ in range(connections)]
        for connection in opened:
            await pool.release(connection)

    async def ping(self) -> None:
        with _translated():
            await self._client.ping()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._ours:
            await self._client.aclose()
            for sentinel in _sentinels(self._client):
                await sentinel.aclose()


def _sentinels(client: Any) -> list[Any]:
    """The clients, if any, that a client asks for its master: closing it leaves them open."""
    finder = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return [] if finder is None else list(finder.sentinels)


def over(client: Any, *, ours: bool) -> BlockingWire | AwaitingWire:
    """The wire that fits a client."""
    blocking = isinstance(client, redis.Redis | redis.RedisCluster)
    return BlockingWire(client, ours=ours) if blocking else AwaitingWire(client, ours=ours)
