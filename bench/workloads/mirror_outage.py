"""An outage of one side of a mirror: the first save after it, and the saves that a follower has missed.

The takeover begins when the killed server is gone, and ends with the acknowledgement of the next save. The follower of
a catch-up is cut off instead: a file has no server to kill, and a server that starts would be measured as well. The
same saves, made on a store of the follower's engine alone, are what the catch-up is compared with.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

import backtrail
import backtrail.aio
from backtrail.engines import connect, parse
from backtrail.engines.delegating_engine import Method, WrappingEngine
from backtrail.errors import Unavailable
from backtrail.replicate.status import log
from backtrail.testing.servers import PostgresServer, RedisServer
from bench.measure import Outcome, Target

MESSAGE = {"role": "user", "content": "a message of the usual length, as people write them to agents " * 8}
UrlOf = Callable[[str], str]  # name -> URL of an empty store


async def maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Times(NamedTuple):
    """Milliseconds: elapsed, and of processor time."""

    taken: float
    spent: float


class Stopwatch:
    """Elapsed and processor time of some calls by name, and their medians."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Times]] = defaultdict(list)

    @contextmanager
    def time(self, name: str, saves: int = 1) -> Iterator[None]:
        """Time what is done for this many saves."""
        began, spent = time.perf_counter(), time.process_time()
        yield
        taken, spent = time.perf_counter() - began, time.process_time() - spent
        self._samples[name].append(Times(taken * 1000 / saves, spent * 1000 / saves))

    def medians(self) -> dict[str, Times]:
        return {
            name: Times(*(statistics.median(column) for column in zip(*samples, strict=True)))
            for name, samples in self._samples.items()
        }


# -- takeover --------------------------------------------------------------------------------------------------------


def takeover(
    title: str, server: RedisServer | PostgresServer, one: UrlOf, two: UrlOf, rounds: int, out: Outcome
) -> None:
    """Kill the primary, time the next save of each API, and start it again."""
    watch, told = Stopwatch(), log.level
    log.setLevel(logging.ERROR)  # each kill would be reported
    for number in range(rounds):
        asyncio.run(_take_over(server, one, two, number, watch))
        server.start()
    log.setLevel(told)
    for api, times in watch.medians().items():
        out.rows.append([f"{title}, {api}", "first save after a kill", f"{times.taken:.1f}", f"{times.spent:.2f}"])
        out.targets.append(
            Target("mirror", f"{title}, {api}: the first save after a kill", times.taken / 1000, 0.2, unit="s")
        )
    out.raw[f"takeover, {title}"] = {api: list(times) for api, times in watch.medians().items()}


async def _take_over(
    server: RedisServer | PostgresServer, one: UrlOf, two: UrlOf, number: int, watch: Stopwatch
) -> None:
    mirrors: dict[str, tuple[Any, Any]] = {}
    for api, open_store in ("async", backtrail.aio.open), ("blocking", backtrail.open):
        name = f"taken_over_{api}_{number}"
        store: Any = await maybe_await(open_store(one(name), replica=two(name)))
        thread = store.thread("takeover")
        await maybe_await(thread.append("messages", [MESSAGE]))
        await maybe_await(store.catch_up())  # a side that is not known to have everything takes over after retries
        mirrors[api] = store, thread
    server.kill()
    for api in sorted(mirrors, reverse=bool(number % 2)):
        store, thread = mirrors[api]
        with watch.time(api):
            await maybe_await(thread.append("messages", [MESSAGE]))
        if (await maybe_await(store.status())).active != "replica":
            raise AssertionError("the save was not made on the replica")
    for store, _ in mirrors.values():
        await maybe_await(store.close())


# -- catch-up --------------------------------------------------------------------------------------------------------


class Follower(WrappingEngine):
    """An engine that cannot be reached while it is `away`."""

    away = False

    async def _ask(self, method: Method[Any], *args: Any, **options: Any) -> Any:
        if self.away and method.__name__ != "close":
            raise Unavailable("the bench cut it off")
        return await super()._ask(method, *args, **options)


class Mirror:
    """A mirror whose follower can be cut off."""

    def __init__(self, one: str, two: str) -> None:
        address = parse(two)
        self._follower = Follower(connect(address, address.options, asynchronous=False))
        self.store = backtrail.open(one, replica=self._follower)

    def miss(self, names: Sequence[str], saves: int) -> None:
        """Save to each thread while the follower is away."""
        self._follower.away = True
        _save(self.store, names, saves)
        if self.store.status().replica.healthy:
            raise AssertionError("the follower has missed nothing")
        self._follower.away = False

    def catch_up(self) -> None:
        while (status := self.store.catch_up()).behind or not status.replica.healthy:
            time.sleep(0.01)


def _save(store: backtrail.Store, names: Sequence[str], saves: int) -> None:
    for name in names:
        thread = store.thread(name)
        for _ in range(saves):
            thread.append("messages", [MESSAGE])


def catch_up(title: str, one: UrlOf, two: UrlOf, saves: int, rounds: int, out: Outcome) -> None:
    """Time the catch-up with as many saves of one thread as it had before, and with one save of each of many."""
    mirror, alone, watch = Mirror(one("missed"), two("missed")), backtrail.open(two("missed_alone")), Stopwatch()
    cases = {
        f"{saves:,} saves of a thread": (["long"], saves),
        f"a save of {saves // 5:,} threads": ([f"short-{number}" for number in range(saves // 5)], 1),
    }
    for names, each in cases.values():
        _save(mirror.store, names, each)
        _save(alone, names, each)
    for _ in range(rounds):
        for case, (names, each) in cases.items():
            missed = len(names) * each
            with watch.time(f"{case}, alone", missed):
                _save(alone, names, each)
            mirror.miss(names, each)
            with watch.time(case, missed):
                mirror.catch_up()
    mirror.store.close()
    alone.close()
    found = watch.medians()
    out.raw[f"missed, {title}"] = {case: list(times) for case, times in found.items()}
    # What a lineage needs is asked once on each side: that is as much as a few saves, and little beside many.
    for case, limit in zip(cases, (1.0, 5.0), strict=True):
        made, caught = found[f"{case}, alone"], found[case]
        what = f"catch-up with {case}"
        for name, times in ("made on the follower alone", made), ("backtrail, missed and caught up", caught):
            out.rows.append([f"{title}, {case}", name, f"{times.taken:.3f}", f"{times.spent:.3f}"])
        out.targets.append(
            Target("mirror", f"{title}: {what}, against making them there alone", caught.taken / made.taken, limit)
        )


def catch_up_long(folder: Path, steps: int, rounds: int, out: Outcome) -> None:
    """Time the catch-up with one save of a long thread, against one of a thread of a hundredth of its length."""
    one, two = folder / "long_one.db", folder / "long_two.db"
    threads = {f"a save of a thread of {count:,} steps": count for count in (steps // 100, steps)}
    with backtrail.open(f"sqlite:{one}?durability=normal") as store:
        for name, count in threads.items():
            thread = store.thread(name)
            for number in range(count):
                thread.append("steps", [number])
    copyfile(one, two)
    mirror, watch = Mirror(str(one), str(two)), Stopwatch()
    _save(mirror.store, [*threads], 1)  # in a generation of the mirror
    for _ in range(5 * rounds):
        for name in threads:
            mirror.miss([name], 1)
            with watch.time(name):
                mirror.catch_up()
    mirror.store.close()
    found = watch.medians()
    out.raw["missed, long"] = {name: list(times) for name, times in found.items()}
    for name, times in found.items():
        out.rows.append(
            [
                f"SQLite + SQLite, {name}",
                "backtrail, missed and caught up",
                f"{times.taken:.3f}",
                f"{times.spent:.3f}",
            ]
        )
    short, long = (found[name].taken for name in threads)
    what = f"catch-up with a save of a thread of {steps:,} steps, against {steps // 100:,}"
    out.targets.append(Target("mirror", f"SQLite + SQLite: {what}", long / short, 1.5))
