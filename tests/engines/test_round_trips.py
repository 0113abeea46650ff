"""How often a store on a server speaks to it: once for an append, at most three times for a long state.

And how many of its callers do so at once: as many as the pool has connections.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import clew
import clew.aio
from fix_proxy import Proxy

_NUMBERS = itertools.count()
STEP = [{"role": "user", "content": "x" * 1100}, {"role": "assistant", "content": "y" * 1100}] * 10


@pytest.mark.parametrize(("kind", "place"), [("redis", "prefix"), ("postgres", "schema")])
def test_an_append_is_one_round_trip_and_a_long_state_loads_in_three(
    kind: str, place: str, request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    proxy = proxy_to(server.port)
    options: dict[str, Any] = {place: f"trips_{next(_NUMBERS)}"}
    with clew.open(server.url.replace(str(server.port), str(proxy.port)), compression=None, **options) as store:
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


@pytest.mark.parametrize(("kind", "place"), [("redis", "prefix"), ("postgres", "schema")])
def test_tasks_that_share_a_pool_use_all_of_it_at_the_same_time(
    kind: str, place: str, request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]
) -> None:
    """No answer comes before eight wait for one: a lock around the pool, or a smaller pool, would wait for ever."""
    server = request.getfixturevalue(f"{kind}_server")
    proxy = proxy_to(server.port)
    url = server.url.replace(str(server.port), str(proxy.port))
    options: dict[str, Any] = {place: f"trips_{next(_NUMBERS)}", "pool_size": 8, "read_timeout": 10.0, "retries": 0}

    async def test() -> None:
        async with await clew.aio.open(url, **options) as store:
            threads = [store.thread(f"task {n}") for n in range(32)]
            await threads[0].append("messages", STEP)
            proxy.held_for = 8
            await asyncio.gather(*[thread.append("messages", STEP) for thread in threads])
            assert proxy.held_for == 0
            assert proxy.connections == 8
            assert [len((await thread.load())["messages"]) for thread in threads[:2]] == [40, 20]

    asyncio.run(test())


@pytest.mark.parametrize(("kind", "place"), [("redis", "prefix"), ("postgres", "schema")])
def test_threads_that_share_a_pool_use_all_of_it_at_the_same_time(
    kind: str, place: str, request: pytest.FixtureRequest, proxy_to: Callable[[int], Proxy]
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    proxy = proxy_to(server.port)
    url = server.url.replace(str(server.port), str(proxy.port))
    options: dict[str, Any] = {place: f"trips_{next(_NUMBERS)}", "pool_size": 8, "read_timeout": 10.0, "retries": 0}
    with clew.open(url, **options) as store:
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
