"""A refused connection is final while the other side can take over, and nothing is lost by it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.engines.retry import Interrupted, RetryPolicy, is_connection_refused, retry_interrupted
from backtrail.errors import Unavailable
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.settings import Settings
from fix_flaky import Flaky

NEVER: dict[str, Any] = {"health_every": 60.0, "failback_after": 60.0}  # nothing happens by itself


def pauses(fail_fast: Any, raised: Interrupted) -> int:
    """How often a call is tried again."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def attempt() -> None:
        raise raised

    with pytest.raises(Unavailable):
        finish(retry_interrupted(attempt, RetryPolicy(retries=5), sleep, fail_fast))
    return len(slept)


def refused() -> Interrupted:
    error = Interrupted("Redis did not answer: refused")
    error.__cause__ = OSError("the driver's own")
    error.__cause__.__context__ = ConnectionRefusedError(111, "Connection refused")
    return error


def test_failing_fast_makes_a_refused_connection_final_and_nothing_else() -> None:
    assert pauses(None, refused()) == 5
    assert pauses(lambda: False, refused()) == 5
    assert pauses(lambda: True, refused()) == 0
    assert pauses(lambda: True, Interrupted("PostgreSQL did not answer: timeout")) == 5


def test_words_of_libpq_are_understood_and_one_address_that_may_still_answer_is_enough_to_wait() -> None:
    one = 'connection to server at "10.0.0.1", port 5432 failed: Connection refused Is the server running? '
    other = 'connection to server at "10.0.0.2", port 5432 failed: timeout expired '
    socket = 'connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory '
    for text, nobody in ((one, True), (one + one, True), (one + other, False), (other, False), (socket + one, True)):
        assert is_connection_refused(Interrupted(f"PostgreSQL did not answer: connection failed: {text}")) == nobody
    assert not is_connection_refused(Interrupted("PostgreSQL is not ready: the database system is starting up"))


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///nowhere/redis.sock"])
def test_a_redis_that_is_not_there_is_known_by_its_refusal(url: str) -> None:
    asked: list[bool] = []
    engine = RedisEngine(url)
    engine.fail_fast = lambda: not asked.append(True)
    with pytest.raises(Unavailable):
        finish(engine.head("t"))
    assert len(asked) == 1
    patient = RedisEngine(url, retries=2, backoff=0.001)  # its owner has said how long it is to be tried
    patient.fail_fast = lambda: not asked.append(True)
    with pytest.raises(Unavailable, match="asked 3 times"):
        finish(patient.head("t"))
    assert len(asked) == 1


def test_a_postgres_that_is_not_there_is_known_by_its_refusal() -> None:
    asked: list[bool] = []
    engine = PostgresEngine("postgresql://nobody@127.0.0.1:1/nothing")
    engine.fail_fast = lambda: not asked.append(True)
    with pytest.raises(Unavailable) as raised:
        finish(engine.head("t"))
    assert isinstance(raised.value.__cause__, psycopg.OperationalError)
    assert len(asked) == 1
    several = PostgresEngine("postgresql://nobody@127.0.0.1:1,127.0.0.1:2/nothing", retries=1, backoff=0.001)
    several.fail_fast = lambda: not asked.append(True)
    with pytest.raises(Unavailable, match="asked 2 times"):
        finish(several.head("t"))
    assert len(asked) == 1


def fails_fast(*sides: Flaky) -> tuple[bool, ...]:
    return tuple(side.fail_fast is not None and side.fail_fast() for side in sides)


def test_a_side_fails_fast_only_while_the_other_one_has_everything() -> None:
    sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
    Mirror(*sides, Settings())
    assert fails_fast(*sides) == (False, False)  # all that is started together may not be there yet
    store = backtrail.open(sides[0], replica=sides[1], max_failovers=1, **NEVER)
    store.thread("t").save({"n": 1})
    assert fails_fast(*sides) == (True, True)
    sides[1].up = False
    store.thread("t").save({"n": 2})  # only the primary has this
    assert fails_fast(*sides) == (False, True)
    sides[1].up = True
    while store.catch_up().behind:
        assert fails_fast(*sides) == (False, True)
    assert fails_fast(*sides) == (True, True)
    sides[0].up = False
    store.thread("t").load()
    assert fails_fast(*sides) == (True, False)  # it was waited for; and now there is nobody else
    sides[0].up = True
    while store.catch_up().behind:
        assert store.status().active == "replica"
    assert fails_fast(*sides) == (True, False)  # the sides may not be changed once more
    store.close()


def test_what_was_not_shipped_yet_or_is_required_is_worth_waiting_for() -> None:
    for options, expected in (
        ({"replication": "async"}, (False, True)),
        ({"replica_required": True}, (True, False)),
        ({"failover": False}, (False, True)),
    ):
        sides = Flaky(MemoryEngine()), Flaky(MemoryEngine())
        store = backtrail.open(sides[0], replica=sides[1], **NEVER, **options)
        store.thread("t").save({"n": 1})
        store.catch_up()
        assert fails_fast(*sides) == expected
        store.close()
