"""The cost of a replica: saves through a mirror against saves on each side alone, taking turns in one run.

Redis and PostgreSQL are private servers; SQLite is a file. With `replication="sync"` a save is compared with the slower
side in the async API and with the sum of both sides in the sync API; with `"async"` it is compared with the primary
alone. "both, without a mirror" is the time of two saves at once on this machine. At the end: how fast an empty replica
catches up, and the outages of `mirror_outage`.
"""

from __future__ import annotations

import asyncio
import inspect
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backtrail
import backtrail.aio
from backtrail.testing.servers import PostgresServer, RedisServer, private_directory
from bench.measure import Outcome, Target
from bench.run_context import RunContext
from bench.workloads import mirror_outage
from bench.workloads.mirror_outage import MESSAGE, Times, UrlOf, maybe_await

StoreOpener = Callable[[], Any]


class TwoStores:
    """Two independent stores, with the methods of a store and of a thread that are timed."""

    def __init__(self, one: Any, two: Any) -> None:
        self.stores = one, two

    def thread(self, name: str) -> TwoStores:
        return TwoStores(*(store.thread(name) for store in self.stores))

    async def append(self, key: str, items: list[Any]) -> None:
        appends = [store.append(key, items) for store in self.stores]  # those of sync stores are done by now
        await asyncio.gather(*(one for one in appends if inspect.isawaitable(one)))

    async def close(self) -> None:
        for store in self.stores:
            await maybe_await(store.close())


async def time_saves(open_store: StoreOpener, saves: int, name: str) -> tuple[list[float], float]:
    """Seconds that each append took, and seconds of CPU time for each."""
    store = await maybe_await(open_store())
    thread = store.thread(name)
    for _ in range(10):
        await maybe_await(thread.append("messages", [MESSAGE]))
    took = []
    spent = time.process_time()
    for _ in range(saves):
        began = time.perf_counter()
        await maybe_await(thread.append("messages", [MESSAGE]))
        took.append(time.perf_counter() - began)
    spent = time.process_time() - spent
    await maybe_await(store.close())
    return took, spent / saves


def compare(openers: dict[str, StoreOpener], saves: int, rounds: int) -> dict[str, Times]:
    """The medians of each; they take turns."""
    samples: dict[str, list[float]] = defaultdict(list)
    spent: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for name, opener in openers.items():
            took, each = asyncio.run(time_saves(opener, saves // rounds, f"{name}-{number}"))
            samples[name] += took
            spent[name].append(each)
    return {
        name: Times(statistics.median(found) * 1000, statistics.median(spent[name]) * 1000)
        for name, found in samples.items()
    }


def compare_pair(title: str, one: UrlOf, two: UrlOf, saves: int, rounds: int, outcome: Outcome) -> None:
    """Measure one pair of stores in the async and the sync API; each contender has stores of its own."""
    for api, open_store in ("async", backtrail.aio.open), ("blocking", backtrail.open):

        def mirror(mode: str, open_store: Any = open_store, api: str = api) -> Any:
            name = f"{mode}_{api}"
            return open_store(one(name), replica=two(name), replication=mode)

        async def apart(open_store: Any = open_store, api: str = api) -> TwoStores:
            name = f"apart_{api}"
            return TwoStores(await maybe_await(open_store(one(name))), await maybe_await(open_store(two(name))))

        openers: dict[str, StoreOpener] = {
            "primary alone": lambda open_store=open_store, api=api: open_store(one(f"alone_{api}")),
            "replica alone": lambda open_store=open_store, api=api: open_store(two(f"alone_{api}")),
            "both, without a mirror": apart,
            "backtrail sync": lambda mirror=mirror: mirror("sync"),
            "backtrail async": lambda mirror=mirror: mirror("async"),
        }
        found = compare(openers, saves, rounds)
        for name, times in found.items():
            outcome.rows.append([f"{title}, {api}", name, f"{times.taken:.3f}", f"{times.spent:.3f}"])
        outcome.raw[f"{title}, {api}"] = {name: list(times) for name, times in found.items()}
        primary, replica, apart_, sync, later = (found[name].taken for name in openers)
        limit, against = (1.15, max(primary, replica)) if api == "async" else (1.0, primary + replica)
        words = "the slower side" if api == "async" else "the sum of both"
        note = f"{sync / apart_:.2f} x both without a mirror"
        outcome.targets += [
            Target("mirror", f"{title}, {api}: sync against {words}", sync / against, limit, note=note),
            Target("mirror", f"{title}, {api}: async against the primary alone", later / primary, 1.1),
        ]


def catch_up(title: str, one: str, two: str, outcome: Outcome) -> None:
    """Fill a store, and time how long an empty replica takes to catch up."""
    with backtrail.open(one) as source:
        for number in range(0 if len(source) else 20):
            for _ in range(100):
                source.thread(f"filled-{number}").append("messages", [MESSAGE])
        with backtrail.open(two) as target:
            began = time.perf_counter()
            report = source.sync_to(target)
            took = time.perf_counter() - began
    outcome.raw[f"catch-up {title}"] = {"records": report.records, "bytes": report.bytes, "seconds": took}
    outcome.rows.append([f"catch-up {title}", f"{report.records / took:,.0f} records/s", f"{took * 1000:.0f}", "-"])


def after_an_outage(server: PostgresServer, primary: str, long: int, missed: int, outcome: Outcome) -> None:
    """Kill the replica, save to a long thread and to short ones, start it again, and time until it has everything."""
    with backtrail.open(primary, replica=f"{server.url}?schema=after_an_outage", drain=60.0) as store:
        for _ in range(long):
            store.thread("long").append("messages", [MESSAGE])
        server.kill()
        for number in range(missed):
            store.thread("long" if number % 2 else f"short-{number % 50}").append("messages", [MESSAGE])
        server.start()
        began = time.perf_counter()
        while (status := store.catch_up()).behind or not status.replica.healthy:
            time.sleep(0.01)
        took = time.perf_counter() - began
    outcome.raw["after an outage"] = {"records": missed, "seconds": took}
    outcome.rows.append(["PostgreSQL back", f"{missed / took:,.0f} missed records/s", f"{took * 1000:.0f}", "-"])


def run(context: RunContext) -> Outcome:
    saves, missed, rounds = context.scaled(600), context.scaled(1000), 2 * context.rounds
    outcome = Outcome("Mirror: two stores that hold the same", ["pair, API", "what", "ms", "processor ms"], [])
    outcome.note = "medians of a save; sync: on both when it answers; async: the replica follows"
    with context.progress("mirror", 6) as bar, private_directory() as directory, context.scratch() as scratch:
        folder: Path = scratch.new_directory()
        redis, postgres = RedisServer(directory / "redis"), PostgresServer(directory / "postgres")
        redis.start()
        postgres.start()
        try:

            def on_redis(name: str) -> str:
                return f"{redis.url}?prefix={name}"

            def on_postgres(name: str) -> str:
                return f"{postgres.url}?schema={name}"

            def on_file(name: str) -> str:
                return str(folder / f"{name}.db")

            def on_second_file(name: str) -> str:
                return on_file(f"{name}_too")

            compare_pair("Redis + PostgreSQL", on_redis, on_postgres, saves, rounds, outcome)
            bar.advance()
            compare_pair("PostgreSQL + SQLite", lambda name: on_postgres(f"{name}_2"), on_file, saves, rounds, outcome)
            bar.advance()
            compare_pair("SQLite + SQLite", lambda name: on_file(f"{name}_3"), on_second_file, saves, rounds, outcome)
            bar.advance()
            catch_up("SQLite to SQLite", on_file("full"), on_file("caught_up"), outcome)
            catch_up("SQLite to PostgreSQL", on_file("full"), on_postgres("caught_up"), outcome)
            catch_up("SQLite to Redis", on_file("full"), on_redis("caught_up"), outcome)
            after_an_outage(postgres, on_file("after_an_outage"), saves * 5, saves * 3, outcome)
            bar.advance()
            mirror_outage.catch_up("SQLite + SQLite", on_file, on_second_file, missed, context.rounds, outcome)
            mirror_outage.catch_up("Redis + PostgreSQL", on_redis, on_postgres, missed, context.rounds, outcome)
            mirror_outage.catch_up_long(folder, context.scaled(100_000), context.rounds, outcome)
            bar.advance()
            mirror_outage.takeover("Redis + SQLite", redis, on_redis, on_file, rounds, outcome)
            mirror_outage.takeover(
                "PostgreSQL + SQLite", postgres, lambda name: on_postgres(f"{name}_2"), on_second_file, rounds, outcome
            )
            bar.advance()
        finally:
            redis.kill()
            postgres.kill()
    return outcome
