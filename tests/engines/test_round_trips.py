"""How often a store on a server speaks to it: once for an append, at most three times for a long state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import clew
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
