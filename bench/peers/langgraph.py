"""LangGraph's checkpointers, called as its runtime calls them in a graph of one node.

A step is `put_writes` (what the node returned, kept against a crash before the step ends) and `put` (the checkpoint,
made beforehand, outside the clock). With DeltaChannel the checkpoint leaves the messages out; each hundredth update
carries them all, the channel's default. `SqlitePut` is spared the `put_writes`: somebody who uses the saver by hand.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, cast

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.measure import Blocking, Contender, Job
from bench.peers.floor import SYNCHRONOUS

_FIRST = "00000000000000000000000000000001.0.5"


class Put(NamedTuple):
    """The arguments of one `put`, and the writes that precede it with DeltaChannel."""

    config: Any
    checkpoint: Checkpoint
    metadata: Any
    versions: dict[str, str | int | float]
    writes: list[tuple[str, Any]]


class Thread:
    """What LangGraph's runtime carries from step to step for one thread."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str) -> None:
        self._saver = saver
        self.config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self._version: str = _FIRST

    def put(self, job: Job) -> Put:
        self._version = self._saver.get_next_version(self._version, None)
        versions: dict[str, str | int | float] = dict.fromkeys(job.state, self._version)
        checkpoint: dict[str, Any] = {
            "v": 4,
            "ts": datetime.now(UTC).isoformat(),
            "id": str(uuid6(clock_seq=job.step)),
            "channel_values": dict(job.state),
            "channel_versions": versions,
            "versions_seen": {"__input__": {}, "agent": {"branch:to:agent": self._version}},
            "updated_channels": sorted(job.state),
        }
        metadata = {"source": "loop", "step": job.step, "parents": {}}
        writes = [("messages", job.new), ("iteration", job.step)]
        return Put(self.config, cast(Checkpoint, checkpoint), metadata, versions, writes)

    def delta(self, job: Job, frequency: int) -> Put:
        put = self.put(job)
        values, since = put.checkpoint["channel_values"], job.step % frequency
        if since == 0:
            values["messages"] = _DeltaSnapshot(values["messages"])
        else:
            del values["messages"]
            put.metadata["counters_since_delta_snapshot"] = {"messages": (since, since)}
        return put


class _Saver(Blocking):
    """A blocking saver behind `prepare` and `save`."""

    saver: BaseCheckpointSaver[Any]

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}

    def thread(self, name: str) -> Thread:
        if name not in self.threads:
            self.threads[name] = thread = Thread(self.saver, name)
            found = self.saver.get_tuple(thread.config)
            if found is not None:
                thread.config = found.config
        return self.threads[name]

    def prepare(self, job: Job) -> Any:
        thread = self.thread(job.thread)
        return thread, thread.put(job)

    def save(self, prepared: Any) -> None:
        thread, put = prepared
        if "checkpoint_id" in put.config["configurable"]:
            self.saver.put_writes(put.config, put.writes, put.checkpoint["id"])
        thread.config = self.saver.put(put.config, put.checkpoint, put.metadata, put.versions)

    def load(self, thread: str) -> Any:
        found = self.saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        assert found is not None
        return found.checkpoint["channel_values"]


class Sqlite(_Saver):
    """SqliteSaver: every step writes the whole state."""

    name = "LangGraph SqliteSaver"

    def __init__(self, directory: Path, durability: str = "full", timeout: float = 60) -> None:
        super().__init__()
        self.db = sqlite3.connect(directory / "langgraph.db", check_same_thread=False, timeout=timeout)
        self.db.execute(SYNCHRONOUS[durability])
        self.saver = SqliteSaver(self.db)
        self.saver.setup()

    def close(self) -> None:
        self.db.close()


class SqlitePut(Sqlite):
    """SqliteSaver without a graph around it."""

    name = "LangGraph SqliteSaver, put alone"

    def save(self, prepared: Any) -> None:
        thread, put = prepared
        thread.config = self.saver.put(put.config, put.checkpoint, put.metadata, put.versions)


class Delta(Sqlite):
    """SqliteSaver with the beta DeltaChannel: the strongest neighbour."""

    name = "LangGraph SqliteSaver + DeltaChannel"
    frequency = 100  #: the channel's default

    def prepare(self, job: Job) -> Any:
        thread = self.thread(job.thread)
        return thread, thread.delta(job, self.frequency)

    def load(self, thread: str) -> Any:
        found = self.saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        assert found is not None
        values = dict(found.checkpoint["channel_values"])
        if "messages" not in values:
            history = self.saver.get_delta_channel_history(config=found.config, channels=["messages"])["messages"]
            seed: Any = history.get("seed", [])
            messages = list(seed.value if isinstance(seed, _DeltaSnapshot) else seed)
            for _, _, new in history["writes"]:
                messages.extend(new)
            values["messages"] = messages
        elif isinstance(values["messages"], _DeltaSnapshot):
            values["messages"] = values["messages"].value
        return values


class Memory(_Saver):
    """InMemorySaver: no disk at all, a fresh copy of the list per step."""

    name = "LangGraph InMemorySaver (no disk)"

    def __init__(self) -> None:
        super().__init__()
        self.saver = self._memory = InMemorySaver()

    def held(self) -> int:
        """Bytes of all blobs it keeps."""
        return sum(len(data) for _, data in self._memory.blobs.values())

    def close(self) -> None:
        self._memory.blobs.clear()
        self._memory.storage.clear()
        self._memory.writes.clear()


class AsyncSqlite(Contender):
    """AsyncSqliteSaver, awaited inside one running loop."""

    name = "LangGraph AsyncSqliteSaver"

    def __init__(self, directory: Path, durability: str = "full") -> None:
        self._loop = asyncio.new_event_loop()
        self._threads: dict[str, Thread] = {}
        self._saver = self._loop.run_until_complete(self._open(directory / "langgraph.db", durability))

    @staticmethod
    async def _open(path: Path, durability: str) -> AsyncSqliteSaver:
        db = await aiosqlite.connect(path)
        await db.execute(SYNCHRONOUS[durability])
        saver = AsyncSqliteSaver(db)
        await saver.setup()
        return saver

    async def _save(self, job: Job) -> float:
        thread = self._threads.get(job.thread)
        if thread is None:
            thread = self._threads[job.thread] = Thread(self._saver, job.thread)
        put = thread.put(job)
        start = perf_counter()
        if "checkpoint_id" in put.config["configurable"]:
            await self._saver.aput_writes(put.config, put.writes, put.checkpoint["id"])
        thread.config = await self._saver.aput(put.config, put.checkpoint, put.metadata, put.versions)
        return perf_counter() - start

    def times(self, jobs: Iterable[Job]) -> list[float]:
        async def run() -> list[float]:
            return [await self._save(job) for job in jobs]

        return self._loop.run_until_complete(run())

    def together(self, writers: list[list[Job]]) -> list[list[float]]:
        """Each list of jobs in a task of its own, all at once."""

        async def run(jobs: list[Job]) -> list[float]:
            return [await self._save(job) for job in jobs]

        async def gather() -> list[list[float]]:
            return list(await asyncio.gather(*(run(jobs) for jobs in writers)))

        return self._loop.run_until_complete(gather())

    def close(self) -> None:
        self._loop.run_until_complete(self._saver.conn.close())
        self._loop.close()
