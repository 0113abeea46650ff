"""What a replica costs: saves through a mirror against saves on each side alone, taking turns in one run.

    python -m bench.replication [--saves 300] [--rounds 5]

Redis and PostgreSQL are started privately; SQLite is a file. A figure is the median of all saves of one conversation,
in milliseconds; the ratio is the one that the mirror is held to: in the async colour sync against the slower side, in
the blocking colour sync against the sum, and async replication against the primary alone. Last, catch-up: how fast an
empty replica gets everything, and how long the first save after a kill of the primary takes.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clew
import clew.aio
from clew.testing.servers import PostgresServer, RedisServer, private_place

MESSAGE = {"role": "user", "content": "a message of the usual length, as people write them to agents " * 8}
Opener = Callable[[], Any]


async def _settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def time_saves(open_store: Opener, saves: int, name: str) -> list[float]:
    """Seconds that each append took."""
    store = await _settle(open_store())
    thread = store.thread(name)
    for _ in range(10):
        await _settle(thread.append("messages", [MESSAGE]))
    took = []
    for _ in range(saves):
        began = time.perf_counter()
        await _settle(thread.append("messages", [MESSAGE]))
        took.append(time.perf_counter() - began)
    await _settle(store.close())
    return took


def compare(title: str, openers: dict[str, Opener], saves: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of each, measured in turns."""
    samples: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for name, opener in openers.items():
            samples[name] += asyncio.run(time_saves(opener, saves // rounds, f"{name}-{number}"))
    medians = {name: statistics.median(found) * 1000 for name, found in samples.items()}
    print(f"\n{title}")
    for name, median in medians.items():
        print(f"  {name:<28} {median:8.3f} ms")
    return medians


def pair(title: str, one: str, two: str, saves: int, rounds: int) -> None:
    """Both colours of one pair of URLs."""
    for colour, opening in ("async", clew.aio.open), ("blocking", clew.open):
        found = compare(
            f"{title}, {colour} colour",
            {
                "primary alone": lambda opening=opening: opening(one),
                "replica alone": lambda opening=opening: opening(two),
                "sync": lambda opening=opening: opening(one, replica=two, replication="sync"),
                "async": lambda opening=opening: opening(one, replica=two, replication="async"),
            },
            saves,
            rounds,
        )
        alone = found["primary alone"], found["replica alone"]
        limit, against = (1.15, max(alone)) if colour == "async" else (1.0, sum(alone))
        words = "the slower side" if colour == "async" else "the sum of both"
        print(f"  sync is {found['sync'] / against:.2f} x {words} (at most {limit})")
        print(f"  async is {found['async'] / alone[0]:.2f} x the primary alone (at most 1.1)")


def catch_up(title: str, one: str, two: str) -> None:
    """Fill a store, then let an empty replica catch up."""
    with clew.open(one) as source:
        for number in range(20):
            for _ in range(100):
                source.thread(f"filled-{number}").append("messages", [MESSAGE])
        with clew.open(two) as target:
            began = time.perf_counter()
            report = source.sync_to(target)
            took = time.perf_counter() - began
    rate, volume = report.records / took, report.bytes / took / 1e6
    print(f"\ncatch-up {title}: {report.records:,} records in {took:.2f} s, {rate:,.0f} records/s, {volume:.1f} MB/s")


def takeover(server: RedisServer | PostgresServer, replica: str) -> None:
    """Kill the primary, and save."""
    with clew.open(server.url, replica=replica) as store:
        thread = store.thread("takeover")
        thread.append("messages", [MESSAGE])
        server.kill()
        began = time.perf_counter()
        thread.append("messages", [MESSAGE])
        took = (time.perf_counter() - began) * 1000
    print(f"\n{type(server).__name__} killed: {took:.1f} ms to the first acknowledged save on the replica")


def run(saves: int = 300, rounds: int = 5) -> None:
    """Everything, printed."""
    with private_place() as place, tempfile.TemporaryDirectory() as folder:
        redis, postgres = RedisServer(place / "redis"), PostgresServer(place / "postgres")
        redis.start()
        postgres.start()
        try:
            files = [str(Path(folder) / f"{number}.db") for number in range(6)]
            pair("Redis + PostgreSQL", redis.url, postgres.url, saves, rounds)
            pair("PostgreSQL + SQLite", postgres.url, files[0], saves, rounds)
            pair("SQLite + SQLite", files[1], files[2], saves, rounds)
            catch_up("SQLite to SQLite", files[3], files[4])
            catch_up("SQLite to PostgreSQL", files[3], f"{postgres.url}?schema=caught_up")
            catch_up("SQLite to Redis", files[3], f"{redis.url}?prefix=caught-up")
            takeover(redis, files[5])
        finally:
            redis.kill()
            postgres.kill()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--saves", type=int, default=300)
    words.add_argument("--rounds", type=int, default=5)
    given = words.parse_args()
    run(given.saves, given.rounds)
