"""Round trips to a server: one for an append, at most three for a long state.

As many callers as the pool has connections make them at once.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import backtrail
import backtrail.aio
from fix_proxy import Proxy

_NUMBERS = itertools.count()
STEP = [{"role": "user", "content": "x" * 1100}, {"role": "assistant", "content": "y" * 1100}] * 10
POOL: dict[str, Any] = {"pool_size": 8, "connect_timeout": 60.0, "read_timeout": 60.0, "retries": 0}


class Way(NamedTuple):
    """To an empty store of its own on a server, through a proxy."""

    proxy: Proxy
    url: str
    options: dict[str, Any]


@pytest.fixture(params=[("redis", "prefix"), ("postgres", "schema")], ids=["redis", "postgres"])
def way(request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]) -> Way:
    kind, place = request.param
    server = request.getfixturevalue(f"{kind}_server")
    proxy = proxy_to(server.port)
    return Way(proxy, server.url.replace(str(server.port), str(proxy.port)), {place: f"trips_{next(_NUMBERS)}"})


def test_an_append_is_one_round_trip_and_a_long_state_loads_in_three(way: Way) -> None:
    proxy = way.proxy
    with backtrail.open(way.url, compression=None, **way.options) as store:
        thread = store.thread("t")
        for _ in range(3):
            thread.append("messages", STEP)
        before = proxy.trips
        for _ in range(160):
            thread.append("messages", STEP)
        assert proxy.trips - before == 160
        store.thread("t").load()
        before = proxy.trips
        state = store.thread("t").load()
        assert proxy.trips - before <= 3
        assert sum(len(message["content"]) for message in state["messages"]) > 3_500_000


def test_tasks_that_share_a_pool_use_all_of_it_at_the_same_time(way: Way) -> None:
    """No answer comes before eight wait for one: a lock around the pool, or a smaller pool, would wait for ever."""
    proxy = way.proxy

    async def test() -> None:
        async with await backtrail.aio.open(way.url, **POOL, **way.options) as store:
            threads = [store.thread(f"task {n}") for n in range(32)]
            await threads[0].append("messages", STEP)
            proxy.held_for = 8
            await asyncio.gather(*[thread.append("messages", STEP) for thread in threads])
            assert proxy.held_for == 0
            assert proxy.connections == 8
            assert [len((await thread.load())["messages"]) for thread in threads[:2]] == [40, 20]

    asyncio.run(test())


def test_threads_that_share_a_pool_use_all_of_it_at_the_same_time(way: Way) -> None:
    proxy = way.proxy
    with backtrail.open(way.url, **POOL, **way.options) as store:
        store.thread("task 0").append("messages", STEP)
        proxy.held_for = 8
        workers = [
            threading.Thread(target=store.thread(f"task {n}").append, args=("messages", STEP)) for n in range(32)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert proxy.held_for == 0
        assert proxy.connections == 8
        assert sorted(len(store.thread(f"task {n}").load()["messages"]) for n in range(32)) == [20] * 31 + [40]
