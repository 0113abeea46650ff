"""A pytest plugin: the Claude Agent SDK's own tests get backtrail's session store for the SDK's in-memory one."""

from __future__ import annotations

from typing import Any

import anyio
import bound_stores
import claude_agent_sdk
import pytest
from bound_stores import finish
from claude_agent_sdk._internal import session_store

from backtrail.adapters.claude import BacktrailSessionStore
from backtrail.adapters.thread_ids import split_parts


class BoundSessionStore(BacktrailSessionStore):
    """backtrail's store with the constructor and the helpers for tests that the SDK's in-memory store has."""

    def __init__(self) -> None:
        super().__init__(bound_stores.new_store())
        self._mtimes: dict[str, int] = {}  # the SDK's tests set times of sessions here

    async def list_sessions(self, project_key: str) -> list[Any]:
        sessions = await super().list_sessions(project_key)
        for session in sessions:
            session["mtime"] = self._mtimes.get(f"{project_key}/{session['session_id']}", session["mtime"])
        return sessions

    def get_entries(self, key: Any) -> list[Any]:
        session = self.session(key)
        return finish(session.messages()) if finish(session.thread.exists()) else []

    @property
    def size(self) -> int:
        return sum(1 for info in finish(self.store.threads()) if len(split_parts(info.id)) == 3)

    def clear(self) -> None:
        for info in finish(self.store.threads()):
            finish(self.store.thread(info.id).delete())


async def sleep(seconds: float, _sleep: Any = anyio.sleep) -> None:
    """Some tests let the loop turn a few times and expect the store to have answered: give a real one the time."""
    await _sleep(seconds or 0.02)


def pytest_configure() -> None:
    anyio.sleep = sleep
    claude_agent_sdk.InMemorySessionStore = BoundSessionStore
    session_store.InMemorySessionStore = BoundSessionStore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An AsyncStore is for asyncio only."""
    if bound_stores.API == "async":
        items[:] = [item for item in items if "trio" not in item.nodeid]


def pytest_runtest_teardown() -> None:
    bound_stores.end_test()
