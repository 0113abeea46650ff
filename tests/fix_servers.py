"""Real servers for tests: one of each kind that all tests share, and private ones for single tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from backtrail.testing.servers import PostgresServer, RedisCluster, RedisServer, private_directory


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for all tests that do not hurt it."""
    with private_directory() as directory:
        server = RedisServer(directory, "--appendonly", "no", "--databases", "64")
        server.start()
        yield server
        server.kill()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three masters for all tests that do not hurt them."""
    with private_directory() as directory:
        cluster = RedisCluster(directory)
        cluster.start()
        yield cluster
        cluster.kill()


@pytest.fixture
def own_redis() -> Iterator[Callable[..., RedisServer]]:
    """Make Redis servers that only this test knows, and may hurt."""
    with private_directory() as directory, contextlib.ExitStack() as stack:
        count = iter(range(100))

        def make(*options: str) -> RedisServer:
            server = RedisServer(directory / str(next(count)), *options)
            server.start()
            stack.callback(server.kill)
            return server

        yield make


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests that do not hurt it."""
    with private_directory() as directory:
        server = PostgresServer(directory / "server", "-c", "fsync=off", "-c", "max_connections=200")
        server.start()
        yield server
        server.kill()


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., PostgresServer]]:
    """Make PostgreSQL servers that only this test knows, and may hurt."""
    with private_directory() as directory, contextlib.ExitStack() as stack:
        count = iter(range(100))

        def make(*options: str, before: Callable[[], None] | None = None) -> PostgresServer:
            server = PostgresServer(directory / str(next(count)), *options)
            server.before = before
            server.start()
            stack.callback(server.kill)
            return server

        yield make
