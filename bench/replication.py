"""What a replica costs: saves through a mirror against saves on each side alone, taking turns in one run.

    python -m bench.replication [--saves 600] [--rounds 6]

Redis and PostgreSQL are started privately; SQLite is a file. A figure is the median of all saves of one conversation,
in milliseconds, and beside it the CPU time that this process spent for each save, its background included. The ratio
is the one that the mirror is held to: in the async colour sync against the slower side, in the blocking colour sync
against the sum, and async replication against the primary alone.

Where both servers, the client and whatever else share a few cores, two commits at once take longer than the slower of
them, mirror or not. So there is one more contender, two stores that know nothing of each other, saved to at once (or,
in the blocking colour, one after the other): what the mirror adds is what it takes beyond that. Last, catch-up: how
fast an empty replica gets everything, and how long the first save after a kill of the primary takes.
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
Place = Callable[[str], str]  # the URL of an empty store for each name


async def _settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Two:
    """Two stores that know nothing of each other, with as much of a thread as is timed here."""

    def __init__(self, one: Any, two: Any) -> None:
        self.stores = one, two

    def thread(self, name: str) -> Two:
        return Two(*(store.thread(name) for store in self.stores))

    async def append(self, key: str, items: list[Any]) -> None:
        appends = [store.append(key, items) for store in self.stores]  # in the blocking colour, both are done by now
        await asyncio.gather(*(one for one in appends if inspect.isawaitable(one)))

    async def close(self) -> None:
        for store in self.stores:
            await _settle(store.close())


async def time_saves(open_store: Opener, saves: int, name: str) -> tuple[list[float], float]:
    """Seconds that each append took, and seconds of CPU time for each."""
    store = await _settle(open_store())
    thread = store.thread(name)
    for _ in range(10):
        await _settle(thread.append("messages", [MESSAGE]))
    took = []
    spent = time.process_time()
    for _ in range(saves):
        began = time.perf_counter()
        await _settle(thread.append("messages", [MESSAGE]))
        took.append(time.perf_counter() - began)
    spent = time.process_time() - spent
    await _settle(store.close())
    return took, spent / saves


def compare(title: str, openers: dict[str, Opener], saves: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of each, measured in turns."""
    samples: dict[str, list[float]] = defaultdict(list)
    spent: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for name, opener in openers.items():
            took, each = asyncio.run(time_saves(opener, saves // rounds, f"{name}-{number}"))
            samples[name] += took
            spent[name].append(each)
    medians = {name: statistics.median(found) * 1000 for name, found in samples.items()}
    print(f"\n{title}")
    for name, median in medians.items():
        print(f"  {name:<28} {median:8.3f} ms   CPU {statistics.median(spent[name]) * 1000:6.3f} ms")
    return medians


def pair(title: str, one: Place, two: Place, saves: int, rounds: int) -> None:
    """Both colours of one pair; each contender has places of its own."""
    for colour, opening in ("async", clew.aio.open), ("blocking", clew.open):

        def mirror(mode: str, opening: Any = opening, colour: str = colour) -> Any:
            name = f"{mode}_{colour}"
            return opening(one(name), replica=two(name), replication=mode)

        async def apart(opening: Any = opening, colour: str = colour) -> Two:
            name = f"apart_{colour}"
            return Two(await _settle(opening(one(name))), await _settle(opening(two(name))))

        found = compare(
            f"{title}, {colour} colour",
            {
                "primary alone": lambda opening=opening, colour=colour: opening(one(f"alone_{colour}")),
                "replica alone": lambda opening=opening, colour=colour: opening(two(f"alone_{colour}")),
                "both, without a mirror": apart,
                "sync": lambda mirror=mirror: mirror("sync"),
                "async": lambda mirror=mirror: mirror("async"),
            },
            saves,
            rounds,
        )
        alone = found["primary alone"], found["replica alone"]
        limit, against = (1.15, max(alone)) if colour == "async" else (1.0, sum(alone))
        words = "the slower side" if colour == "async" else "the sum of both"
        floor = found["sync"] / found["both, without a mirror"]
        print(
            f"  sync is {found['sync'] / against:.2f} x {words} (at most {limit}), {floor:.2f} x both without a mirror"
        )
        print(f"  async is {found['async'] / alone[0]:.2f} x the primary alone (at most 1.1)")


def catch_up(title: str, one: str, two: str) -> None:
    """Fill a store, then let an empty replica catch up."""
    with clew.open(one) as source:
        for number in range(0 if len(source) else 20):
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


def run(saves: int = 600, rounds: int = 6) -> None:
    """Everything, printed."""
    with private_place() as place, tempfile.TemporaryDirectory() as folder:
        redis, postgres = RedisServer(place / "redis"), PostgresServer(place / "postgres")
        redis.start()
        postgres.start()
        try:

            def on_redis(name: str) -> str:
                return f"{redis.url}?prefix={name}"

            def on_postgres(name: str) -> str:
                return f"{postgres.url}?schema={name}"

            def on_file(name: str) -> str:
                return str(Path(folder) / f"{name}.db")

            def on_second_file(name: str) -> str:
                return on_file(f"{name}_too")

            pair("Redis + PostgreSQL", on_redis, on_postgres, saves, rounds)
            pair("PostgreSQL + SQLite", lambda name: on_postgres(f"{name}_2"), on_file, saves, rounds)
            pair("SQLite + SQLite", lambda name: on_file(f"{name}_3"), on_second_file, saves, rounds)
            catch_up("SQLite to SQLite", on_file("full"), on_file("caught_up"))
            catch_up("SQLite to PostgreSQL", on_file("full"), on_postgres("caught_up"))
            catch_up("SQLite to Redis", on_file("full"), on_redis("caught_up"))
            takeover(redis, on_file("taken_over"))
        finally:
            redis.kill()
            postgres.kill()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--saves", type=int, default=600)
    words.add_argument("--rounds", type=int, default=6)
    given = words.parse_args()
    run(given.saves, given.rounds)
