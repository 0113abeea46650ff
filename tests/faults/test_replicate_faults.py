"""Two stores, eight writers and random faults: nothing acknowledged is missing afterwards, and both sides are equal.

`BACKTRAIL_FAULT_ROUNDS` multiplies the number of rounds, `BACKTRAIL_FAULT_SEED` selects other faults.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.coroutines import finish
from backtrail.replicate.spool import Spool
from backtrail.testing.servers import PostgresServer, RedisServer
from fix_children import Child
from fix_harness import QUICK, Harness, Side, settled

TIMES = int(os.environ.get("BACKTRAIL_FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("BACKTRAIL_FAULT_SEED", "7"))


def hurt(harness: Harness, rounds: int, *, alone: bool = False) -> None:
    """So many rounds, in each mode and api, some of them in a process that is killed; unless it is `alone` in
    having a side."""
    for number in range(rounds * TIMES):
        mode = "async" if number % 2 else "sync"
        harness.round(mode, asynchronous=number % 4 == 2, child=number % 5 == 3 and not alone)
        if number == rounds // 2:
            harness.check()
    harness.check()
    assert len(harness.ledger.saves) > rounds  # on a busy machine there are not many


@pytest.mark.parametrize(
    ("primary", "replica", "rounds"),
    [
        ("redis", "postgres", 14),
        ("postgres", "sqlite", 14),
        ("sqlite", "sqlite-2", 22),
        ("jsonl", "sqlite", 9),
        ("redis", "jsonl", 6),
    ],
)
def test_whatever_breaks_nothing_acknowledged_is_lost_and_both_sides_become_equal(
    primary: str, replica: str, rounds: int, make_side: Callable[[str], Side]
) -> None:
    hurt(Harness(make_side(primary), make_side(replica), SEED), rounds)


@pytest.mark.parametrize(("primary", "replica"), [("memory", "sqlite"), ("jsonl", "memory")])
def test_a_side_in_memory_that_is_taken_away_is_brought_up_to_date(
    primary: str, replica: str, make_side: Callable[[str], Side]
) -> None:
    """It can only be taken away: what a process that is killed had in memory is gone, and was never durable."""
    hurt(Harness(make_side(primary), make_side(replica), SEED), 6, alone=True)


@pytest.mark.parametrize(
    ("primary", "replica", "rounds"),
    [("redis", "postgres", 7), ("postgres", "sqlite", 8), ("sqlite", "sqlite-2", 15), ("sqlite", "jsonl", 6)],
)
def test_with_a_spool_nothing_is_lost_either_while_both_sides_are_away(
    primary: str, replica: str, rounds: int, make_side: Callable[[str], Side], tmp_path: Path
) -> None:
    hurt(Harness(make_side(primary), make_side(replica), SEED, tmp_path / "spool"), rounds)


@pytest.mark.parametrize(("primary", "replica"), [("jsonl", "sqlite"), ("sqlite", "jsonl"), ("jsonl", "jsonl-2")])
def test_processes_that_are_killed_while_they_write_to_lines_of_text_lose_nothing(
    primary: str, replica: str, make_side: Callable[[str], Side]
) -> None:
    harness = Harness(make_side(primary), make_side(replica), SEED)
    for number in range(4 * TIMES):
        harness.round("async" if number % 2 else "sync", child=True)
        harness.check()
    assert len(harness.ledger.saves) > 4


@pytest.mark.parametrize("api", ["blocking", "async"])
def test_what_a_process_had_spooled_when_it_was_killed_is_delivered_by_the_next(
    api: str, make_side: Callable[[str], Side], tmp_path: Path
) -> None:
    """Both servers are killed, then the process that went on without them; then everything comes back."""
    primary, replica = make_side("redis"), make_side("postgres")
    options = {**QUICK, "spool": tmp_path / "spool"}

    async def work(opening: Any, send: Callable[[bytes], None]) -> None:
        kind = api == "async"
        store = await settled(opening(primary.engine(kind), replica=replica.engine(kind), **options))
        thread = store.thread("t")
        for number in range(10_000):
            saved = await settled(thread.append("messages", [number]))
            new = await settled(store.thread(f"new-{number}").save({"n": number}))
            send(f"{number} {saved.id} {new.id}\n".encode())

    def in_a_child(send: Callable[[bytes], None]) -> None:
        if api == "async":
            asyncio.run(work(backtrail.aio.open, send))
        else:
            finish(work(backtrail.open, send))

    child = Child(in_a_child)
    lines = b""
    while lines.count(b"\n") < 5:
        lines += child.read(1)
    for side in (primary, replica):
        side.hurt("killed")
    spool = Spool.open(tmp_path / "spool", blocking=True)
    while finish(spool.survey()).records < 20:
        lines += child.read(64)
    lines += child.kill()
    finish(spool.engine.close())
    acknowledged = [line.split() for line in lines.decode().split("\n")[:-1]]
    for side in (primary, replica):
        side.heal()
    with backtrail.open(primary.engine(False), replica=replica.engine(False), **options) as store:
        thread = store.thread("t")
        messages = thread.load()["messages"]
        assert messages == list(range(len(messages)))
        assert len(messages) >= len(acknowledged)
        known = {checkpoint.id for checkpoint in thread.history(all=True)}
        assert len(known) == len(messages)
        for number, saved, new in acknowledged:
            assert saved in known
            assert store.thread(f"new-{number}").head.id == new
        while (status := store.catch_up()).behind or (status.spool and status.spool.records):
            time.sleep(0.01)
        assert status.diverged == 0
    with primary.alone() as one, replica.alone() as two:
        assert one.threads() == two.threads()
        assert one.thread("t").load() == two.thread("t").load()
        assert not one.verify().problems
        assert not two.verify().problems


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_the_first_save_after_a_kill_is_acknowledged_by_the_replica(
    kind: str, make_side: Callable[[str], Side]
) -> None:
    """With a proxy in between, which takes connections also while nobody stands behind it."""
    primary, replica = make_side(kind), make_side("sqlite")
    with backtrail.open(
        primary.engine(False), replica=replica.engine(False), **{**QUICK, "failback_after": 60.0}
    ) as store:
        thread = store.thread("t")
        thread.append("messages", ["before"])
        primary.hurt("killed")
        killed = time.monotonic()
        thread.append("messages", ["after"])
        print(f"{kind}: {time.monotonic() - killed:.3f} s from kill to acknowledged save")
        assert store.status().active == "replica"
        assert thread.load()["messages"] == ["before", "after"]
    primary.heal()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_server_that_is_killed_is_replaced_also_with_the_options_that_everybody_has(
    kind: str,
    mode: str,
    own_redis: Callable[..., RedisServer],
    own_postgres: Callable[..., PostgresServer],
    tmp_path: Path,
) -> None:
    server = own_redis() if kind == "redis" else own_postgres("-c", "fsync=off")
    url, replica = server.url, tmp_path / "replica.db"
    with backtrail.open(url, replica=replica, replication=mode) as store:
        thread = store.thread("t")
        thread.append("messages", ["before"])
        assert store.catch_up().behind == 0
        server.kill()
        killed = time.monotonic()
        thread.append("messages", ["after"])
        print(f"{kind}, {mode}: {time.monotonic() - killed:.3f} s from kill to acknowledged save")
        assert store.status().active == "replica"
        assert thread.load()["messages"] == ["before", "after"]
        assert store.status().diverged == 0
    opened = time.monotonic()
    with backtrail.open(url, replica=replica, replication=mode) as store:
        assert store.thread("t").load()["messages"] == ["before", "after"]
        print(f"{kind}, {mode}: {time.monotonic() - opened:.3f} s to open it while the primary is dead")
    server.start()
    with backtrail.open(url, replica=replica, replication=mode) as store:
        assert store.catch_up().behind == 0
        assert store.thread("t").load()["messages"] == ["before", "after"]
    with backtrail.open(url) as alone:
        assert alone.thread("t").load()["messages"] == ["before", "after"]
