"""backtrail itself, through its public API only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import backtrail
import backtrail.aio
from bench.measure import Contender, Job, SyncContender
from bench.synthetic_messages import Message


class BacktrailSave(SyncContender):
    """The whole state is passed at each step; changes are found by exact comparison."""

    name = "backtrail save"
    options: ClassVar[dict[str, Any]] = {"compression": None}

    def __init__(self, directory: Path, durability: str = "full") -> None:
        self.store = backtrail.open(str(directory / "backtrail.db"), durability=durability, **self.options)
        self._threads: dict[str, Any] = {}

    def prepare(self, job: Job) -> Any:
        if job.thread not in self._threads:
            self._threads[job.thread] = self.store.thread(job.thread)
        return self._threads[job.thread], job

    def save(self, prepared: Any) -> None:
        thread, job = prepared
        thread.save(job.state)

    def load(self, thread: str) -> Any:
        return self.store.thread(thread).load()

    def close(self) -> None:
        self.store.close()


class BacktrailSaveIdentity(BacktrailSave):
    """The same for callers who never change a saved item in place: changes are found by identity."""

    name = "backtrail save, detect=identity"
    options: ClassVar[dict[str, Any]] = {"compression": None, "detect": "identity"}


class BacktrailSaveZstd(BacktrailSave):
    """The same, compressed."""

    name = "backtrail save, zstd"
    options: ClassVar[dict[str, Any]] = {"compression": "zstd"}


class BacktrailAppend(BacktrailSave):
    """Only the new messages are passed."""

    name = "backtrail append"

    def save(self, prepared: Any) -> None:
        thread, job = prepared
        thread.append("messages", job.new)


class BacktrailAppendZstd(BacktrailAppend):
    """Only the new messages are passed, and compressed."""

    name = "backtrail append, zstd"
    options: ClassVar[dict[str, Any]] = {"compression": "zstd"}


class BacktrailSaveFreshHandle(BacktrailSave):
    """A server of many threads: a fresh thread handle for each save, nothing kept by the caller."""

    name = "backtrail save"

    def prepare(self, job: Job) -> Any:
        return job

    def save(self, prepared: Any) -> None:
        self.store.thread(prepared.thread).save(prepared.state)


class BacktrailChatSession:
    """A session: one message is added, the last few are read."""

    name = "backtrail session"

    def __init__(self, url: str, **options: Any) -> None:
        self.store = backtrail.open(url, **options)
        self._session: Any = self.store.session("chat")

    def add(self, message: Message) -> None:
        self._session.append(message)

    def last(self, count: int) -> list[Message]:
        tail: list[Message] = self._session.messages(last=count)
        return tail

    def time_turns(self, messages: Iterable[Message], last: int) -> list[float]:
        """Add each message and read the last few; the seconds of each turn."""
        taken = []
        for message in messages:
            start = perf_counter()
            self.add(message)
            tail = self.last(last)
            taken.append(perf_counter() - start)
            assert tail[-1] == message
        return taken

    def close(self) -> None:
        self.store.close()


class BacktrailAsyncAppend(Contender):
    """`backtrail.aio`, awaited inside one running loop."""

    name = "backtrail.aio append"

    def __init__(self, directory: Path, durability: str = "full") -> None:
        self._loop = asyncio.new_event_loop()
        self._store = self._loop.run_until_complete(self._open(directory, durability))

    @staticmethod
    async def _open(directory: Path, durability: str) -> Any:
        return await backtrail.aio.open(str(directory / "backtrail.db"), durability=durability, compression=None)

    async def _write(self, jobs: Iterable[Job]) -> list[float]:
        taken, threads = [], dict[str, Any]()
        for job in jobs:
            if job.thread not in threads:
                threads[job.thread] = self._store.thread(job.thread)
            start = perf_counter()
            await threads[job.thread].append("messages", job.new)
            taken.append(perf_counter() - start)
        return taken

    def times(self, jobs: Iterable[Job]) -> list[float]:
        return self._loop.run_until_complete(self._write(jobs))

    def times_concurrent(self, writers: list[list[Job]]) -> list[list[float]]:
        """Do each list of jobs in a task of its own, all at once."""

        async def gather() -> list[list[float]]:
            return list(await asyncio.gather(*(self._write(jobs) for jobs in writers)))

        return self._loop.run_until_complete(gather())

    def close(self) -> None:
        self._loop.run_until_complete(self._store.close())
        self._loop.close()
