"""Servers that die, stop, lose answers or run full: nothing acknowledged is lost or doubled, and no call hangs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
import pytest
import redis

from backtrail.engines.base import Commit, Drop, Engine, Head, Lease, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.errors import Unavailable
from backtrail.testing import call_modes, sample_records
from backtrail.testing.servers import Hold, PostgresServer, RedisServer, until
from fix_proxy import Proxy

#: Fails soon where it must fail; on a busy machine elsewhere, too: see `answer_of`.
SHORT = {"connect_timeout": 1.0, "read_timeout": 0.4, "retries": 1, "deadline": 3.0}
#: Goes on while a server is started again.
LONG = {"retries": 200, "deadline": 60.0}

T = TypeVar("T")
Test = Callable[["Target"], Awaitable[None]]
_NUMBERS = itertools.count()


class Target:
    """A store on a server, engines on it, and a proxy in between."""

    def __init__(self, kind: str, mode: call_modes.Mode, server: RedisServer | PostgresServer, proxy: Proxy) -> None:
        self.kind, self.mode, self.server, self.proxy = kind, mode, server, proxy
        self._name = f"faults_{next(_NUMBERS)}"
        self._opened: list[Engine] = []

    def open(self, *, direct: bool = False, **options: Any) -> Engine:
        """An engine through the proxy, or past it."""
        port = self.server.port if direct else self.proxy.port
        url = self.server.url.replace(str(self.server.port), str(port))
        make: Any = RedisEngine if self.kind == "redis" else PostgresEngine
        options["prefix" if self.kind == "redis" else "schema"] = self._name
        engine: Engine = make(url, asynchronous=self.mode == "awaited", **options)
        self._opened.append(engine)
        return engine

    def run(self, test: Test) -> None:
        """Run a test in the mode of this target, and close what it opened."""

        async def whole(_: object) -> None:
            try:
                await test(self)
            finally:
                for engine in self._opened:
                    await engine.close()

        call_modes.run(self.mode, whole)


_KINDS = ["redis direct", "redis awaited", "postgres direct", "postgres awaited"]


@pytest.fixture(params=_KINDS)
def target(request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]) -> Target:
    """A store on the server that all tests share: the proxy may misbehave, the server does not."""
    kind, mode = request.param.split()
    server = request.getfixturevalue(f"{kind}_server")
    return Target(kind, mode, server, proxy_to(server.port))


@pytest.fixture(params=_KINDS)
def own_target(request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]) -> Target:
    """A store on a server of its own, which may be hurt."""
    kind, mode = request.param.split()
    make = request.getfixturevalue(f"own_{kind}")
    server = make("-c", "fsync=off") if kind == "postgres" else make()
    return Target(kind, mode, server, proxy_to(server.port))


async def begin(engine: Engine, name: str = "t") -> Head:
    at = sample_records.branch(name)
    await engine.commit(sample_records.first(at))
    return sample_records.head(at)


async def answer_of(call: Callable[[], Awaitable[T]]) -> T:
    """The final answer of an engine that hardly retries: it is right to give up while the machine is busy."""
    while True:
        try:
            return await call()
        except Unavailable:
            await call_modes.pause(0.01)


async def moved(engine: Engine, head: Head, following: Commit) -> None:
    """Commit what follows, however often that takes: one that was given up may have been carried out all the same."""
    while await answer_of(lambda: engine.head(head.thread)) == head:
        with contextlib.suppress(Refused, Unavailable):
            await engine.commit(following)


async def no_more_than(proxy: Proxy, count: int) -> None:
    """Wait until connections that were given up are closed; a loop has to run for that."""
    while proxy.connections > count:
        await call_modes.pause(0.01)


async def steps_of(engine: Engine, name: str = "t") -> list[int]:
    return [step.step for step in await engine.steps(name, sample_records.branch(name).id, 1, 1 << 20)]


def test_a_server_killed_in_the_middle_of_a_thousand_saves_loses_and_doubles_nothing(own_target: Target) -> None:
    writers, saves = 8, 125
    acknowledged = [0] * writers

    def kill_and_start() -> None:
        until(lambda: sum(acknowledged) > 300, "300 saves")
        own_target.server.kill()
        own_target.server.start()

    async def write(engine: Engine, n: int) -> None:
        at = sample_records.branch(f"t{n}")
        await engine.commit(sample_records.first(at))
        acknowledged[n] = 1
        for step in range(1, saves):
            await engine.commit(sample_records.following(sample_records.head(at, step, step), at))
            acknowledged[n] = step + 1

    async def test(target: Target) -> None:
        engine = target.open(direct=True, **LONG)
        await engine.ping()
        killer = threading.Thread(target=kill_and_start)
        killer.start()
        assert await call_modes.race([write(engine, n) for n in range(writers)]) == [None] * writers
        killer.join()
        for n in range(writers):
            at = sample_records.branch(f"t{n}")
            assert await engine.head(f"t{n}") == sample_records.head(at, saves, saves)
            rows = [sample_records.as_row(sample_records.row(at, step)) for step in range(1, saves + 1)]
            assert await engine.rows(f"t{n}", at.id, 1, 1 << 20) == rows
        assert (await engine.stats())["rows"] == writers * saves

    own_target.run(test)


def test_a_commit_whose_answer_was_lost_is_recognised_when_it_is_repeated(target: Target) -> None:
    async def test(target: Target) -> None:
        engine = target.open()
        head, at, other = await begin(engine), sample_records.branch("t"), sample_records.branch("u")
        target.proxy.cut_next_answers()
        await engine.commit(sample_records.following(head, at))
        assert await steps_of(engine) == [1, 2]
        target.proxy.cut_next_answers(3)
        await engine.commit(sample_records.first(other, 3))
        assert await steps_of(engine, "u") == [1, 2, 3]
        target.proxy.cut_next_answers()
        back = sample_records.head(at, 1, 3)
        await engine.commit(Commit("t", swaps=[Swap("t", sample_records.head(at, 2, 2).key, back)]))
        target.proxy.cut_next_answers()
        await engine.commit(Commit("u", swaps=[Swap("u", sample_records.head(other, 3).key, None)]))
        assert target.proxy.cuts_left == 0
        assert await engine.head("t") == back
        assert await engine.head("u") is None

    target.run(test)


def test_a_conflict_after_a_lost_answer_is_still_a_conflict_if_another_won(target: Target) -> None:
    async def test(target: Target) -> None:
        engine, rival = target.open(), target.open(direct=True)
        head, at = await begin(engine), sample_records.branch("t")
        await rival.commit(sample_records.following(head, at))
        target.proxy.cut_next_answers()
        mine = sample_records.row(at, 2, payload=b"mine")
        with pytest.raises(Refused):
            await engine.commit(Commit("t", swaps=[Swap("t", head.key, sample_records.head(at, 2, 2))], rows=[mine]))
        assert target.proxy.cuts_left == 0
        assert await engine.rows("t", at.id, 2, 2) == [sample_records.as_row(sample_records.row(at, 2))]

    target.run(test)


def test_a_lease_whose_answer_was_lost_is_still_mine(target: Target) -> None:
    async def test(target: Target) -> None:
        engine = target.open()
        await engine.ping()
        target.proxy.cut_next_answers()
        lease = await engine.lease("x", "me", 60)
        assert isinstance(lease, Lease)
        target.proxy.cut_next_answers()
        assert await engine.release("x", "me") is True
        yours = await engine.lease("x", "you", 60)
        assert isinstance(yours, Lease)
        assert yours.token > lease.token

    target.run(test)


def test_a_server_that_pauses_for_longer_than_the_timeout_is_unavailable_and_then_goes_on(own_target: Target) -> None:
    async def test(target: Target) -> None:
        patient, engine = target.open(**LONG), target.open(**{**SHORT, "retries": 0})
        head, at = await begin(patient), sample_records.branch("t")
        following = sample_records.following(head, at)
        await answer_of(engine.ping)
        with target.server.paused():
            with pytest.raises(Unavailable) as caught:
                await engine.commit(following)
            assert caught.value.__cause__ is not None
            with pytest.raises(Unavailable):
                await engine.head("t")
        await moved(patient, head, following)
        assert await patient.head("t") == sample_records.head(at, 2, 2)
        assert await steps_of(patient) == [1, 2]
        await answer_of(engine.ping)
        await no_more_than(target.proxy, 20)

    own_target.run(test)


def test_a_black_hole_is_unavailable_and_leaves_no_connections_behind(target: Target) -> None:
    async def test(target: Target) -> None:
        head, at = await begin(target.open(direct=True)), sample_records.branch("t")
        engine = target.open(pool_size=4, **SHORT)
        await answer_of(engine.ping)
        target.proxy.silent = True
        with pytest.raises(Unavailable):
            await engine.commit(sample_records.following(head, at))
        target.proxy.silent = False
        target.proxy.cut()
        await moved(engine, head, sample_records.following(head, at))
        assert await answer_of(lambda: steps_of(engine)) == [1, 2]
        answers = await call_modes.race([answer_of(lambda: engine.head("t")) for _ in range(12)])
        assert answers == [sample_records.head(at, 2, 2)] * 12
        await no_more_than(target.proxy, 4)

    target.run(test)


def test_connections_that_were_cut_while_idle_are_replaced_unnoticed(target: Target) -> None:
    async def test(target: Target) -> None:
        engine = target.open(pool_size=6)
        head, at = await begin(engine), sample_records.branch("t")
        await call_modes.race([engine.head("t") for _ in range(12)])
        for n in range(1, 6):
            target.proxy.cut()
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
        assert head != await engine.head("t") == sample_records.head(at, 6, 6)

    target.run(test)


def test_a_server_that_is_not_there_is_unavailable(own_target: Target) -> None:
    async def test(target: Target) -> None:
        engine = target.open(direct=True, retries=1)
        head = await begin(engine)
        target.server.kill()
        for call in (
            engine.ping(),
            engine.head("t"),
            engine.commit(sample_records.following(head, sample_records.branch("t"))),
        ):
            with pytest.raises(Unavailable):
                await call
        target.server.start()
        await engine.commit(sample_records.following(head, sample_records.branch("t")))
        assert await steps_of(engine) == [1, 2]

    own_target.run(test)


def test_callers_that_give_up_leave_nothing_behind(target: Target) -> None:
    if target.mode == "direct":
        # A thread cannot be cancelled: what it can do is to stop waiting for a connection.
        target.run(_stops_waiting)
    else:
        target.run(_is_cancelled)


async def _stops_waiting(target: Target) -> None:
    patient = target.open(pool_size=1)
    assert await patient.head("t") is None
    engine = target.open(pool_size=1, connect_timeout=0.5, read_timeout=0.4, retries=0)
    await answer_of(engine.ping)
    target.proxy.silent = True
    answers = await call_modes.race([engine.head("t") for _ in range(4)])
    assert all(isinstance(answer, Unavailable) for answer in answers)
    target.proxy.silent = False
    target.proxy.cut()
    assert await patient.head("t") is None
    await no_more_than(target.proxy, 2)


async def _is_cancelled(target: Target) -> None:
    engine = target.open(pool_size=2)
    head, at = await begin(engine), sample_records.branch("t")
    for pause in 0.0, 0.001, 0.02, 0.06:
        target.proxy.delay = 0.05
        tasks = [asyncio.create_task(engine.head("t")) for _ in range(10)]
        await asyncio.sleep(pause)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        target.proxy.delay = 0.0
        assert await call_modes.race([engine.head("t") for _ in range(6)]) == [head] * 6
    await engine.commit(sample_records.following(head, at))
    assert await steps_of(engine) == [1, 2]
    await no_more_than(target.proxy, 2)


# -- Redis ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_without_memory_refuses_whole_commits_and_recovers(
    own_redis: Callable[..., RedisServer], asynchronous: bool
) -> None:

    server = own_redis("--maxmemory-policy", "noeviction")

    async def test(_: object) -> None:
        engine = RedisEngine(server.url, asynchronous=asynchronous)
        head, at = await begin(engine), sample_records.branch("t")
        with redis.Redis(port=server.port) as admin:
            before = await sample_records.everything(engine, "t")
            admin.config_set("maxmemory", 100_000)  # less than an empty server needs
            with pytest.raises(Unavailable, match="memory"):
                await engine.commit(sample_records.following(head, at))
            assert await sample_records.everything(engine, "t") == before
            admin.config_set("maxmemory", 0)
        await engine.commit(sample_records.following(head, at))
        assert await steps_of(engine) == [1, 2]
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_without_memory_can_be_read_and_swept(
    own_redis: Callable[..., RedisServer], asynchronous: bool
) -> None:
    server = own_redis("--maxmemory-policy", "noeviction")

    async def test(_: object) -> None:
        engine = RedisEngine(server.url, asynchronous=asynchronous)
        at = sample_records.branch("t")
        await begin(engine)
        for n in range(1, 4):
            await engine.commit(sample_records.following(sample_records.head(at, n, n), at))
        with redis.Redis(port=server.port) as admin:
            admin.config_set("maxmemory", 100_000)
            # The ids of the last three are in no index yet, and cannot be put there now.
            for _ in range(2):
                found = await engine.locate("t", bytes(16), b"\xff" * 16, 9)
                assert sorted(step for _, step, _ in found) == [1, 2, 3, 4]
            assert admin.scard("backtrail:{0}:late:t") == 1
            name = sample_records.row(at, 3).id
            assert await engine.locate("t", name, name, 9) == [(at.id, 3, name)]
            keys = [("t", sample_records.head(at, 4, 4).key)]
            await engine.drop(Drop("t", keys, bodies=[(at.id, 2)]))
            await engine.drop(Drop("t", keys, rows=[(at.id, 1)]))
            assert await steps_of(engine) == [2, 3, 4]
            admin.config_set("maxmemory", 0)
        found = await engine.locate("t", bytes(16), b"\xff" * 16, 9)
        assert sorted(step for _, step, _ in found) == [2, 3, 4]
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_without_the_replicas_it_needs_refuses_whole_commits_until_they_are_there(
    own_redis: Callable[..., RedisServer], asynchronous: bool
) -> None:
    server = own_redis()

    async def test(_: object) -> None:
        engine = RedisEngine(server.url, asynchronous=asynchronous, retries=1)
        head, at = await begin(engine), sample_records.branch("t")
        with redis.Redis(port=server.port) as admin:
            admin.config_set("min-replicas-to-write", 1)
            with pytest.raises(Unavailable, match="NOREPLICAS"):
                await engine.commit(sample_records.following(head, at))
            assert await engine.head("t") == head
            assert await steps_of(engine) == [1]
            # A replica that comes later is waited for, as far as patience goes.
            follower = own_redis("--replicaof", "127.0.0.1", str(server.port), "--repl-diskless-sync-delay", "0")
            patient = RedisEngine(server.url, asynchronous=asynchronous, **LONG)
            await patient.commit(sample_records.following(head, at))
            assert await steps_of(engine) == [1, 2]
            assert admin.info("replication")["connected_slaves"] == 1
            follower.kill()
        await patient.close()
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_that_was_made_a_replica_is_waited_for(
    own_redis: Callable[..., RedisServer], asynchronous: bool
) -> None:
    server, nobody = own_redis(), Hold()

    async def test(_: object) -> None:
        hasty = RedisEngine(server.url, asynchronous=asynchronous, retries=0)
        patient = RedisEngine(server.url, asynchronous=asynchronous, **LONG)
        await begin(patient)
        await hasty.ping()
        with redis.Redis(port=server.port) as admin:
            admin.replicaof("127.0.0.1", nobody.port)  # a master that is there would soon replace what is here
            head, at = sample_records.head(sample_records.branch("u")), sample_records.branch("u")
            with pytest.raises(Unavailable, match="READONLY"):
                await hasty.commit(sample_records.first(at))
            starter = threading.Timer(0.2, lambda: admin.replicaof("NO", "ONE"))
            starter.start()
            await patient.commit(sample_records.first(at))
            starter.join()
        assert await hasty.head("u") == head
        await patient.close()
        await hasty.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_that_has_too_few_connections_to_open_beforehand_costs_none_of_the_pool(
    own_redis: Callable[..., RedisServer], asynchronous: bool
) -> None:
    server = own_redis("--maxclients", "1")

    async def test(_: object) -> None:
        engine = RedisEngine(server.url, asynchronous=asynchronous, pool_size=2, min_idle=2, retries=0)
        answers = [(await call_modes.race([engine.ping()]))[0] for _ in range(4)]
        await engine.close()
        assert all(isinstance(answer, Unavailable) for answer in answers)
        assert not [answer for answer in answers if "busy" in str(answer)]

    call_modes.run("awaited" if asynchronous else "direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_wrong_redis_password_is_said_at_once(own_redis: Callable[..., RedisServer], asynchronous: bool) -> None:
    server = own_redis("--requirepass", "right")

    async def test(_: object) -> None:
        for password in None, "wrong":
            engine = RedisEngine(server.url, password=password, asynchronous=asynchronous, retries=1000)
            with pytest.raises(Unavailable, match=r"(?i)password|auth"):
                await engine.ping()
            await engine.close()
        engine = RedisEngine(server.url, password="right", asynchronous=asynchronous)
        await engine.ping()
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


# -- PostgreSQL -----------------------------------------------------------------------------------------------------


def test_a_read_only_postgres_can_be_read_and_refuses_commits(own_postgres: Callable[..., PostgresServer]) -> None:
    server = own_postgres("-c", "fsync=off")

    async def test(_: object) -> None:
        engine = PostgresEngine(server.url)
        head = await begin(engine)
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        reader = PostgresEngine(server.url)
        assert await reader.head("t") == head
        with pytest.raises(Unavailable, match="read-only"):
            await reader.commit(sample_records.following(head, sample_records.branch("t")))
        assert await steps_of(engine) == [1]
        await reader.close()
        await engine.close()

    call_modes.run("direct", test)


def test_a_postgres_that_cannot_write_more_refuses_whole_commits(own_postgres: Callable[..., PostgresServer]) -> None:
    # Files of the server may grow to one segment of its log, and no further: to it, a disk that is full.
    limit = (17 << 20, resource.RLIM_INFINITY)
    server = own_postgres("-c", "fsync=off", before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))

    async def test(_: object) -> None:
        engine = PostgresEngine(server.url)
        head, at = await begin(engine), sample_records.branch("t")
        swap = Swap("t", head.key, sample_records.head(at, 2, 2))
        with pytest.raises(Unavailable):
            await engine.commit(Commit("t", [swap], [sample_records.row(at, 2)], blobs={b"big": bytes(24 << 20)}))
        assert await engine.head("t") == head
        assert await steps_of(engine) == [1]
        assert await engine.blob_ids("t") == []
        await engine.commit(sample_records.following(head, at))
        assert await steps_of(engine) == [1, 2]
        await engine.close()

    call_modes.run("direct", test)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_postgres_that_has_too_few_connections_to_open_beforehand_costs_none_of_the_pool(
    own_postgres: Callable[..., PostgresServer], asynchronous: bool
) -> None:
    server = own_postgres("-c", "fsync=off")
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE modest LOGIN CONNECTION LIMIT 1")
        admin.execute("GRANT CREATE ON DATABASE postgres TO modest")

        async def test(_: object) -> None:
            url = server.url.replace("backtrail@", "modest@")
            engine = PostgresEngine(url, asynchronous=asynchronous, pool_size=2, min_idle=2, retries=0)
            for _ in range(3):
                with pytest.raises(Unavailable, match="too many connections"):
                    await engine.ping()
            admin.execute("ALTER ROLE modest CONNECTION LIMIT -1")  # those that were closed may still be ending
            await begin(engine)
            assert await call_modes.race([steps_of(engine) for _ in range(4)]) == [[1]] * 4
            await engine.close()

        call_modes.run("awaited" if asynchronous else "direct", test)


def _refuses(login: str) -> bool:
    try:
        psycopg.connect(login).close()
    except psycopg.OperationalError:
        return True
    return False


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_wrong_database_or_password_is_said_at_once(
    own_postgres: Callable[..., PostgresServer], asynchronous: bool
) -> None:
    server = own_postgres("-c", "fsync=off")
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules = server.directory / "data" / "pg_hba.conf"
    rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("SELECT pg_reload_conf()")
    login = server.url.replace("backtrail@", "locked:wrong@")
    until(lambda: _refuses(login), "the server has read its rules")

    async def test(_: object) -> None:
        for url, what in (server.url.replace("/postgres", "/nowhere"), "nowhere"), (login, "password"):
            engine = PostgresEngine(url, asynchronous=asynchronous, retries=1000)
            with pytest.raises(Unavailable, match=what):
                await engine.ping()
            await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)
