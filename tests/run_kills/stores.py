"""Stores for the rounds, on the engines that survive their processes; servers are started privately."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backtrail.testing.servers import PostgresServer, RedisServer, private_directory

ENGINES = ("sqlite", "jsonl", "redis", "postgres")


@contextlib.contextmanager
def server_of(engine: str) -> Iterator[str]:
    """The URL of a new server, which ends with the block; "" for an engine that needs none."""
    with contextlib.ExitStack() as stack:
        if engine not in ("redis", "postgres"):
            yield ""
            return
        directory = stack.enter_context(private_directory())
        server: Any = (
            RedisServer(directory, "--appendonly", "yes", "--appendfsync", "always")
            if engine == "redis"
            else PostgresServer(directory / "server", "-c", "max_connections=50")
        )
        server.start()
        stack.callback(server.kill)
        yield server.url


def store_in(engine: str, folder: Path, server: str) -> tuple[str, dict[str, Any]]:
    """The URL and options of a new store."""
    if engine == "sqlite":
        return str(folder / "store.db"), {}
    if engine == "jsonl":
        return f"jsonl:{folder / 'store'}", {}
    own = f"kills_{uuid.uuid4().hex[:8]}"
    return server, {"prefix" if engine == "redis" else "schema": own}
