"""Mirrors for tests: two sides that can be made unreachable, and stores over them, over each API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.sqlite import SQLiteEngine
from fix_flaky import Flaky
from fix_stores import Stepped


class Pair:
    """Two sides that can be taken away, and stores over them."""

    def __init__(self, kinds: tuple[str, str], api: str, folder: Path) -> None:
        make: dict[str, Callable[[str], Any]] = {
            "memory": lambda _: MemoryEngine(),
            "sqlite": lambda name: SQLiteEngine(folder / f"{name}.db", durability="normal"),
        }
        awaiting = api == "awaiting"
        self.primary = Flaky(make[kinds[0]]("primary"), awaiting=awaiting)
        self.replica = Flaky(make[kinds[1]]("replica"), awaiting=awaiting)
        self.loop = asyncio.new_event_loop()
        self.api = api
        self.stores: list[Any] = []

    def open(self, primary: Flaky | None = None, **options: Any) -> Any:
        options = {"replica": self.replica, "health_every": 0.05, "failback_after": 0.1, **options}
        if self.api == "blocking":
            store: Any = backtrail.open(primary or self.primary, **options)
        else:
            store = Stepped(
                self.loop.run_until_complete(backtrail.aio.open(primary or self.primary, **options)), self.loop
            )
        self.stores.append(store)
        return store

    def elsewhere(self, **options: Any) -> Any:
        """A store of another process over the same two sides, for which they are never away."""
        one, two = (Flaky(side.engine, awaiting=side.awaiting) for side in (self.primary, self.replica))
        return self.open(one, replica=two, **options)

    def alone(self, side: Flaky) -> backtrail.Store:
        """One side as a store of its own."""
        return backtrail.open(side.engine)

    def until(self, store: Any, true: Callable[[Any], bool]) -> Any:
        """Wait for a status."""
        end = time.monotonic() + 20
        while not true(status := store.catch_up()):
            assert time.monotonic() < end, status
            time.sleep(0.02)
        return status

    def eventually(self, true: Callable[[], bool]) -> None:
        """Wait for what the background is about to do, without asking the store for anything."""
        end = time.monotonic() + 20
        while not true():
            assert time.monotonic() < end
            self.loop.run_until_complete(asyncio.sleep(0.005))

    def equal(self) -> None:
        """Both sides have the same heads, checkpoints and states."""
        one, two = self.alone(self.primary), self.alone(self.replica)
        infos = one.threads()
        assert infos == two.threads()
        for info in infos:
            here, there = one.thread(info.id), two.thread(info.id)
            assert here.load() == there.load()
            assert here.history(all=True) == there.history(all=True)


@pytest.fixture(
    params=["memory+memory-blocking", "sqlite+memory-blocking", "sqlite+sqlite-async", "memory+memory-awaiting"]
)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    kinds, _, api = request.param.partition("-")
    one, _, two = kinds.partition("+")
    made = Pair((one, two), api, tmp_path)
    yield made
    made.primary.up = made.replica.up = True
    for store in made.stores:
        store.close()
    made.primary.engine.close().close()
    made.loop.run_until_complete(made.loop.shutdown_default_executor())
    made.loop.close()


def both_unreachable(pair: Pair) -> None:
    """Take both sides away."""
    pair.primary.up = pair.replica.up = False


def back(pair: Pair) -> None:
    """Bring both sides back."""
    pair.primary.up = pair.replica.up = True


def landed(pair: Pair, store: Any) -> Any:
    """Bring both sides back, and wait until everything that was spooled is on both."""
    back(pair)
    return pair.until(store, lambda status: not status.spool.records and not status.behind and not status.lag_records)
