"""W1 and W1a on PostgreSQL and on Redis, beside LangGraph's PostgresSaver and bare writes to the same servers.

The servers are private ones with default settings: PostgreSQL makes each commit durable, Redis keeps it in memory. Then
32 asyncio tasks share a pool of eight connections, and of one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import psycopg

import backtrail
import backtrail.aio
from backtrail.testing.servers import PostgresServer, RedisServer, private_directory
from bench.contenders.database_servers import BarePostgresInsert, BareRedisHset, LangGraphPostgres
from bench.measure import Lane, Outcome, Series, SyncContender, Target, race
from bench.run_context import RunContext
from bench.synthetic_messages import Message, make_conversation

TASKS = 32
_NUMBERS = itertools.count()


class BacktrailServerSave(SyncContender):
    """backtrail on a server; the whole state is passed."""

    name = "backtrail save"

    def __init__(self, url: str, **options: Any) -> None:
        self.store = backtrail.open(url, compression=None, **options)
        self.thread = self.store.thread("conversation")
        self._empty = self.store.stats()["bytes"]

    def stored_bytes(self) -> int:
        """Bytes beyond those of an empty store."""
        return int(self.store.stats()["bytes"] - self._empty)

    def save(self, prepared: Any) -> None:
        self.thread.save(prepared.state)

    def close(self) -> None:
        self.store.close()


class BacktrailServerAppend(BacktrailServerSave):
    """backtrail on a server; only the new messages are passed."""

    name = "backtrail append"

    def save(self, prepared: Any) -> None:
        self.thread.append("messages", prepared.new)


@contextmanager
def servers() -> Iterator[tuple[PostgresServer, RedisServer]]:
    """A PostgreSQL and a Redis server, stopped afterwards."""
    with private_directory() as directory:
        postgres = PostgresServer(directory / "postgres")
        cache = RedisServer(directory / "redis", "--appendonly", "no")
        try:
            postgres.start()
            cache.start()
            yield postgres, cache
        finally:
            postgres.kill()
            cache.kill()


def run(context: RunContext) -> Outcome:
    conversation = make_conversation(context.steps)
    rounds: dict[str, list[dict[int, float]]] = {}
    sizes: dict[str, float] = {}
    names: dict[str, str] = {}
    pools: dict[str, float] = {}
    with servers() as (postgres, cache), context.progress("servers", context.rounds * context.steps) as bar:
        for number in range(context.rounds):
            lanes = _lanes(postgres, cache, conversation)
            order = list(lanes.values())
            race(order[number:] + order[:number], context.steps, bar.continued_from(number * context.steps))
            for key, lane in lanes.items():
                rounds.setdefault(key, []).append(lane.seconds)
                names[key] = lane.contender.name
            for server in "postgres", "redis":
                floor, append = lanes[f"{server} floor"].contender, lanes[f"{server} append"].contender
                assert isinstance(floor, BarePostgresInsert | BareRedisHset)
                assert isinstance(append, BacktrailServerSave)
                sizes[server] = append.stored_bytes() / floor.written
            for lane in order:
                lane.contender.close()
        for name, url in ("postgres", postgres.url), ("redis", cache.url):
            pools[name] = _throughput(name, url, 8, context.scaled(1600)) / _throughput(
                name, url, 1, context.scaled(1600)
            )
    found = {key: Series.of(times) for key, times in rounds.items()}
    rows = [
        [key.split()[0], names[key], f"{s.tenth(0) * 1e3:.3f}", f"{s.tenth(9) * 1e3:.3f}", f"{s.p99 * 1e3:.3f}"]
        for key, s in found.items()
    ]
    raw = {key: {"name": names[key], "steps": s.steps, "seconds": s.medians} for key, s in found.items()}
    note = f"{context.steps} steps of 2.3 KB; medians of {context.rounds} rounds; compression off"
    columns = ["server", "contender", "first tenth ms", "last tenth ms", "p99 ms"]
    return Outcome("W1 / W1a on servers", columns, rows, _make_targets(found, sizes, pools), raw, note)


def _lanes(postgres: PostgresServer, cache: RedisServer, conversation: list[list[Message]]) -> dict[str, Lane]:
    n = next(_NUMBERS)
    database = f"round_{n}"
    url = _new_database(postgres, database)
    return {
        "postgres floor": Lane(BarePostgresInsert(url, "bare"), conversation),
        "postgres append": Lane(BacktrailServerAppend(url, schema="append"), conversation),
        "postgres save": Lane(BacktrailServerSave(url, schema="save"), conversation),
        "postgres saver": Lane(LangGraphPostgres(url), conversation, sampled=True),
        "redis floor": Lane(BareRedisHset(cache.port, f"bare {n}"), conversation),
        "redis append": Lane(BacktrailServerAppend(cache.url, prefix=f"append {n}"), conversation),
        "redis save": Lane(BacktrailServerSave(cache.url, prefix=f"save {n}"), conversation),
    }


def _new_database(postgres: PostgresServer, database: str) -> str:
    """The URL of a new database."""
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {database}")
    return postgres.url.removesuffix("/postgres") + f"/{database}"


def _throughput(name: str, url: str, pool: int, count: int) -> float:
    """Appends per second of `TASKS` tasks over a pool of `pool` connections."""
    namespace = {"postgres": "schema", "redis": "prefix"}[name]
    new = make_conversation(1)[0]

    async def run_tasks() -> float:
        options = {namespace: f"pool_{next(_NUMBERS)}", "pool_size": pool}
        async with await backtrail.aio.open(url, compression=None, **options) as store:
            threads = [store.thread(f"task {n}") for n in range(TASKS)]
            for thread in threads:
                await thread.append("messages", new)

            async def work(thread: Any) -> None:
                for _ in range(count // TASKS):
                    await thread.append("messages", new)

            start = perf_counter()
            await asyncio.gather(*map(work, threads))
            return count / (perf_counter() - start)

    return asyncio.run(run_tasks())


def _make_targets(found: dict[str, Series], sizes: dict[str, float], pools: dict[str, float]) -> list[Target]:
    targets = []
    for server, floor, limit in ("postgres", "a bare INSERT + COMMIT", 1.6), ("redis", "a bare round trip", 1.7):
        ratio = found[f"{server} append"].tenth(9) / found[f"{server} floor"].tenth(9)
        targets.append(Target("servers", f"{server}: append, last tenth, against {floor}", ratio, limit))
        targets.append(Target("servers", f"{server}: bytes stored against the new bytes", sizes[server], 1.4))
        what = f"{server}: {TASKS} tasks over 8 connections against 1"
        targets.append(Target("servers", what, pools[server], 1.0, at_least=True))
    saver = found["postgres saver"].tenth(9)
    for kind in "save", "append":
        faster = saver / found[f"postgres {kind}"].tenth(9)
        targets.append(Target("servers", f"postgres: {kind} against PostgresSaver", faster, 20, at_least=True))
    return targets
