"""A master dies, Sentinel promotes its replica, and the engine continues with that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import redis

from backtrail.engines.redis import RedisEngine
from backtrail.testing import call_modes, sample_records
from backtrail.testing.servers import RedisServer, private_directory, until


class Sentinel(RedisServer):
    """Watches one master, alone."""

    def __init__(self, directory: object, master: RedisServer) -> None:
        super().__init__(directory)  # type: ignore[arg-type]
        settings = self.directory / "sentinel.conf"
        settings.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds main 600000\nsentinel failover-timeout main 3000\n"
        )
        self.command = [self.command[0], str(settings), "--sentinel"]


@pytest.fixture
def watched(own_redis: Callable[..., RedisServer]) -> Iterator[tuple[RedisServer, RedisServer, Sentinel]]:
    master = own_redis("--repl-diskless-sync-delay", "0")
    replica = own_redis("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0")
    with private_directory() as directory, contextlib.ExitStack() as stack:
        sentinel = Sentinel(directory, master)
        sentinel.start()
        stack.callback(sentinel.kill)
        with redis.Redis(port=sentinel.port) as asked, redis.Redis(port=replica.port) as copy:
            until(lambda: copy.info("replication")["master_link_status"] == "up", "the replica follows")
            until(lambda: len(asked.sentinel_slaves("main")) == 1, "Sentinel knows the replica")
        yield master, replica, sentinel


@pytest.mark.parametrize("mode", ["direct", "awaited"])
def test_a_failover_is_survived(watched: tuple[RedisServer, RedisServer, Sentinel], mode: call_modes.Mode) -> None:
    master, replica, sentinel = watched

    async def test(_: object) -> None:
        engine = RedisEngine(
            f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0",
            asynchronous=mode == "awaited",
            retries=500,
            deadline=40,
            read_timeout=1,
        )
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        for n in range(1, 20):
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
        with redis.Redis(port=master.port) as client:
            assert client.wait(1, 60_000) == 1
        with redis.Redis(port=sentinel.port) as client:
            # Only now may silence be taken for death: before, a busy machine could have had another master.
            client.execute_command("SENTINEL", "SET", "main", "down-after-milliseconds", 300)
        master.kill()
        for n in range(20, 40):
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
        assert await engine.head("t") == sample_records.head(at, 40, 40)
        assert [row.step for row in await engine.rows("t", at.id, 1, 99)] == list(range(1, 41))
        with redis.Redis(port=replica.port) as client:
            assert client.role()[0] == b"master"
        await engine.close()

    call_modes.run(mode, test)
