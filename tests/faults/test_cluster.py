"""A master of a cluster is killed: writers wait until it is started again, or until its replica is made the master."""

from __future__ import annotations

import threading

import pytest
import redis
import redis.asyncio

from backtrail.engines.redis import RedisEngine
from backtrail.errors import Unavailable
from backtrail.testing import call_modes, sample_records
from backtrail.testing.servers import Hold, RedisCluster, private_directory

pytestmark = pytest.mark.server

THREADS = [f"thread {n}" for n in range(24)]


def test_a_killed_master_of_a_cluster_is_waited_for() -> None:
    with private_directory() as directory:
        cluster = RedisCluster(directory)
        try:
            cluster.start()
            call_modes.run("direct", lambda _: survives(cluster, "direct"))
            call_modes.run("awaited", lambda _: survives(cluster, "awaited"))
        finally:
            cluster.kill()


@pytest.mark.parametrize("mode", ["direct", "awaited"])
def test_a_killed_master_of_a_cluster_is_followed_by_its_replica(mode: call_modes.Mode) -> None:
    with private_directory() as directory:
        cluster = RedisCluster(directory, replicas=1)
        try:
            cluster.start()
            call_modes.run(mode, lambda _: fails_over(cluster, mode))
        finally:
            cluster.kill()


async def fails_over(cluster: RedisCluster, mode: call_modes.Mode) -> None:
    master, replica = cluster.masters[0], cluster.replicas[0]
    # The node in the URL is the one that dies: the client knows the others by then.
    engine = RedisEngine(cluster.url, asynchronous=mode == "awaited", shards=16, retries=1000, deadline=60)
    branches = [sample_records.branch(name) for name in THREADS]
    for at in branches:
        await engine.commit(sample_records.first(at))
    for at in branches:
        await engine.commit(sample_records.following(sample_records.head(at), at))
    with redis.Redis(port=master.port) as client:
        held = client.dbsize()
        assert held > 0
        # Redis copies after it has answered. What was copied is kept, and only that can be promised.
        assert client.wait(1, 60_000) == 1
    # Only now may silence be taken for death: before, a busy machine could have had another master than the test.
    for node in cluster.nodes:
        with redis.Redis(port=node.port) as client:
            client.config_set("cluster-node-timeout", 1000)
    master.kill()
    for at in branches:
        await engine.commit(sample_records.following(sample_records.head(at, 2, 2), at))
    for at in branches:
        assert await engine.head(at.thread) == sample_records.head(at, 3, 3)
        rows = [sample_records.as_row(sample_records.row(at, n)) for n in (1, 2, 3)]
        assert await engine.rows(at.lineage, at.id, 1, 9) == rows
    with redis.Redis(port=replica.port) as client:
        assert client.role()[0] == b"master"
        assert client.dbsize() >= held
    await engine.close()


async def survives(cluster: RedisCluster, mode: call_modes.Mode) -> None:
    engine = RedisEngine(cluster.url, prefix=mode, asynchronous=mode == "awaited", shards=16, retries=1000, deadline=40)
    branches = [sample_records.branch(name) for name in THREADS]
    for at in branches:
        await engine.commit(sample_records.first(at))
    victim = cluster.nodes[1]
    victim.kill()
    starter = threading.Thread(target=victim.start)
    starter.start()
    for at in branches:
        await engine.commit(sample_records.following(sample_records.head(at), at))
    starter.join()
    for at in branches:
        assert await engine.head(at.thread) == sample_records.head(at, 2, 2)
        assert [row.step for row in await engine.rows(at.lineage, at.id, 1, 9)] == [1, 2]
    await engine.close()


def test_a_cluster_that_is_not_there_is_unavailable() -> None:
    nobody = Hold()
    url = f"redis+cluster://127.0.0.1:{nobody.port}"
    with pytest.raises(Unavailable):
        RedisEngine(url)

    async def awaiting(_: object) -> None:
        engine = RedisEngine(url, asynchronous=True, retries=1)
        with pytest.raises(Unavailable):
            await engine.ping()
        await engine.close()

    call_modes.run("awaited", awaiting)


def test_a_cluster_client_that_was_given_is_used_and_left_open(redis_cluster: RedisCluster) -> None:
    port, at = redis_cluster.nodes[2].port, sample_records.branch("t")

    async def blocking(_: object) -> None:
        with redis.RedisCluster(host="127.0.0.1", port=port) as client:
            engine = RedisEngine(client=client, prefix="given")
            await engine.commit(sample_records.first(at))
            await engine.close()
            assert client.ping()

    async def awaiting(_: object) -> None:
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=port) as client:
            engine = RedisEngine(client=client, prefix="given")
            assert await engine.head("t") == sample_records.head(at)
            await engine.close()
            assert await client.ping()

    call_modes.run("direct", blocking)
    call_modes.run("awaited", awaiting)
