"""PostgreSQL and Redis keep the numbers of their records: they are exact whatever happens, and read without a look at
the records; `verify` notices if they are wrong. What a listing reads is counted: by the plans of PostgreSQL, and by the
commands that Redis says it ran."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import redis

import backtrail
from backtrail.engines.base import Commit, Drop, Engine, Swap
from backtrail.engines.namespace import NamespaceEngine
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.postgres.schema import Schema
from backtrail.engines.redis import RedisEngine
from backtrail.testing import sample_records
from backtrail.testing.call_modes import race, step
from backtrail.testing.servers import PostgresServer, RedisServer, until
from fix_children import kill_at_work

_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"kept_{next(_NUMBERS)}"


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest, name: str) -> str:
    """An empty store on each server."""
    if request.param == "postgres":
        return f"{request.getfixturevalue('postgres_server').url}?schema={name}"
    return f"{request.getfixturevalue('redis_server').url}?prefix={name}"


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def cache(own_redis: Callable[..., RedisServer]) -> Iterator[tuple[RedisServer, redis.Redis]]:
    """A server that nobody else uses, because its commands and its memory are counted."""
    server = own_redis("--appendonly", "no")
    with redis.Redis(port=server.port) as client:
        yield server, client


# -- exact -----------------------------------------------------------------------------------------------------------

CHILD = """
import sys, backtrail
store = backtrail.open(sys.argv[1])
for number in range(100_000):
    thread = store.thread(f"{sys.argv[2]}{number % 10}")
    thread.append("items", [number, str(number) * 2000])
    if number % 7 == 0:
        thread.append("items", ["again"])
        thread.rewind("@~1")
        thread.append("items", ["once more"])
        thread.fork(f"{thread.id} fork {number}")
    if number % 5 == 0:
        thread.delete()
    if number == 60:
        print("busy", flush=True)
    if number % 30 == 0:
        store.prune(backtrail.Retention(keep_last=2))
"""


def test_counts_are_exact_after_several_processes_were_killed_at_work(url: str) -> None:
    backtrail.open(url).close()
    kill_at_work(CHILD, [url, "a"], [url, "b"])
    with backtrail.open(url) as store:
        assert store.verify().problems == ()
        until(  # the server may still be at work for a child
            lambda: store.count() == len(store.threads()) == len(store.threads(newest_first=True)) > 0,
            "all counts agree",
        )
        for info in store.threads():
            store.thread(info.id).delete()
        store.compact()
        figures = store.stats(survey=False)
        assert [figures[what] for what in ("threads", "branches", "rows", "blobs")] == [0, 0, 0, 0]
        assert store.verify().problems == ()


def test_counts_that_are_wrong_are_reported_by_verify_and_mended_by_a_repair(
    url: str, name: str, request: pytest.FixtureRequest
) -> None:
    with backtrail.open(url) as store:
        for number in range(5):
            store.thread(f"t{number}").save({"n": number})
        store.session("s").append({"role": "user", "content": "x" * 5000})
        right = store.stats(survey=False)
        if url.startswith("postgres"):
            with psycopg.connect(request.getfixturevalue("postgres_server").url, autocommit=True) as admin:
                admin.execute(f"INSERT INTO {name}.counts VALUES (7, -1, 0, 3)")
        else:
            with redis.Redis(port=request.getfixturevalue("redis_server").port) as client:
                for what, more in ("threads", 7), ("branches", -1), ("blobs", 3):
                    client.hincrby(f"{name}:{{0}}:sizes", what, more)
        assert store.count() == 13
        wrong = {
            ("the number of threads", "13 are recorded, and 6 are there"),
            ("the number of branches", "5 are recorded, and 6 are there"),
            ("the number of blobs", f"{right['blobs'] + 3} are recorded, and {right['blobs']} are there"),
        }
        assert {(one.where, one.reason) for one in store.verify().problems} == wrong
        assert {(one.where, one.reason) for one in store.verify(repair=True).problems} == wrong
        assert store.verify().ok
        assert store.count() == 6
        assert {**store.stats(survey=False), "total": 0, "bytes": 0} == {**right, "total": 0, "bytes": 0}


def test_the_figures_of_a_namespace_are_counted_by_the_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with backtrail.open(url) as root, backtrail.open(url, namespace="n") as inside:
        for number, store in enumerate((root, inside, inside)):
            store.thread(f"t{number}").save({"n": number})
            store.thread(f"t{number}").save({"text": "x" * 100_000})

        def read(*_: Any) -> Any:
            raise AssertionError("the records are sent to the client")

        kind = type(root._core.context.engine)
        for name in "heads", "branches", "steps", "rows", "payloads", "blobs", "blob_ids":
            monkeypatch.setattr(kind, name, read)
        for store, threads in (root, 1), (inside, 2):
            figures = store.stats(survey=False)
            found = [figures[what] for what in ("threads", "branches", "rows", "blobs")]
            assert found == [threads, threads, 2 * threads, threads]


def test_writers_of_different_threads_do_not_wait_for_each_others_count(
    postgres_server: PostgresServer, postgres: psycopg.Connection[Any], name: str
) -> None:
    engine = PostgresEngine(postgres_server.url, schema=name, read_timeout=20)
    step(engine.ping())
    with psycopg.connect(postgres_server.url) as slow:  # a commit that has counted and is not yet done
        slow.execute(f"SELECT {name}.add_to_counts(1, 1, 1, 1)")
        slow.execute(f"SELECT {name}.fold_counts()")
        assert step(race([engine.commit(sample_records.first(sample_records.branch(f"t{n}"))) for n in range(4)]))
        postgres.execute(f"SELECT {name}.fold_counts()")
        assert step(engine.count()) == 4
        slow.rollback()
    assert step(engine.count()) == 4
    assert step(engine.check()) == []
    step(engine.close())


def test_rows_of_the_counts_are_now_and_then_replaced_by_their_sum(
    postgres_server: PostgresServer, postgres: psycopg.Connection[Any], name: str
) -> None:
    engine = PostgresEngine(postgres_server.url, schema=name)
    step(engine.ping())
    postgres.execute(f"SELECT {name}.add_to_counts(1, 2, 0, -1) FROM generate_series(1, 20000)")
    ((rows, *sums),) = postgres.execute(
        f"SELECT count(*), sum(threads), sum(branches), sum(rows), sum(blobs) FROM {name}.counts"
    ).fetchall()
    assert rows < 15_000  # that none of 5,000 commits does it has a chance of one in 20,000
    assert sums == [20_000, 40_000, 0, -20_000]
    step(engine.compact())
    assert postgres.execute(f"SELECT count(*) FROM {name}.counts").fetchall() == [(1,)]
    assert step(engine.count()) == 20_000
    step(engine.close())


def test_lineages_that_expired_are_not_counted_and_may_begin_again(redis_server: RedisServer, name: str) -> None:
    engine = RedisEngine(redis_server.url, prefix=name, ttl=0.3)
    stays = RedisEngine(redis_server.url, prefix=name)

    def figures() -> list[int]:
        found = step(stays.stats())
        return [found[what] for what in ("threads", "branches", "rows", "blobs")]

    for n in range(4):
        at = sample_records.branch(f"t{n}")
        step(engine.commit(sample_records.first(at, 2)))
        step(engine.commit(Commit(f"t{n}", blobs={b"a": b"1", b"b": b"2"})))
        step(engine.commit(sample_records.following(sample_records.head(at, 2, 1), at)))
    step(stays.commit(sample_records.first(sample_records.branch("stays"))))
    at = sample_records.branch("t3")  # this one's ttl is taken away by a row, and its blobs dropped
    step(stays.commit(sample_records.following(sample_records.head(at, 3, 2), at)))
    step(stays.drop(Drop("t3", [("t3", sample_records.head(at, 4, 3).key)], blobs=[b"a"])))
    until(lambda: not any(step(stays.head(f"t{n}")) for n in range(3)), "three lineages expire")
    step(
        engine.commit(sample_records.first(sample_records.branch("t0", 7)))
    )  # begins again, before anybody has counted
    step(stays.drop(Drop("t1", [])))  # a sweep that finds nothing any more
    assert step(stays.check()) == []
    assert figures()[1:] == [3, 6, 1] or step(stays.head("t0")) is None
    until(lambda: figures() == [2, 2, 5, 1], "t0 expires once more")
    assert step(stays.count()) == 2
    assert step(stays.check()) == []
    step(stays.compact())
    assert step(stays.check()) == []
    step(engine.close())
    step(stays.close())


def test_bytes_on_redis_are_about_the_memory_that_it_uses(cache: tuple[RedisServer, redis.Redis]) -> None:
    server, client = cache

    def tiny(store: backtrail.Store) -> None:
        for number in range(600):
            store.thread(f"t{number:05}").save({"n": number})

    def long(store: backtrail.Store) -> None:
        for number in range(800):
            store.thread("long").append("items", [number])

    def large(store: backtrail.Store) -> None:
        for number in range(20):
            store.thread(f"t{number}").save({"text": f"{number} " * 40_000})

    for number, fill in enumerate((tiny, long, large)):
        empty = client.info("memory")["used_memory"]
        with backtrail.open(server.url, prefix=f"shape{number}", compression=None) as store:
            fill(store)
            used = client.info("memory")["used_memory"] - empty
            assert 0.7 < store.stats(survey=False)["bytes"] / used < 1.3, fill.__name__
            for info in store.threads():
                store.thread(info.id).delete()
            store.compact()
            assert store.stats(survey=False)["bytes"] == 0


# -- what a page reads -----------------------------------------------------------------------------------------------


def _commands(client: redis.Redis) -> int:
    return sum(one["calls"] for one in client.info("commandstats").values())


def _begin(engine: Engine, first: int, last: int, since: int = 1000) -> None:
    for number in range(first, last):
        at = sample_records.branch(f"t{number:05}", next(_NUMBERS))
        kind = "session" if number % 10 == 0 else "thread"
        head = sample_records.head(at, kind=kind, updated=since + number)
        step(
            engine.commit(
                Commit(at.lineage, [Swap(at.thread, None, head)], rows=[sample_records.row(at, 1)], branches=[at])
            )
        )


def test_redis_runs_no_more_commands_for_a_page_or_a_count_of_more_threads(
    cache: tuple[RedisServer, redis.Redis],
) -> None:
    server, client = cache
    engine = RedisEngine(server.url)
    one, other = NamespaceEngine(engine, "one"), NamespaceEngine(engine, "other")
    _begin(one, 0, 30)
    calls: dict[str, Callable[[], Any]] = {
        "count": engine.count,
        "stats": engine.stats,
        "newest": lambda: engine.threads(newest_first=True, limit=10),
        "by name": lambda: engine.threads(limit=10),
        "newest of a kind": lambda: engine.threads(kind="session", newest_first=True, limit=2),
        "newest in a namespace": lambda: one.threads(newest_first=True, limit=10),
        "a later page of it": lambda: one.threads(newest_first=True, limit=10, after="t00015"),
        "newest of a kind in it": lambda: one.threads(newest_first=True, kind="session", limit=2),
    }
    taken: list[dict[str, int]] = []
    for more in 60, 1200:
        _begin(other, 0 if more == 60 else 60, more)
        _begin(engine, 0 if more == 60 else 60, more)
        found = {}
        for what, call in calls.items():
            before = _commands(client)
            step(call())
            found[what] = _commands(client) - before
        taken.append(found)
    small, large = taken
    assert {what: large[what] - small[what] for what in calls if large[what] > small[what]} == {}
    assert max(large.values()) < 80
    assert step(engine.check()) == []
    step(engine.close())


def test_redis_sends_a_page_of_forks_and_not_all_of_them(cache: tuple[RedisServer, redis.Redis]) -> None:
    server, client = cache
    engine = RedisEngine(server.url)
    first = sample_records.branch("t")
    step(engine.commit(sample_records.first(first, 1)))

    def fork(names: range) -> None:
        for number in names:
            at = sample_records.branch(f"f{number:05}", lineage="t", origin=(first.id, 1))
            row, head = sample_records.row(at, 2), sample_records.head(at, 2)
            step(engine.commit(Commit("t", [Swap(at.thread, None, head)], rows=[row], branches=[at])))

    def sent(after: str | None) -> tuple[list[str], int]:
        before = client.info("stats")["total_net_output_bytes"]
        found = [head.thread for head in step(engine.heads("t", after=after, limit=10))]
        return found, client.info("stats")["total_net_output_bytes"] - before

    fork(range(20))
    small = sent(None), sent("f00009")
    fork(range(20, 600))
    large = sent(None), sent("f00009")
    assert [found for found, _ in large] == [[f"f{n:05}" for n in range(10)], [f"f{n:05}" for n in range(10, 20)]]
    assert all(after < before + 1000 for (_, before), (_, after) in zip(small, large, strict=True)), (small, large)
    assert [head.thread for head in step(engine.heads("t", after="f00597", limit=10))] == ["f00598", "f00599", "t"]
    gone = step(engine.head("f00003"))
    assert gone is not None
    step(engine.commit(Commit("t", swaps=[Swap("f00003", gone.key, None)])))
    assert [head.thread for head in step(engine.heads("t", limit=4))] == ["f00000", "f00001", "f00002", "f00004"]
    step(engine.close())


def _rows_read(admin: psycopg.Connection[Any], query: bytes, params: Any) -> int:
    """Rows that a query took from tables and indexes, those that a filter threw away included."""
    ((found,),) = admin.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + query, params).fetchall()

    def read(node: dict[str, Any]) -> int:
        inside = sum(map(read, node.get("Plans", ())))
        if "Relation Name" not in node and "Index Name" not in node:
            return inside
        taken = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        return inside + round(taken * node["Actual Loops"])

    return read((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])


@pytest.mark.parametrize("analyzed", [True, False])
def test_postgres_reads_no_more_rows_for_a_page_or_a_count_of_more_threads(
    postgres_server: PostgresServer, postgres: psycopg.Connection[Any], name: str, analyzed: bool
) -> None:
    engine = PostgresEngine(postgres_server.url, schema=name)
    one = NamespaceEngine(engine, "one")
    step(engine.ping())
    postgres.execute(f"ALTER TABLE {name}.heads SET (autovacuum_enabled = false)")
    _begin(one, 0, 30, 10**12)
    (room,) = {head.thread[: -len("t00000")] for head in step(engine.threads())}
    page = {"low": "", "high": None, "after": None, "limit": 10, "kind": None, "namespace": None}
    inside = {**page, "low": room, "high": room[:-1] + "\x20", "namespace": room[:-1]}
    calls: dict[str, tuple[str, Any]] = {
        "count": ("count", None),
        "stats": ("stats", [name]),
        "by name": ("threads", page),
        "by name in the middle": ("threads", {**page, "after": "other5"}),
        "of a kind": ("threads_of_kind", {**page, "kind": "session"}),
        "newest": ("newest", page),
        "a later page of it": ("newest", {**page, "after": "other1000"}),
        "newest of a kind": ("newest", {**page, "kind": "session"}),
    }
    namespaced: dict[str, tuple[str, Any]] = {
        "newest in a namespace": ("newest", inside),
        "a later page of it in a namespace": ("newest", {**inside, "after": room + "t00015"}),
        "newest of a kind in it": ("newest", {**inside, "kind": "session", "limit": 2}),
    }
    if analyzed:  # before the first statistics, the server takes any namespace for a small one, and sorts it
        calls |= namespaced
    taken: list[dict[str, int]] = []
    for first, last in (1, 3000), (3001, 30_000):
        for prefix, since in ("other", 2 * 10**12), (room.replace("one", "other"), 2 * 10**12), (room + "old", 0):
            postgres.execute(
                f"""
                INSERT INTO {name}.heads SELECT %s || i, %s || i, '', '', 1, 1,
                    CASE WHEN i %% 10 = 0 THEN 'session' ELSE 'thread' END, 0,
                    %s::bigint + i * 5000000::bigint, 1, 1, ''
                FROM generate_series(%s::int, %s::int) i
                """,
                [prefix, prefix, since, first, last],
            )
        if analyzed:
            postgres.execute(f"ANALYZE {name}.heads")
        schema = Schema(name)
        taken.append({what: _rows_read(postgres, schema[query], params) for what, (query, params) in calls.items()})
    small, large = taken
    assert {what: (small[what], large[what]) for what in calls if large[what] > 1.2 * small[what] + 100} == {}
    step(engine.close())


def test_postgres_reads_no_more_of_a_long_branch_among_many_short_ones(
    postgres_server: PostgresServer, postgres: psycopg.Connection[Any], name: str
) -> None:
    engine = PostgresEngine(postgres_server.url, schema=name)
    at = sample_records.branch("long")
    step(engine.commit(sample_records.first(at)))
    postgres.execute(
        f"""
        INSERT INTO {name}.branches SELECT i, decode(md5(i::text), 'hex'), 'l' || i, 't' || i, '', NULL, 0, ''
            FROM generate_series(1, 20000) i;
        INSERT INTO {name}.steps SELECT i, 1, decode(md5('id' || i), 'hex'), '', '' FROM generate_series(1, 20000) i;
        INSERT INTO {name}.bodies SELECT i, 1, '', '' FROM generate_series(1, 20000) i;
        INSERT INTO {name}.steps SELECT n, i, decode(md5('long' || i), 'hex'), '', ''
            FROM {name}.branches, generate_series(2, 8000) i WHERE lineage = 'long';
        INSERT INTO {name}.bodies SELECT n, i, '', '' FROM {name}.branches, generate_series(2, 8000) i
            WHERE lineage = 'long';
        INSERT INTO {name}.marks SELECT n, i * 400, '' FROM {name}.branches, generate_series(1, 20) i
            WHERE lineage = 'long';
        UPDATE {name}.heads SET step = 8000
        """
    )
    postgres.execute(f"ANALYZE {name}.branches, {name}.heads, {name}.steps, {name}.bodies, {name}.marks")
    schema = Schema(name)
    pages = {}
    for query, params in {
        "tip": ["long"],
        "row": ["long", at.id, 4000],
        "newest_steps": [at.id, "long", 1, 8000, 20],
        "marked_steps": [at.id, "long", 1, 8000],
        "steps": [at.id, "long", 4000, 4020],
        "payloads": [at.id, "long", 4000, 4020],
        "rows": [at.id, "long", 4000, 4020],
    }.items():
        for _ in range(7):  # a function's plan may change after some calls
            ((found,),) = postgres.execute(
                b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + schema[query], params
            ).fetchall()
        plan = found[0]["Plan"]
        pages[query] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert max(pages.values()) < 150, pages
    tip = step(engine.tip("long"))
    assert tip is not None and tip[1] is not None
    assert (tip[0].step, tip[1].step) == (8000, 8000)
    assert [one.step for one in step(engine.steps("long", at.id, 1, 9000, newest=3))] == [7998, 7999, 8000]
    step(engine.close())


def test_postgres_reads_a_page_of_forks_and_not_all_of_them(
    postgres_server: PostgresServer, postgres: psycopg.Connection[Any], name: str
) -> None:
    engine = PostgresEngine(postgres_server.url, schema=name)
    step(engine.commit(sample_records.first(sample_records.branch("long"))))
    postgres.execute(
        f"""
        INSERT INTO {name}.heads SELECT 'fork-' || i, CASE WHEN i % 10 = 0 THEN 'long' ELSE 'l' || i END, '',
            decode(md5(i::text), 'hex'), 1, 1, 'thread', 0, i, 1, 1, '' FROM generate_series(1, 20000) i
        """
    )
    postgres.execute(f"ANALYZE {name}.heads")
    assert _rows_read(postgres, Schema(name)["heads"], ["long", "fork-5", 21]) <= 100
    page = step(engine.heads("long", after="fork-19999", limit=3))
    assert [head.thread for head in page] == ["fork-20", "fork-200", "fork-2000"]
    step(engine.close())
