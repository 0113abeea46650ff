"""Particulars of PostgreSQL: its schema, plans, sessions and processes, and the calls that are sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backtrail.engines.base import Commit, Lease, Swap
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.postgres import schema as migrations
from backtrail.engines.postgres.engine import _beyond
from backtrail.engines.postgres.schema import Schema, newest
from backtrail.errors import InvalidInput, UnsupportedFormat
from backtrail.testing import call_modes, sample_records
from backtrail.testing.call_modes import step
from backtrail.testing.servers import PostgresServer, until
from fix_children import run as in_child
from fix_proxy import Proxy

_NUMBERS = itertools.count()
HIGH = b"\xff" * 16


@pytest.fixture
def schema() -> str:
    return f"store_{next(_NUMBERS)}"


@pytest.fixture
def admin(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def engine(postgres_server: PostgresServer, schema: str) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(postgres_server.url, schema=schema)
    yield engine
    step(engine.close())


# -- the schema -----------------------------------------------------------------------------------------------------


def test_any_number_may_start_at_once_and_the_schema_is_made_once(
    postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any]
) -> None:
    engines = [PostgresEngine(postgres_server.url, schema=schema) for _ in range(8)]
    begun = [engine.commit(sample_records.first(sample_records.branch(f"t{n}"))) for n, engine in enumerate(engines)]
    assert step(call_modes.race(begun)) == [None] * 8
    assert admin.execute(f"SELECT format FROM {schema}.store").fetchall() == [(newest(),)]
    assert len(step(engines[0].threads())) == 8
    for engine in engines:
        step(engine.close())


def test_schemas_keep_stores_apart(postgres_server: PostgresServer, schema: str) -> None:
    engines = [PostgresEngine(postgres_server.url, schema=f"{schema}_{n}") for n in range(2)]
    for n, engine in enumerate(engines):
        step(engine.commit(sample_records.first(sample_records.branch("t", n))))
    for n, engine in enumerate(engines):
        assert step(engine.head("t")) == sample_records.head(sample_records.branch("t", n))
        assert step(engine.stats())["rows"] == 1
        step(engine.close())


@pytest.mark.parametrize("name", ["", "1a", 'a"b', "a.b", "A", "a;b", "x" * 64, "$$"])
def test_a_schema_name_that_would_need_quotes_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        PostgresEngine("postgresql://localhost/x", schema=name)


@pytest.mark.parametrize("url", ["postgresql://localhost/x?nonsense=1", "postgresql://local%zzhost/x"])
def test_a_url_that_cannot_be_right_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="URL"):
        PostgresEngine(url)


def test_a_store_of_a_newer_backtrail_is_left_alone(
    engine: PostgresEngine, postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any]
) -> None:
    step(engine.commit(sample_records.first(sample_records.branch("t"))))
    admin.execute(f"UPDATE {schema}.store SET format = {newest() + 1}")
    later = PostgresEngine(postgres_server.url, schema=schema)
    with pytest.raises(UnsupportedFormat, match="newer"):
        step(later.commit(sample_records.first(sample_records.branch("u"))))
    assert admin.execute(f"SELECT count(*) FROM {schema}.heads").fetchall() == [(1,)]
    step(later.close())


def test_a_store_of_an_older_format_is_migrated_when_it_is_opened(
    engine: PostgresEngine,
    postgres_server: PostgresServer,
    schema: str,
    admin: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    assert admin.execute(f"SELECT format FROM {schema}.store").fetchall() == [(1,)]
    admin.execute(f"DROP FUNCTION {schema}.now_us")  # all functions are put in place again
    scripts = {"0002_made_up.sql": "ALTER TABLE {schema}.heads ADD COLUMN extra bigint NOT NULL DEFAULT 7"}
    read = migrations._read
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, *scripts))
    monkeypatch.setattr(migrations, "_read", lambda file: scripts.get(file) or read(file))
    later = [PostgresEngine(postgres_server.url, schema=schema) for _ in range(4)]
    assert step(call_modes.race([one.head("t") for one in later])) == [sample_records.head(at)] * 4
    assert admin.execute(f"SELECT extra FROM {schema}.heads").fetchall() == [(7,)]
    assert admin.execute(f"SELECT format FROM {schema}.store").fetchall() == [(2,)]
    assert isinstance(step(later[0].lease("x", "me", 60)), Lease)
    step(later[1].commit(sample_records.following(sample_records.head(at), at)))
    assert [found.step for found in step(later[2].steps("t", at.id, 1, 9))] == [1, 2]
    for one in later:
        step(one.close())


def test_a_migration_between_the_reads_of_an_opening_is_not_taken_for_damage(
    engine: PostgresEngine, postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any]
) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    admin.execute(f"CREATE FUNCTION {schema}.of_the_older_format() RETURNS bigint LANGUAGE sql RETURN 1")
    later = PostgresEngine(postgres_server.url, schema=schema)
    run, reads = later._client.run, []

    async def migrated_after_the_first_read(query: Any, params: Any) -> Any:
        found = await run(query, params)
        reads.append(query)
        if len(reads) == 1:
            admin.execute(f"DROP FUNCTION {schema}.of_the_older_format")
        return found

    assert step(later._schema.format(migrated_after_the_first_read)) == migrations.newest()
    assert step(later.head("t")) == sample_records.head(at)
    step(later.close())


def test_a_new_store_runs_every_migration(
    postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = migrations._read
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, "0002_made_up.sql"))
    made_up = "CREATE TABLE {schema}.made_up (n bigint)"
    monkeypatch.setattr(migrations, "_read", lambda file: made_up if file == "0002_made_up.sql" else read(file))
    engine = PostgresEngine(postgres_server.url, schema=schema)
    step(engine.commit(sample_records.first(sample_records.branch("t"))))
    assert admin.execute(f"SELECT count(*) FROM {schema}.made_up").fetchall() == [(0,)]
    assert admin.execute(f"SELECT format FROM {schema}.store").fetchall() == [(2,)]
    step(engine.close())


def test_one_who_may_only_read_and_write_can_use_a_store_that_is_there(
    engine: PostgresEngine, postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any]
) -> None:
    step(engine.ping())
    admin.execute(f"CREATE ROLE user_of_{schema} LOGIN")
    admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO user_of_{schema}")
    admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO user_of_{schema}")
    admin.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO user_of_{schema}")
    modest = PostgresEngine(postgres_server.url.replace("backtrail@", f"user_of_{schema}@"), schema=schema)
    step(modest.commit(sample_records.first(sample_records.branch("t"))))
    assert step(engine.head("t")) == sample_records.head(sample_records.branch("t"))
    step(modest.close())


def test_rows_of_a_lineage_lie_together(engine: PostgresEngine, schema: str, admin: psycopg.Connection[Any]) -> None:
    for name in "a", "b", "c":
        for n in range(5):
            step(engine.commit(Commit(name, branches=[sample_records.branch(name, n)])))
    found = admin.execute(f"SELECT n >> 48, count(DISTINCT lineage) FROM {schema}.branches GROUP BY 1").fetchall()
    assert [count for _, count in found] == [1, 1, 1]
    assert all(0 <= high < 1 << 15 for high, _ in found)


# -- plans ----------------------------------------------------------------------------------------------------------


def plan(admin: psycopg.Connection[Any], schema: str, query: str, params: Any) -> str:
    explained = admin.execute(b"EXPLAIN " + Schema(schema)[query], params)
    return "\n".join(line for (line,) in explained.fetchall())


def test_listing_and_finding_use_indexes(engine: PostgresEngine, schema: str, admin: psycopg.Connection[Any]) -> None:
    step(engine.ping())
    admin.execute(
        f"""
        INSERT INTO {schema}.branches SELECT i, decode(md5(i::text), 'hex'), 'l' || i, 't' || i, '', NULL, 0, ''
            FROM generate_series(1, 20000) i;
        INSERT INTO {schema}.heads SELECT 't' || i, 'l' || i, '', decode(md5(i::text), 'hex'), 1, 1,
            CASE WHEN i % 1000 = 0 THEN 'run' ELSE 'thread' END, 0, i * 2e7, 1, 1, '' FROM generate_series(1, 20000) i;
        INSERT INTO {schema}.steps SELECT i, 1, decode(md5('id' || i), 'hex'), '', '' FROM generate_series(1, 20000) i;
        INSERT INTO {schema}.bodies SELECT i, 1, '', '' FROM generate_series(1, 20000) i;
        INSERT INTO {schema}.blobs SELECT 'l' || i % 50, decode(md5(i::text), 'hex'), ''
            FROM generate_series(1, 20000) i
        """
    )
    admin.execute(f"ANALYZE {schema}.branches, {schema}.heads, {schema}.steps, {schema}.bodies, {schema}.blobs")
    page = {"low": "t12", "high": "t13", "after": None, "limit": 20, "kind": None, "namespace": None}
    branch = step(engine.head("t77")).branch  # type: ignore[union-attr]
    for query, params in [
        ("head", ["t77"]),
        ("heads", ["l77", "", 10]),
        ("threads", page),
        ("threads", {**page, "after": "t125", "kind": "run"}),
        ("newest", {**page, "low": "", "high": None}),
        ("newest", {**page, "low": "", "high": None, "kind": "run"}),
        ("newest", {**page, "low": "", "high": None, "after": "t500"}),
        ("lineages", {"after": "l5", "limit": 10}),
        ("branches", ["l77"]),
        ("steps", [branch, "l77", 1, 9]),
        ("newest_steps", [branch, "l77", 1, 9, 2]),
        ("marked_steps", [branch, "l77", 1, 9]),
        ("payloads", [branch, "l77", 1, 9]),
        ("rows", [branch, "l77", 1, 9]),
        ("locate", ["l77", b"\x01" * 16, b"\x01" * 15 + b"\xff", 9]),
        ("blobs", ["l7", [b"a", b"b"]]),
        ("blob_ids", {"pool": "l7", "after": b"a", "limit": 10}),
    ]:
        shown = plan(admin, schema, query, params)
        assert "Index" in shown, (query, shown)
        # marks are empty, and to look through nothing is as quick as it gets
        assert "Seq Scan" not in shown.replace("Seq Scan on marks", ""), (query, shown)
    assert [head.thread for head in step(engine.threads(newest_first=True, kind="run", limit=2))] == [
        "t20000",
        "t19000",
    ]
    assert [head.thread for head in step(engine.threads(newest_first=True, limit=2))] == ["t20000", "t19999"]


def test_a_head_that_moves_touches_no_index(own_postgres: Callable[..., PostgresServer]) -> None:
    # Of its own, and untouched: a snapshot that anybody holds would keep old versions on the page until it is full.
    server = own_postgres("-c", "fsync=off", "-c", "autovacuum=off")
    engine = PostgresEngine(server.url)
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    for n in range(1, 50):
        step(engine.commit(sample_records.following(sample_records.head(at, n, n), at)))
    step(engine.close())  # a session reports what it did when it ends
    with psycopg.connect(server.url, autocommit=True) as admin:

        def moves() -> tuple[int, int]:
            counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'heads'"
            ((all_of_them, without_index),) = admin.execute(counts).fetchall()
            return all_of_them, without_index

        until(lambda: moves()[0] == 49, "the server has counted")
        assert moves() == (49, 49)


# -- the wire -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_call_is_one_round_trip(
    postgres_server: PostgresServer, proxy_to: Callable[[int], Proxy], schema: str, asynchronous: bool
) -> None:
    proxy = proxy_to(postgres_server.port)
    url = postgres_server.url.replace(str(postgres_server.port), str(proxy.port))

    async def test(_: object) -> None:
        engine = PostgresEngine(url, schema=schema, asynchronous=asynchronous)
        at = sample_records.branch("t")
        await engine.commit(sample_records.first(at))
        rows = [sample_records.row(at, n, payload=bytes(2300)) for n in range(2, 1601)]
        swap = Swap("t", sample_records.head(at).key, sample_records.head(at, 1600, 2))
        calls: list[Callable[[], Any]] = [
            lambda: engine.commit(Commit("t", rows=rows, blobs={b"a": b"1"})),
            lambda: engine.commit(Commit("t", swaps=[swap], rows=[sample_records.row(at, 1601)])),
            lambda: engine.commit(sample_records.first(sample_records.branch("u"), 3)),
            lambda: engine.tip("t"),
            lambda: engine.row("t", at.id, 7),
            lambda: engine.payloads("t", at.id, 1, 1600),
            lambda: engine.threads(limit=100),
            lambda: engine.locate("t", bytes(16), HIGH, 5),
        ]
        for call in calls:
            before = proxy.trips
            await call()
            assert proxy.trips == before + 1
        assert len(await engine.payloads("t", at.id, 1, 1600)) == 1600
        await engine.close()

    call_modes.run("awaited" if asynchronous else "direct", test)


def test_nothing_depends_on_the_session(
    postgres_server: PostgresServer, schema: str, admin: psycopg.Connection[Any]
) -> None:
    """A pooler in transaction mode needs: no prepared statements, no locks or settings that outlive a statement."""
    engine = PostgresEngine(postgres_server.url, schema=schema, pool_size=1, application_name=schema)
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    for n in range(1, 20):
        step(engine.commit(sample_records.following(sample_records.head(at, n, n), at)))
        step(engine.tip("t"))
    ((session,),) = admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", [schema]).fetchall()
    assert admin.execute("SELECT count(*) FROM pg_locks WHERE pid = %s", [session]).fetchall() == [(0,)]
    inside = step(engine._client.run("SELECT count(*) FROM pg_prepared_statements"))
    assert inside == [(0,)]
    settings = step(engine._client.run("SELECT name FROM pg_settings WHERE source = 'session'"))
    assert settings == []
    step(engine.close())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_callers_share_a_pool_and_use_all_of_it(
    postgres_server: PostgresServer, proxy_to: Callable[[int], Proxy], schema: str, asynchronous: bool
) -> None:
    proxy = proxy_to(postgres_server.port)
    url = postgres_server.url.replace(str(postgres_server.port), str(proxy.port))

    async def test(_: object) -> None:
        patient: dict[str, Any] = {"connect_timeout": 60.0, "read_timeout": 60.0}
        engine = PostgresEngine(url, schema=schema, asynchronous=asynchronous, pool_size=8, min_idle=3, **patient)
        await engine.ping()
        until(lambda: proxy.connections == 3, "three connections")
        proxy.held_for = 8
        branches = [sample_records.branch(f"t{n}") for n in range(32)]
        assert await call_modes.race([engine.commit(sample_records.first(at)) for at in branches]) == [None] * 32
        assert proxy.connections == 8
        await engine.close()
        until(lambda: proxy.connections == 0, "all connections are closed")

    call_modes.run("awaited" if asynchronous else "direct", test)


def test_a_server_that_asks_for_serializable_transactions_gets_them(
    postgres_server: PostgresServer, schema: str
) -> None:
    url = postgres_server.url + "?options=-c%20default_transaction_isolation%3Dserializable"
    engine = PostgresEngine(url, schema=schema)
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))

    async def write(name: str) -> None:
        own = sample_records.branch(name)
        await engine.commit(sample_records.first(own))
        for n in range(1, 6):
            await engine.commit(sample_records.following(sample_records.head(own, n, n), own))

    assert step(call_modes.race([write(f"w{n}") for n in range(6)])) == [None] * 6
    assert len(step(engine.threads())) == 7
    step(engine.close())


def test_a_child_after_a_fork_uses_connections_of_its_own(engine: PostgresEngine) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    in_child(lambda send: step(engine.commit(sample_records.following(sample_records.head(at), at))))
    assert step(engine.head("t")) == sample_records.head(at, 2, 2)
    step(engine.commit(sample_records.following(sample_records.head(at, 2, 2), at)))
    assert step(engine.head("t")) == sample_records.head(at, 3, 3)


def test_prepared_statements_are_an_option(postgres_server: PostgresServer, schema: str) -> None:
    engine = PostgresEngine(postgres_server.url, schema=schema, pool_size=1, prepare=True)
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    for n in range(1, 12):
        step(engine.commit(sample_records.following(sample_records.head(at, n, n), at)))
    assert step(engine._client.run("SELECT count(*) > 0 FROM pg_prepared_statements")) == [(True,)]
    step(engine.close())


@pytest.mark.parametrize(
    ("prefix", "beyond"),
    [
        ("", None),
        ("a", "b"),
        ("az", "a{"),
        ("\ud7ff", "\ue000"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff\U0010ffff", None),
        ("%", "&"),
    ],
)
def test_the_end_of_a_prefix_is_the_next_text(prefix: str, beyond: str | None) -> None:
    assert _beyond(prefix) == beyond


def test_space_is_given_back(engine: PostgresEngine) -> None:
    at = sample_records.branch("t")
    step(engine.commit(sample_records.first(at)))
    for n in range(1, 50):
        step(engine.commit(sample_records.following(sample_records.head(at, n, n), at)))
    before = step(sample_records.everything(engine, "t"))
    step(engine.compact())
    assert step(sample_records.everything(engine, "t")) == before


def test_partitions_by_lineage_work_as_documented(
    engine: PostgresEngine, schema: str, admin: psycopg.Connection[Any]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    documented = text.split("```sql\n")[1].split("```")[0].replace("backtrail.", f"{schema}.")
    step(engine.ping())
    admin.execute(documented)
    admin.execute(f"ALTER TABLE {schema}.bodies RENAME TO bodies_old")
    admin.execute(f"ALTER TABLE {schema}.bodies_new RENAME TO bodies")
    for name in map(str, range(20)):
        at = sample_records.branch(name)
        step(engine.commit(sample_records.first(at, 3)))
        step(engine.commit(sample_records.following(sample_records.head(at, 3), at)))
        assert step(engine.rows(name, at.id, 1, 9)) == [
            sample_records.as_row(sample_records.row(at, n)) for n in range(1, 5)
        ]
    found = admin.execute(f"SELECT count(*) FROM {schema}.bodies_p0 UNION ALL SELECT count(*) FROM {schema}.bodies_p1")
    counts = [count for (count,) in found.fetchall()]
    assert sum(counts) == 80
    assert all(count > 0 and count % 4 == 0 for count in counts)


# -- fences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_lease_waits_for_the_commits_that_rely_on_it_and_they_see_that_it_went(
    engine: PostgresEngine, schema: str, admin: psycopg.Connection[Any], postgres_server: PostgresServer, isolation: str
) -> None:
    held = step(engine.lease("role", "one", 0.001))
    assert isinstance(held, Lease)
    rely = f"SELECT {schema}.rely('role', {held.token})"
    take_over = f"SELECT given FROM {schema}.lease('role', 'two', 60000000)"
    admin.execute("SET lock_timeout = '100ms'")
    with psycopg.connect(postgres_server.url) as writer:
        writer.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        assert writer.execute(rely).fetchone() == (True,)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            admin.execute(take_over)
        writer.commit()
        writer.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        writer.execute("SELECT 1")  # from here on a repeatable reader looks at what is there now
        assert admin.execute(take_over).fetchone() == (True,)
        with pytest.raises(psycopg.Error) as refused:
            writer.execute(rely)
        assert refused.value.sqlstate == ("BTRL0" if isolation == "read committed" else "40001")
