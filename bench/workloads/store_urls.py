"""URLs of empty stores on the engine that `--engine` names. A server is a private one with default settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backtrail.testing.servers import PostgresServer, RedisServer, private_directory
from bench.run_context import RunContext


@contextmanager
def store_urls(context: RunContext) -> Iterator[Callable[[], str]]:
    """A function that returns the URL of another empty store at each call. All are gone afterwards."""
    numbers = itertools.count(1)
    if context.engine in ("sqlite", "jsonl"):
        with context.scratch() as scratch:
            yield lambda: f"{context.engine}:{scratch.new_directory() / 'store'}?durability=normal"
        return
    with private_directory() as directory:
        server: PostgresServer | RedisServer
        if context.engine == "postgres":
            server, option = PostgresServer(directory / "postgres"), "schema=store_"
        else:
            server, option = RedisServer(directory / "redis", "--appendonly", "no"), "prefix=store_"
        try:
            server.start()
            yield lambda: f"{server.url}?{option}{next(numbers)}"
        finally:
            server.kill()
