"""The OpenAI Agents SDK's SQLiteSession: a row per message, awaited inside one running loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

from agents.memory import SQLiteSession

from bench.contenders.floor import SYNCHRONOUS
from bench.measure import Contender, Job
from bench.synthetic_messages import Message


class _FullSession(SQLiteSession):
    """SQLiteSession opens its connections itself: this hook is where their durability can be set."""

    durability = "full"

    @classmethod
    def _configure_connection(cls, conn: sqlite3.Connection) -> None:
        SQLiteSession._configure_connection(conn)
        conn.execute(SYNCHRONOUS[cls.durability])


class _NormalSession(_FullSession):
    durability = "normal"


class OpenAIAgentsSession(Contender):
    """One session per thread; the new messages of a step are added in one call."""

    name = "OpenAI Agents SQLiteSession"

    def __init__(self, directory: Path, durability: str = "full") -> None:
        self._loop = asyncio.new_event_loop()
        self._path = directory / "sessions.db"
        self._kind = _NormalSession if durability == "normal" else _FullSession
        self._sessions: dict[str, SQLiteSession] = {}

    def _session(self, thread: str) -> SQLiteSession:
        if thread not in self._sessions:
            self._sessions[thread] = self._kind(thread, self._path)
        return self._sessions[thread]

    def times(self, jobs: Iterable[Job]) -> list[float]:
        async def run() -> list[float]:
            taken = []
            for job in jobs:
                session, items = self._session(job.thread), list[Any](job.new)
                start = perf_counter()
                await session.add_items(items)
                taken.append(perf_counter() - start)
            return taken

        return self._loop.run_until_complete(run())

    def time_turns(self, messages: Iterable[Message], last: int) -> list[float]:
        """Add each message and read the last few; the seconds of each turn."""
        session = self._session("chat")

        async def run() -> list[float]:
            taken = []
            for message in messages:
                item: Any = message
                start = perf_counter()
                await session.add_items([item])
                items = await session.get_items(last)
                taken.append(perf_counter() - start)
                assert items[-1] == message
            return taken

        return self._loop.run_until_complete(run())

    def time_read(self, thread: str, last: int | None = None) -> tuple[float, int]:
        """The seconds that reading a conversation (or its end) takes, and the number of items."""

        async def run() -> tuple[float, int]:
            start = perf_counter()
            items = await self._session(thread).get_items(last)
            return perf_counter() - start, len(items)

        return self._loop.run_until_complete(run())

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
