"""The PostgreSQL engine behind a pooler, as the pooler sees it; test_postgres.py runs the contract behind one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import psycopg
import pytest

import backtrail
from backtrail.engines.postgres import PostgresEngine
from backtrail.testing import call_modes, sample_records
from backtrail.testing.servers import PostgresServer
from fix_pooler import Pooler


def through(pooler: Pooler, server: PostgresServer) -> str:
    return server.url.replace(str(server.port), str(pooler.port))


def session(connection: psycopg.Connection[tuple[int]]) -> int:
    ((pid,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
    return pid


def test_the_pooler_gives_each_transaction_another_session(
    pooler_to: Callable[..., Pooler], postgres_server: PostgresServer
) -> None:
    """So that the tests here can fail: what a session keeps is not there the next time."""
    pooler = pooler_to(postgres_server.port)
    with psycopg.connect(through(pooler, postgres_server), autocommit=True, prepare_threshold=None) as connection:
        seen = [session(connection) for _ in range(7)]
        assert all(one != other for one, other in itertools.pairwise(seen))
        with connection.transaction():
            assert session(connection) == session(connection)
        connection.execute("SET work_mem = '1234kB'")
        settings = [connection.execute("SHOW work_mem").fetchone() for _ in range(3)]
        assert settings.count(("1234kB",)) == 1
    keeping = psycopg.connect(through(pooler, postgres_server), autocommit=True, prepare_threshold=0)
    with keeping, pytest.raises(psycopg.errors.InvalidSqlStatementName):
        keeping.execute("SELECT 1")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_statement_is_kept_unless_asked_for(
    pooler_to: Callable[..., Pooler], postgres_server: PostgresServer, asynchronous: bool
) -> None:
    pooler = pooler_to(postgres_server.port)
    schema = f"kept_nothing_{'awaited' if asynchronous else 'direct'}"

    async def test(_: object) -> None:
        engine = PostgresEngine(through(pooler, postgres_server), schema=schema, pool_size=1, asynchronous=asynchronous)
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        before = pooler.lent
        for n in range(1, 20):
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
            assert await engine.head("t") == sample_records.head(at, n + 1, n + 1)
        assert pooler.lent - before == 2 * 19  # one transaction each
        assert pooler.named == set()
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_kept_statement_that_a_session_does_not_know_is_sent_whole(
    pooler_to: Callable[..., Pooler], postgres_server: PostgresServer, asynchronous: bool
) -> None:
    pooler = pooler_to(postgres_server.port)
    schema = f"kept_one_{'awaited' if asynchronous else 'direct'}"

    async def test(_: object) -> None:
        engine = PostgresEngine(
            through(pooler, postgres_server), schema=schema, pool_size=1, prepare=True, asynchronous=asynchronous
        )
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        for n in range(1, 20):
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
        assert len(pooler.named) == 1
        await engine.close()
        plain = PostgresEngine(postgres_server.url, schema=schema, asynchronous=asynchronous)
        assert [row.step for row in await plain.rows("t", at.id, 1, 99)] == list(range(1, 21))
        await plain.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


def test_a_whole_store_lives_behind_a_pooler(pooler_to: Callable[..., Pooler], postgres_server: PostgresServer) -> None:
    pooler = pooler_to(postgres_server.port, sessions=4)
    with backtrail.open(through(pooler, postgres_server), schema="pooled_store") as store:
        thread = store.thread("t")
        for n in range(8):
            thread.append("messages", [{"role": "user", "content": str(n)}])
        fork = thread.fork("u")
        with fork.lock():
            fork.append("messages", [{"role": "user", "content": "only here"}])
        thread.rewind(6)
        assert [message["content"] for message in thread.load()["messages"]] == list("012345")
        assert len(fork.load()["messages"]) == 9
        assert store.verify().ok
    assert pooler.named == set()
