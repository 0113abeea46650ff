"""Particulars of Redis: keys and their expiry, shards, clients, options, and the calls that are sent."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

import backtrail
from backtrail.engines.base import Commit, Drop, Engine, Fence, Lease, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.redis import RedisEngine
from backtrail.engines.redis.keys import Shards
from backtrail.errors import InvalidInput, LockLost, LockTimeout, UnsupportedFormat
from backtrail.testing import call_modes, sample_records
from backtrail.testing.call_modes import step
from backtrail.testing.servers import RedisCluster, RedisServer, until
from fix_children import run as in_child
from fix_proxy import Proxy

_NUMBERS = itertools.count()
HIGH = b"\xff" * 16
#: For answers that a proxy holds back until enough callers wait for one.
PATIENT: dict[str, Any] = {"connect_timeout": 60.0, "read_timeout": 60.0}

#: Every kind of key that the documentation names; a name that users chose may follow the colon.
KINDS = (
    b"store", b"counts", b"sizes", b"held", b"due", b"lineages", b"branches", b"pointers", b"kinds", b"names:",
    b"ages:", b"ages-in:", b"leases", b"fences", b"blocked:", b"heads:", b"forks:", b"branches:", b"tops:",
    b"steps:", b"payloads:", b"marks:", b"ids:", b"late:", b"blobs:", b"blob-ids:",
)  # fmt: skip


@pytest.fixture
def prefix() -> str:
    return f"store-{next(_NUMBERS)}"


@pytest.fixture
def admin(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def engine(redis_server: RedisServer, prefix: str) -> Iterator[RedisEngine]:
    engine = RedisEngine(redis_server.url, prefix=prefix)
    yield engine
    step(engine.close())


def fill(engine: Engine, name: str = "t") -> None:
    """A lineage with a record of every kind."""
    at, fork = (
        sample_records.branch(name),
        sample_records.branch(name + " fork", lineage=name, origin=(sample_records.branch(name).id, 1)),
    )
    step(engine.commit(sample_records.first(at, 3)))
    step(engine.commit(sample_records.first(fork)))
    step(engine.commit(Commit(name, marks=[Mark(at.id, 1, b"m")], blobs={b"a": b"1"})))
    step(engine.commit(sample_records.following(sample_records.head(at, 3), at)))
    step(engine.lease(f"lock:{name}", "me", 60))


# -- keys and expiry ------------------------------------------------------------------------------------------------


def test_every_key_is_of_a_kind_that_is_documented(engine: RedisEngine, admin: redis.Redis, prefix: str) -> None:
    for name in "t", "heads:t", "lock:x", "{0}:heads", "}":
        fill(engine, name)
    start = f"{prefix}:{{0}}:".encode()
    found = list(admin.scan_iter(f"{prefix}*"))
    assert len(found) > 50
    for key in found:
        assert key.startswith(start)
        rest = key.removeprefix(start)
        assert rest in KINDS or any(kind.endswith(b":") and rest.startswith(kind) for kind in KINDS), key
    assert [head.thread for head in step(engine.heads("{0}:heads"))] == ["{0}:heads", "{0}:heads fork"]


def test_the_documentation_names_every_kind_of_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    for kind in KINDS:
        assert f"`{kind.decode().rstrip(':')}" in text, kind


def test_nothing_is_left_of_a_lineage_that_was_swept(engine: RedisEngine, admin: redis.Redis, prefix: str) -> None:
    fill(engine)
    heads = step(engine.heads("t"))
    step(engine.commit(Commit("t", swaps=[Swap(head.thread, head.key, None) for head in heads])))
    ids = [branch.id for branch in step(engine.branches("t"))]
    step(engine.drop(Drop("t", [], branches=ids, blobs=[b"a"])))
    left = {key.split(b"}:")[1] for key in admin.scan_iter(f"{prefix}*")}
    assert left == {b"store", b"counts", b"sizes", b"kinds", b"leases"}
    assert set(admin.hvals(f"{prefix}:{{0}}:sizes")) == {b"0"}


def times_to_live(admin: redis.Redis, keys: Sequence[bytes]) -> set[int]:
    """How long these keys live, in milliseconds: one number if all of them expire at the same instant."""
    script = "local t = {} for i, k in ipairs(KEYS) do t[i] = redis.call('PTTL', k) end return t"
    for _ in range(50):  # a millisecond may pass between two keys, so the server is asked until it answers within one
        found = set(admin.eval(script, len(keys), *keys))
        if len(found) == 1:
            break
    return found


def test_all_keys_of_a_lineage_expire_at_the_same_instant(
    redis_server: RedisServer, admin: redis.Redis, prefix: str
) -> None:
    engine = RedisEngine(redis_server.url, prefix=prefix, ttl=timedelta(hours=1))
    fill(engine)
    fill(engine, "other")
    own = sorted(key for key in admin.scan_iter(f"{prefix}*") if key.endswith((b":t", b":other")))
    assert len(own) == 22
    for name in b":t", b":other":
        keys = [key for key in own if key.endswith(name)]
        first = times_to_live(admin, keys)
        assert len(first) == 1
        assert 0 < first.pop() <= 3_600_000
    longer = RedisEngine(redis_server.url, prefix=prefix, ttl=7200)
    step(longer.commit(Commit("t", marks=[Mark(sample_records.branch("t").id, 2, b"renews all")])))
    keys = [key for key in own if key.endswith(b":t")]
    renewed = times_to_live(admin, keys)
    assert len(renewed) == 1
    assert renewed.pop() > 3_600_000
    forever = RedisEngine(redis_server.url, prefix=prefix)
    step(forever.commit(Commit("t", marks=[Mark(sample_records.branch("t").id, 2, b"keeps all")])))
    assert times_to_live(admin, keys) == {-1}
    for one in engine, longer, forever:
        step(one.close())


def test_a_single_row_renews_the_expiry_of_all_keys_or_takes_it_away(
    redis_server: RedisServer, admin: redis.Redis, prefix: str
) -> None:
    at, n = sample_records.branch("t"), itertools.count(4)

    def expiry_after_a_row(ttl: float | None) -> set[int]:
        engine, last = RedisEngine(redis_server.url, prefix=prefix, ttl=ttl), next(n)
        step(engine.commit(sample_records.following(sample_records.head(at, last, last - 2), at)))
        step(engine.close())
        keys = [key for key in admin.scan_iter(f"{prefix}*") if key.endswith(b":t")]
        assert len(keys) == 11
        return times_to_live(admin, keys)

    engine = RedisEngine(redis_server.url, prefix=prefix)
    fill(engine)
    step(engine.close())
    assert expiry_after_a_row(None) == {-1}
    for ttl, least in (3600, 0), (7200, 3_600_000):
        (left,) = expiry_after_a_row(ttl)
        assert least < left <= ttl * 1000
    assert expiry_after_a_row(None) == {-1}
    assert expiry_after_a_row(None) == {-1}


def located_steps(engine: RedisEngine, limit: int = 10_000) -> list[int]:
    return sorted(number for _, number, _ in step(engine.locate("t", bytes(16), HIGH, limit)))


def test_ids_that_saves_left_out_are_found_and_then_kept_in_order(
    engine: RedisEngine, admin: redis.Redis, prefix: str
) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    for n in range(1, 6200):  # more than one look puts into the index
        step(engine.commit(sample_records.following(sample_records.head(at, n, n), at)))
    assert admin.zcard(f"{prefix}:{{0}}:ids:t") == 1
    assert admin.smembers(f"{prefix}:{{0}}:late:t") == {at.id}
    last = sample_records.row(at, 6200).id
    assert step(engine.locate("t", last, last, 5)) == [(at.id, 6200, last)]
    assert admin.zcard(f"{prefix}:{{0}}:ids:t") == 6200
    assert admin.smembers(f"{prefix}:{{0}}:late:t") == set()
    step(engine.commit(sample_records.following(sample_records.head(at, 6200, 6200), at)))
    assert located_steps(engine) == list(range(1, 6202))


def test_rows_that_were_dropped_before_anybody_looked_for_their_ids_are_not_found(engine: RedisEngine) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    for n in range(1, 6):
        step(engine.commit(sample_records.following(sample_records.head(at, n, n), at)))
    step(engine.drop(Drop("t", [("t", sample_records.head(at, 6, 6).key)], rows=[(at.id, 3)], bodies=[(at.id, 4)])))
    assert located_steps(engine) == [1, 2, 4, 5, 6]
    assert step(engine.rows("t", at.id, 4, 4)) == [
        sample_records.as_row(sample_records.row(at, 4))._replace(root=b"", payload=b"")
    ]
    step(engine.drop(Drop("t", [("t", sample_records.head(at, 6, 6).key)], rows=[(at.id, 2), (at.id, 6)])))
    assert located_steps(engine) == [1, 4, 5]


def test_ids_that_are_put_in_order_late_expire_with_the_rest(
    redis_server: RedisServer, admin: redis.Redis, prefix: str
) -> None:
    engine = RedisEngine(redis_server.url, prefix=prefix, ttl=3600)
    at = sample_records.branch("t")
    step(engine.commit(Commit("t", swaps=[Swap("t", None, sample_records.head(at, 0, 1))], branches=[at])))
    step(engine.commit(sample_records.following(sample_records.head(at, 0, 1), at)))
    ids = f"{prefix}:{{0}}:ids:t"
    assert not admin.exists(ids)
    assert located_steps(engine) == [1]
    script = "return {redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2])}"
    left = admin.eval(script, 2, ids, f"{prefix}:{{0}}:steps:t")
    assert left[0] == left[1] > 0
    step(engine.close())


def test_an_expired_thread_is_gone_from_everywhere_and_can_begin_again(
    redis_server: RedisServer, admin: redis.Redis, prefix: str
) -> None:
    keeper = RedisEngine(redis_server.url, prefix=prefix)
    engine = RedisEngine(redis_server.url, prefix=prefix, ttl=0.05)
    step(keeper.commit(sample_records.first(sample_records.branch("kept"))))
    step(engine.commit(sample_records.first(sample_records.branch("t"), 2)))
    step(engine.commit(sample_records.first(sample_records.branch("fork", lineage="t"))))
    # The second came later, perhaps when the first had expired already, and then expires later.
    until(lambda: step(engine.head("t")) is None and step(engine.head("fork")) is None, "both threads expire")
    assert [head.thread for head in step(engine.threads())] == ["kept"]
    assert [head.thread for head in step(engine.threads(newest_first=True))] == ["kept"]
    assert step(engine.lineages()) == ["kept"]
    assert step(engine.stats())["rows"] == 1
    step(engine.compact())
    assert admin.hkeys(f"{prefix}:{{0}}:branches") == [sample_records.branch("kept").id]
    step(keeper.commit(sample_records.first(sample_records.branch("t"), 2)))
    step(keeper.commit(sample_records.first(sample_records.branch("fork"))))
    assert [head.thread for head in step(keeper.threads())] == ["fork", "kept", "t"]
    for one in engine, keeper:
        step(one.close())


def test_a_prune_of_leases_forgets_old_ones_and_their_tokens_never_come_back(
    engine: RedisEngine, admin: redis.Redis, prefix: str
) -> None:
    held = step(engine.lease("held", "me", 60))
    gone = step(engine.lease("gone", "me", 60))
    assert step(engine.release("gone", "me"))
    step(engine.compact())
    assert admin.hkeys(f"{prefix}:{{0}}:leases") == [b"held"]
    again = step(engine.lease("gone", "you", 60))
    assert isinstance(held, Lease)
    assert isinstance(gone, Lease)
    assert isinstance(again, Lease)
    assert again.token > gone.token


# -- the wire -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_call_is_one_round_trip(
    redis_server: RedisServer, proxy_to: Callable[[int], Proxy], prefix: str, asynchronous: bool
) -> None:
    proxy = proxy_to(redis_server.port)

    async def test(_: object) -> None:
        engine = RedisEngine(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, asynchronous=asynchronous)
        at = sample_records.branch("t")

        def load() -> Any:
            return engine.payloads("t", at.id, 1, 1600)

        rows = [sample_records.row(at, n, payload=bytes(2300)) for n in range(2, 1601)]
        await engine.commit(sample_records.first(at))
        await engine.commit(Commit("t", rows=rows))
        new = [sample_records.branch(f"u{n}") for n in range(2)]
        calls: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
            (lambda: engine.commit(sample_records.first(new[0])), lambda: engine.commit(sample_records.first(new[1]))),
            (
                lambda: engine.commit(sample_records.following(sample_records.head(new[0]), new[0])),
                lambda: engine.commit(sample_records.following(sample_records.head(new[1]), new[1])),
            ),
            (lambda: engine.tip("t"), lambda: engine.tip("t")),
            (load, load),
            (lambda: engine.steps("t", at.id, 1, 1600), lambda: engine.steps("t", at.id, 1, 1600)),
            (lambda: engine.threads(limit=100), lambda: engine.threads(limit=100)),
            (lambda: engine.locate("t", bytes(16), HIGH, 5), lambda: engine.locate("t", bytes(16), HIGH, 5)),
        ]
        for first, second in calls:
            await first()  # a server that has not seen a script yet asks for its text once
            before = proxy.trips
            await second()
            assert proxy.trips == before + 1
        assert len(await load()) == 1600
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


def test_connections_are_opened_before_they_are_needed_and_never_more_than_allowed(
    redis_server: RedisServer, proxy_to: Callable[[int], Proxy], prefix: str
) -> None:
    proxy = proxy_to(redis_server.port)
    engine = RedisEngine(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, pool_size=4, min_idle=3, **PATIENT)
    step(engine.ping())
    until(lambda: proxy.connections == 3, "three connections")
    proxy.held_for = 4
    assert step(call_modes.race([engine.head("t") for _ in range(16)])) == [None] * 16
    assert proxy.connections == 4
    step(engine.close())
    until(lambda: proxy.connections == 0, "all connections are closed")


def test_thirty_two_tasks_share_a_pool_and_use_all_of_it(
    redis_server: RedisServer, proxy_to: Callable[[int], Proxy], prefix: str
) -> None:
    proxy = proxy_to(redis_server.port)

    async def test(_: object) -> None:
        url = f"redis://127.0.0.1:{proxy.port}"
        engine = RedisEngine(url, prefix=prefix, pool_size=8, asynchronous=True, **PATIENT)
        await engine.ping()
        proxy.held_for = 8
        branches = [sample_records.branch(f"t{n}") for n in range(32)]
        assert await call_modes.race([engine.commit(sample_records.first(at)) for at in branches]) == [None] * 32
        assert proxy.connections == 8
        await engine.close()

    call_modes.run("awaited", test)


def test_a_child_after_a_fork_uses_connections_of_its_own(engine: RedisEngine) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    in_child(lambda send: step(engine.commit(sample_records.following(sample_records.head(at), at))))
    step(engine.commit(sample_records.following(sample_records.head(at, 2, 2), at)))
    assert step(engine.head("t")) == sample_records.head(at, 3, 3)


def test_options_may_stand_in_the_url(redis_server: RedisServer, admin: redis.Redis, prefix: str) -> None:
    with backtrail.open(f"{redis_server.url}?prefix={prefix}&ttl=3600&pool_size=3&retries=2&lock=true") as store:
        store.thread("t").save({"a": 1})
    assert 0 < admin.pttl(f"{prefix}:{{0}}:heads:t") <= 3_600_000


# -- clients and options --------------------------------------------------------------------------------------------


def test_a_client_that_was_given_is_used_and_left_open(redis_server: RedisServer, prefix: str) -> None:
    with redis.Redis(port=redis_server.port) as client:
        engine = RedisEngine(client=client, prefix=prefix)
        assert engine.properties.blocking
        step(engine.commit(sample_records.first(sample_records.branch("t"))))
        step(engine.close())
        assert client.ping()
    with (
        redis.Redis(port=redis_server.port, decode_responses=True) as text,
        pytest.raises(InvalidInput, match="decode"),
    ):
        RedisEngine(client=text)

    async def test(_: object) -> None:
        async with redis.asyncio.Redis(port=redis_server.port) as client:
            engine = RedisEngine(client=client, prefix=prefix)
            assert not engine.properties.blocking
            assert await engine.head("t") == sample_records.head(sample_records.branch("t"))
            await engine.close()
            assert await client.ping()

    call_modes.run("awaited", test)


def test_a_unix_socket_is_a_way_in(own_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    server = own_redis("--unixsocket", "redis.sock")
    engine = RedisEngine(f"unix://{server.directory}/redis.sock?db=0")
    step(engine.commit(sample_records.first(sample_records.branch("t"))))
    assert step(engine.head("t")) == sample_records.head(sample_records.branch("t"))
    step(engine.close())


def test_databases_and_prefixes_keep_stores_apart(redis_server: RedisServer, prefix: str) -> None:
    engines = [RedisEngine(redis_server.url, prefix=prefix, db=n) for n in (1, 2)]
    engines.append(RedisEngine(redis_server.url, prefix=prefix + ":", db=1))
    for n, engine in enumerate(engines):
        step(engine.commit(sample_records.first(sample_records.branch("t", n))))
    for n, engine in enumerate(engines):
        assert step(engine.head("t")) == sample_records.head(sample_records.branch("t", n))
        assert step(engine.stats())["rows"] == 1
        step(engine.close())


@pytest.mark.parametrize(
    "options",
    [{"prefix": "a{b}"}, {"prefix": ""}, {"ttl": 0}, {"ttl": -1}, {"shards": 0}, {"retries": -1}, {"deadline": 0}],
)
def test_options_that_cannot_be_right_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        RedisEngine(**options)


@pytest.mark.parametrize(
    "url", ["http://localhost", "redis+sentinel://localhost:1", "redis+sentinel://localhost/service"]
)
def test_urls_that_cannot_be_right_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        RedisEngine(url)


def test_a_store_of_an_older_format_is_left_alone(
    redis_server: RedisServer, admin: redis.Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backtrail.engines.redis.keys.FORMAT", 2)  # made up: there is only one format yet
    admin.hset(f"{prefix}:{{0}}:store", mapping={"format": 1, "shards": 1})
    engine = RedisEngine(redis_server.url, prefix=prefix)
    with pytest.raises(UnsupportedFormat, match=r"has format 1, .* copy it"):
        step(engine.commit(sample_records.first(sample_records.branch("t"))))
    assert list(admin.scan_iter(f"{prefix}*")) == [f"{prefix}:{{0}}:store".encode()]
    step(engine.close())


def test_a_store_of_a_newer_backtrail_is_left_alone(redis_server: RedisServer, admin: redis.Redis, prefix: str) -> None:
    admin.hset(f"{prefix}:{{0}}:store", mapping={"format": 99, "shards": 1})
    engine = RedisEngine(redis_server.url, prefix=prefix)
    with pytest.raises(UnsupportedFormat, match="newer"):
        step(engine.commit(sample_records.first(sample_records.branch("t"))))
    assert list(admin.scan_iter(f"{prefix}*")) == [f"{prefix}:{{0}}:store".encode()]
    step(engine.close())


def test_a_server_that_forgot_its_scripts_is_told_them_again(engine: RedisEngine, admin: redis.Redis) -> None:
    step(engine.commit(sample_records.first(sample_records.branch("t"))))
    admin.script_flush()
    step(
        engine.commit(
            sample_records.following(sample_records.head(sample_records.branch("t")), sample_records.branch("t"))
        )
    )
    assert step(engine.head("t")) == sample_records.head(sample_records.branch("t"), 2, 2)


# -- the lock around commits ----------------------------------------------------------------------------------------


def test_with_a_lock_writers_queue_and_a_holder_who_stays_is_a_lock_timeout(
    redis_server: RedisServer, prefix: str
) -> None:
    engine = RedisEngine(redis_server.url, prefix=prefix, lock=True, lock_timeout=0.05, lock_expiry=60)
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    held = step(engine.lease("commit:t", "somebody", 60))
    assert isinstance(held, Lease)
    with pytest.raises(LockTimeout, match="somebody"):
        step(engine.commit(sample_records.following(sample_records.head(at), at)))
    assert step(engine.release("commit:t", "somebody"))
    step(engine.commit(sample_records.following(sample_records.head(at), at)))
    own = step(engine.lease("mine", "me", 60))
    assert isinstance(own, Lease)
    step(engine.commit(Commit("t", blobs={b"a": b"1"}, fence=Fence("mine", own.token))))
    assert step(engine.head("t")) == sample_records.head(at, 2, 2)
    step(engine.close())


# -- shards ---------------------------------------------------------------------------------------------------------


def names_in(shards: Shards, shard: int) -> Iterator[str]:
    """Names that fall into a shard."""
    return (name for name in map("name {}".format, itertools.count()) if shards.of(name) == shard)


def test_the_number_of_shards_is_fixed_by_the_first_to_come(redis_server: RedisServer, prefix: str) -> None:
    first = RedisEngine(redis_server.url, prefix=prefix, shards=8)
    step(first.commit(sample_records.first(sample_records.branch("t"))))
    second = RedisEngine(redis_server.url, prefix=prefix)
    assert step(second.head("t")) == sample_records.head(sample_records.branch("t"))
    third = RedisEngine(redis_server.url, prefix=prefix, shards=4)
    with pytest.raises(InvalidInput, match="8 shards"):
        step(third.ping())
    for engine in first, second, third:
        step(engine.close())


def test_a_lineage_lives_in_one_slot_of_the_cluster(redis_cluster: RedisCluster, prefix: str) -> None:
    engine = RedisEngine(redis_cluster.url, prefix=prefix)
    names = [f"thread {n}" for n in range(12)]
    for name in names:
        fill(engine, name)
    slots: dict[str, set[int]] = {name: set() for name in names}
    for node in redis_cluster.nodes:
        with redis.Redis(port=node.port) as client:
            for key in client.scan_iter(f"{prefix}*"):
                for name in names:
                    if key.decode().endswith(f":{name}"):
                        slots[name].add(client.cluster("KEYSLOT", key))
    assert [len(found) for found in slots.values()] == [1] * 12
    assert len(set().union(*slots.values())) > 3
    assert [head.thread for head in step(engine.threads(prefix="thread 1"))] == sorted(
        name for base in names for name in (base, base + " fork") if name.startswith("thread 1")
    )
    step(engine.close())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_closed_engine_has_no_connection_to_a_cluster_any_more(
    redis_cluster: RedisCluster, prefix: str, asynchronous: bool
) -> None:
    def connections() -> int:
        found = 0
        for node in redis_cluster.nodes:
            with redis.Redis(port=node.port) as client:
                found += client.info("clients")["connected_clients"]
        return found

    async def test(_: object) -> None:
        gc.collect()
        before = connections()
        engine = RedisEngine(redis_cluster.url, prefix=prefix, asynchronous=asynchronous, shards=8)
        for n in range(8):
            await engine.commit(sample_records.first(sample_records.branch(f"t{n}")))
        assert connections() > before
        await engine.close()
        while connections() > before:
            await call_modes.pause(0.01)

    gc.disable()  # which would close what was forgotten
    try:
        call_modes.run("awaited" if asynchronous else "direct", test)
    finally:
        gc.enable()


def test_a_thread_exists_once_wherever_it_began(redis_server: RedisServer, prefix: str) -> None:
    shards = Shards(prefix, 4)
    home, lineage, third = (next(names_in(shards, n)) for n in (0, 1, 2))
    engine = RedisEngine(redis_server.url, prefix=prefix, shards=4)
    away = sample_records.branch(home, lineage=lineage)
    elsewhere = sample_records.branch(home, 2, lineage=third)
    at_home = sample_records.branch(home, 3)

    def begins(at: Any) -> None:
        others = [other for other in (away, elsewhere, at_home) if other != at]
        step(engine.commit(sample_records.first(at)))
        assert step(engine.tip(home)) == (
            sample_records.head(at),
            sample_records.as_row(sample_records.row(at, 1), payload=False),
        )
        assert [head.thread for head in step(engine.threads())] == [home]
        for other in others:
            with pytest.raises(Refused):
                step(engine.commit(sample_records.first(other)))
        assert step(engine.head(home)) == sample_records.head(at)
        step(engine.commit(Commit(at.lineage, swaps=[Swap(home, sample_records.head(at).key, None)])))
        step(engine.drop(Drop(at.lineage, [], branches=[at.id])))
        assert step(engine.head(home)) is None
        assert step(engine.threads()) == []

    for at in away, elsewhere, away, at_home, elsewhere, at_home, away, away, elsewhere:
        begins(at)
    step(engine.close())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_of_many_that_begin_one_thread_in_many_shards_one_wins(
    redis_cluster: RedisCluster, prefix: str, asynchronous: bool
) -> None:
    shards = Shards(prefix, 8)

    async def test(_: object) -> None:
        engine = RedisEngine(redis_cluster.url, prefix=prefix, shards=8, asynchronous=asynchronous)
        await engine.ping()
        for number in range(12):
            thread = f"thread {number}"
            lineages = [thread, *(next(names_in(shards, n)) for n in range(7))]
            begun = [
                sample_records.branch(thread, number * 10 + n, lineage=lineage) for n, lineage in enumerate(lineages)
            ]
            answers = await call_modes.race([engine.commit(sample_records.first(at)) for at in begun])
            winners = [at for at, answer in zip(begun, answers, strict=True) if answer is None]
            assert [type(answer) for answer in answers if answer is not None] == [Refused] * 7
            assert await engine.head(thread) == sample_records.head(winners[0])
            listed = [head for head in await engine.threads() if head.thread == thread]
            assert listed == [sample_records.head(winners[0])]
            # Gone again, so that the next round finds pointers of the one before.
            await engine.commit(
                Commit(winners[0].lineage, swaps=[Swap(thread, sample_records.head(winners[0]).key, None)])
            )
            branches = [sample_records.branch(thread, 900 + n, lineage=name) for n, name in enumerate(lineages)]
            again = await call_modes.race([engine.commit(sample_records.first(branch)) for branch in branches])
            assert sum(answer is None for answer in again) == 1
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


def test_a_fence_holds_across_shards(redis_server: RedisServer, prefix: str) -> None:
    shards = Shards(prefix, 4)
    lineage, lock = next(names_in(shards, 0)), next(names_in(shards, 3))
    engine = RedisEngine(redis_server.url, prefix=prefix, shards=4)
    mine = step(engine.lease(lock, "me", 60))
    assert isinstance(mine, Lease)
    step(engine.commit(Commit(lineage, blobs={b"a": b"1"}, fence=Fence(lock, mine.token))))
    assert step(engine.release(lock, "me"))
    yours = step(engine.lease(lock, "you", 60))
    assert isinstance(yours, Lease)
    with pytest.raises(LockLost):
        step(engine.commit(Commit(lineage, blobs={b"b": b"1"}, fence=Fence(lock, mine.token))))
    step(engine.commit(Commit(lineage, blobs={b"c": b"1"}, fence=Fence(lock, yours.token))))
    assert [name for name, _ in step(engine.blob_ids(lineage))] == [b"a", b"c"]
    step(engine.close())
