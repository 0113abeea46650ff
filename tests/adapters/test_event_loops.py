"""Adapters and event loops: a `Store` serves a framework under asyncio and trio, an `AsyncStore` under asyncio only."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, project_key_for_directory
from claude_agent_sdk._internal.session_resume import materialize_resume_session
from claude_agent_sdk.testing import run_session_store_conformance

import backtrail
import backtrail.aio
from backtrail.adapters.claude import BacktrailSessionStore
from backtrail.adapters.sync_bridge import SyncBridge
from backtrail.errors import InvalidInput
from fix_stores import EVERY_ENGINE, address

KEY: Any = {"project_key": "p", "session_id": "s"}


@pytest.fixture(params=["asyncio", "trio"])
def event_loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_the_claude_sdks_contracts_hold_under_trio(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    numbers = iter(range(100))

    @asynccontextmanager
    async def open_one() -> AsyncIterator[Any]:
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        url, options = ("memory:", {}) if engine == "memory" else address(engine, "blocking", directory, request)
        with backtrail.open(url, **options) as store:
            yield store

    async def contracts() -> None:
        async with AsyncExitStack() as stores:

            async def fresh() -> BacktrailSessionStore:
                return BacktrailSessionStore(await stores.enter_async_context(open_one()))

            await run_session_store_conformance(fresh)

    anyio.run(contracts, backend="trio")


def test_an_async_store_refuses_trio_and_says_what_to_do(tmp_path: Path) -> None:
    async def open_one() -> Any:
        return await backtrail.aio.open(tmp_path / "store.db")

    opened = anyio.run(open_one)

    async def append() -> None:
        await BacktrailSessionStore(opened).append(KEY, [{"type": "user", "uuid": "a"}])

    for program in (open_one, append):
        with pytest.raises(InvalidInput, match=r"asyncio event loop.*trio.*backtrail\.open"):
            anyio.run(program, backend="trio")
    anyio.run(append)
    anyio.run(opened.close)


def test_a_task_that_is_cancelled_is_free_at_once_and_its_call_goes_on(event_loop: str) -> None:
    begun, allowed, done = threading.Event(), threading.Event(), threading.Event()

    async def slow() -> None:
        begun.set()
        allowed.wait(10)
        done.set()

    async def program() -> None:
        with backtrail.open("memory:") as store:
            bridge = SyncBridge(store)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bridge.run_async, slow())
                await anyio.to_thread.run_sync(begun.wait)
                tasks.cancel_scope.cancel()
            assert not done.is_set()
            allowed.set()
            assert await anyio.to_thread.run_sync(done.wait, 10)

    anyio.run(program, backend=event_loop)


@pytest.mark.filterwarnings("error")  # a coroutine that was never awaited would warn
def test_a_call_that_is_cancelled_before_it_begins_never_does(event_loop: str) -> None:
    ran: list[int] = []

    async def call() -> None:
        ran.append(1)

    async def program() -> None:
        with backtrail.open("memory:") as store, anyio.CancelScope() as scope:
            scope.cancel()
            await SyncBridge(store).run_async(call())

    anyio.run(program, backend=event_loop)
    assert ran == []


def test_continue_takes_the_session_that_was_written_last_even_within_a_millisecond(
    event_loop: str, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    project = project_key_for_directory(str(tmp_path))
    ids = [f"00000000-0000-4000-8000-{n:012x}" for n in (7, 3, 9, 1, 5)]

    async def program() -> None:
        transcripts = BacktrailSessionStore(store)
        for id in [*ids, ids[2]]:
            uuid = f"{id}-{store.thread(f'claude/{project}/{id}').step}"
            await transcripts.append({"project_key": project, "session_id": id}, [{"type": "user", "uuid": uuid}])
        sidechain = {"type": "user", "uuid": "side", "isSidechain": True}
        await transcripts.append({"project_key": project, "session_id": ids[0].replace("8000", "9000")}, [sidechain])
        listed = await transcripts.list_sessions(project)
        assert len({one["mtime"] for one in listed}) == 6
        summaries = await transcripts.list_session_summaries(project)
        assert [(one["session_id"], one["mtime"]) for one in summaries] == [
            (one["session_id"], one["mtime"]) for one in listed
        ]
        options = ClaudeAgentOptions(cwd=tmp_path, session_store=transcripts, continue_conversation=True)
        for _ in range(2):
            resumed = await materialize_resume_session(options)
            assert resumed is not None and resumed.resume_session_id == ids[2]
            await resumed.cleanup()

    anyio.run(program, backend=event_loop)
