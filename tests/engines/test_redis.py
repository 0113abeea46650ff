"""The Redis engine keeps the contract: on a server and on a cluster, blocking and awaiting."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar

import pytest

from backtrail.engines.base import Branch, Commit, Engine
from backtrail.engines.conflicts import Refused
from backtrail.engines.redis import RedisEngine
from backtrail.testing import call_modes, sample_records
from backtrail.testing.contract import DurableEngineContract, case
from backtrail.testing.servers import RedisCluster, RedisServer


def private(directory: Path) -> str:
    """A prefix for the store of one test."""
    return "test:" + hashlib.blake2b(str(directory).encode(), digest_size=9).hexdigest()


class OnRedis(DurableEngineContract):
    url: str

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    def make_engine(self, directory: Path) -> RedisEngine:
        return RedisEngine(self.url, prefix=private(directory), asynchronous=self.modes == ("awaited",))


class TestRedis(OnRedis):
    pass


class TestAsyncRedis(OnRedis):
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("awaited",)


class OnCluster(OnRedis):
    @pytest.fixture(autouse=True)
    def _server(self, redis_cluster: RedisCluster) -> None:
        self.url = redis_cluster.url

    def make_engine(self, directory: Path) -> RedisEngine:
        return RedisEngine(self.url, prefix=private(directory), shards=8, asynchronous=self.modes == ("awaited",))

    @case
    async def test_a_taken_branch_id_is_refused_wherever_it_was_taken(self, engine: Engine) -> None:
        """A cluster compares ids within a shard only: sixteen random bytes do not meet by chance."""
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        with pytest.raises(Refused):
            await engine.commit(
                Commit("t", branches=[sample_records.branch("t", 2), Branch(at.id, "t", "u", at.owner)])
            )
        assert await engine.branches("t") == [at]


class TestRedisCluster(OnCluster):
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("direct",)


class TestAsyncRedisCluster(OnCluster):
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("awaited",)
