"""What a replica costs: saves through a mirror against saves on each side alone, taking turns in one run.

Redis and PostgreSQL are started privately; SQLite is a file. The ratio is the one that the mirror is held to: in the
async colour sync against the slower side, in the blocking colour sync against the sum, and async replication against
the primary alone. "both, without a mirror" is what the machine itself makes of two saves at once. Last, catch-up: how
fast an empty replica gets everything, and how long the first save after a kill of the primary takes.
"""

from __future__ import annotations

import asyncio
import inspect
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import backtrail
import backtrail.aio
from backtrail.testing.servers import PostgresServer, RedisServer, private_place
from bench.measure import Outcome, Target
from bench.setting import Setting

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


class Times(NamedTuple):
    """Milliseconds of a save: from call to answer, and of processor time."""

    taken: float
    spent: float


def compare(openers: dict[str, Opener], saves: int, rounds: int) -> dict[str, Times]:
    """Medians of each, measured in turns."""
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


def pair(title: str, one: Place, two: Place, saves: int, rounds: int, outcome: Outcome) -> None:
    """Both colours of one pair; each contender has places of its own."""
    for colour, opening in ("async", backtrail.aio.open), ("blocking", backtrail.open):

        def mirror(mode: str, opening: Any = opening, colour: str = colour) -> Any:
            name = f"{mode}_{colour}"
            return opening(one(name), replica=two(name), replication=mode)

        async def apart(opening: Any = opening, colour: str = colour) -> Two:
            name = f"apart_{colour}"
            return Two(await _settle(opening(one(name))), await _settle(opening(two(name))))

        openers: dict[str, Opener] = {
            "primary alone": lambda opening=opening, colour=colour: opening(one(f"alone_{colour}")),
            "replica alone": lambda opening=opening, colour=colour: opening(two(f"alone_{colour}")),
            "both, without a mirror": apart,
            "backtrail sync": lambda mirror=mirror: mirror("sync"),
            "backtrail async": lambda mirror=mirror: mirror("async"),
        }
        found = compare(openers, saves, rounds)
        for name, times in found.items():
            outcome.rows.append([f"{title}, {colour}", name, f"{times.taken:.3f}", f"{times.spent:.3f}"])
        outcome.raw[f"{title}, {colour}"] = {name: list(times) for name, times in found.items()}
        primary, replica, apart_, sync, later = (found[name].taken for name in openers)
        limit, against = (1.15, max(primary, replica)) if colour == "async" else (1.0, primary + replica)
        words = "the slower side" if colour == "async" else "the sum of both"
        note = f"{sync / apart_:.2f} x both without a mirror"
        outcome.targets += [
            Target("mirror", f"{title}, {colour}: sync against {words}", sync / against, limit, note=note),
            Target("mirror", f"{title}, {colour}: async against the primary alone", later / primary, 1.1),
        ]


def catch_up(title: str, one: str, two: str, outcome: Outcome) -> None:
    """Fill a store, then let an empty replica catch up."""
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


def takeover(server: RedisServer | PostgresServer, replica: str, outcome: Outcome) -> None:
    """Kill the primary, and save."""
    with backtrail.open(server.url, replica=replica) as store:
        thread = store.thread("takeover")
        thread.append("messages", [MESSAGE])
        server.kill()
        began = time.perf_counter()
        thread.append("messages", [MESSAGE])
        took = (time.perf_counter() - began) * 1000
    outcome.raw["takeover"] = took
    outcome.rows.append([f"{type(server).__name__} killed", "first save on the replica", f"{took:.1f}", "-"])


def run(setting: Setting) -> Outcome:
    saves, rounds = setting.scaled(600), 2 * setting.rounds
    outcome = Outcome("Mirror: two stores that hold the same", ["pair, colour", "what", "ms", "processor ms"], [])
    outcome.note = "medians of a save; sync: on both when it answers; async: the replica follows"
    with setting.bar("mirror", 4) as bar, private_place() as place, setting.place() as scratch:
        folder: Path = scratch.new()
        redis, postgres = RedisServer(place / "redis"), PostgresServer(place / "postgres")
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

            pair("Redis + PostgreSQL", on_redis, on_postgres, saves, rounds, outcome)
            bar.tick()
            pair("PostgreSQL + SQLite", lambda name: on_postgres(f"{name}_2"), on_file, saves, rounds, outcome)
            bar.tick()
            pair("SQLite + SQLite", lambda name: on_file(f"{name}_3"), on_second_file, saves, rounds, outcome)
            bar.tick()
            catch_up("SQLite to SQLite", on_file("full"), on_file("caught_up"), outcome)
            catch_up("SQLite to PostgreSQL", on_file("full"), on_postgres("caught_up"), outcome)
            catch_up("SQLite to Redis", on_file("full"), on_redis("caught_up"), outcome)
            takeover(redis, on_file("taken_over"), outcome)
            bar.tick()
        finally:
            redis.kill()
            postgres.kill()
    return outcome
