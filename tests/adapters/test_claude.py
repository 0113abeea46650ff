"""The Claude Agent SDK's session store: the SDK's 14 conformance contracts, and more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from claude_agent_sdk.testing import run_session_store_conformance

from backtrail.adapters.claude import BacktrailSessionStore

KEY: Any = {"project_key": "/home/me/project", "session_id": "s/1"}


def entry(uuid: str | None, **fields: Any) -> Any:
    return {"type": "user", **({"uuid": uuid} if uuid else {}), **fields}


def test_the_sdks_conformance_contracts_hold(open_store: Any, run_async: Callable[[Any], Any]) -> None:
    async def contracts() -> None:
        async with AsyncExitStack() as stores:

            async def fresh() -> BacktrailSessionStore:
                return BacktrailSessionStore(await stores.enter_async_context(open_store()))

            await run_session_store_conformance(fresh)

    run_async(contracts())


def test_an_entry_sent_twice_is_stored_once_even_by_another_store_object(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def send() -> Any:
        one, other = BacktrailSessionStore(store), BacktrailSessionStore(store)
        await one.append(KEY, [entry("a"), entry("b"), entry(None, title="x")])
        await other.append(KEY, [entry("b"), entry("c"), entry("c")])
        await one.append(KEY, [entry("a"), entry("d"), entry(None, title="x")])
        return await one.load(KEY)

    assert [one.get("uuid") for one in run_async(send())] == ["a", "b", None, "c", "d", None]


def test_concurrent_writers_lose_no_entry(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def send() -> Any:
        stores = [BacktrailSessionStore(store) for _ in range(4)]
        await asyncio.gather(*(one.append(KEY, [entry(f"{n}-{i}")]) for i in range(8) for n, one in enumerate(stores)))
        return await stores[0].load(KEY)

    loaded = run_async(send())
    assert len(loaded) == 32
    assert {one["uuid"] for one in loaded} == {f"{n}-{i}" for n in range(4) for i in range(8)}


def test_a_transcript_is_a_backtrail_session_that_counts_user_turns(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def send() -> None:
        said = {"role": "user", "content": "hello"}
        await BacktrailSessionStore(store).append(KEY, [entry("a", message=said), {"type": "assistant", "uuid": "b"}])

    run_async(send())
    session = BacktrailSessionStore(store).session(KEY)
    assert session.user_turns == 1
    assert [message["uuid"] for message in session.messages()] == ["a", "b"]
    assert len(store.sessions()) == 1


def test_unknown_fields_of_an_entry_are_kept(store: Any, run_async: Callable[[Any], Any]) -> None:
    odd = entry("a", later={"x": [1, 2.5, None, True]}, **{"": "empty key"})

    async def there_and_back() -> Any:
        await BacktrailSessionStore(store).append(KEY, [odd])
        return await BacktrailSessionStore(store).load(KEY)

    assert run_async(there_and_back()) == [odd]
