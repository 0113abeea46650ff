"""LangGraph's checkpointers, called as its runtime calls them in a graph of one node.

A step is `put_writes` (the node's result, kept against a crash before the step ends) and `put` (the checkpoint, which
is made before and not timed). With DeltaChannel the checkpoint leaves the messages out; by default each hundredth
update contains them all. `LangGraphSqlitePutOnly` leaves out `put_writes`, as a caller without a graph does.
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

from bench.contenders.floor import SYNCHRONOUS
from bench.measure import Contender, Job, SyncContender

_FIRST = "00000000000000000000000000000001.0.5"


class PutArguments(NamedTuple):
    """The arguments of one `put`, and the writes that precede it with DeltaChannel."""

    config: Any
    checkpoint: Checkpoint
    metadata: Any
    versions: dict[str, str | int | float]
    writes: list[tuple[str, Any]]


class GraphThread:
    """The config and version that LangGraph's runtime carries from step to step of a thread."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str) -> None:
        self._saver = saver
        self.config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self._version: str = _FIRST

    def put(self, job: Job) -> PutArguments:
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
        return PutArguments(self.config, cast(Checkpoint, checkpoint), metadata, versions, writes)

    def delta(self, job: Job, frequency: int) -> PutArguments:
        put = self.put(job)
        values, since = put.checkpoint["channel_values"], job.step % frequency
        if since == 0:
            values["messages"] = _DeltaSnapshot(values["messages"])
        else:
            del values["messages"]
            put.metadata["counters_since_delta_snapshot"] = {"messages": (since, since)}
        return put


class SyncSaver(SyncContender):
    """A sync saver behind `prepare` and `save`."""

    saver: BaseCheckpointSaver[Any]

    def __init__(self) -> None:
        self.threads: dict[str, GraphThread] = {}

    def thread(self, name: str) -> GraphThread:
        if name not in self.threads:
            self.threads[name] = thread = GraphThread(self.saver, name)
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


class LangGraphSqlite(SyncSaver):
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


class LangGraphSqlitePutOnly(LangGraphSqlite):
    """SqliteSaver called without a graph: no pending writes."""

    name = "LangGraph SqliteSaver, put alone"

    def save(self, prepared: Any) -> None:
        thread, put = prepared
        thread.config = self.saver.put(put.config, put.checkpoint, put.metadata, put.versions)


class LangGraphSqliteDelta(LangGraphSqlite):
    """SqliteSaver with the beta DeltaChannel: the strongest competitor."""

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


class LangGraphMemory(SyncSaver):
    """InMemorySaver: no disk at all, a fresh copy of the list per step."""

    name = "LangGraph InMemorySaver (no disk)"

    def __init__(self) -> None:
        super().__init__()
        self.saver = self._memory = InMemorySaver()

    def held_bytes(self) -> int:
        """Bytes of all blobs that it holds."""
        return sum(len(data) for _, data in self._memory.blobs.values())

    def close(self) -> None:
        self._memory.blobs.clear()
        self._memory.storage.clear()
        self._memory.writes.clear()


class LangGraphAsyncSqlite(Contender):
    """AsyncSqliteSaver, awaited inside one running loop."""

    name = "LangGraph AsyncSqliteSaver"

    def __init__(self, directory: Path, durability: str = "full") -> None:
        self._loop = asyncio.new_event_loop()
        self._threads: dict[str, GraphThread] = {}
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
            thread = self._threads[job.thread] = GraphThread(self._saver, job.thread)
        put = thread.put(job)
        start = perf_counter()
        if "checkpoint_id" in put.config["configurable"]:
            await self._saver.aput_writes(put.config, put.writes, put.checkpoint["id"])
        thread.config = await self._saver.aput(put.config, put.checkpoint, put.metadata, put.versions)
        return perf_counter() - start

    async def _save_all(self, jobs: Iterable[Job]) -> list[float]:
        return [await self._save(job) for job in jobs]

    def times(self, jobs: Iterable[Job]) -> list[float]:
        return self._loop.run_until_complete(self._save_all(jobs))

    def times_concurrent(self, writers: list[list[Job]]) -> list[list[float]]:
        """Do each list of jobs in a task of its own, all at once."""

        async def gather() -> list[list[float]]:
            return list(await asyncio.gather(*(self._save_all(jobs) for jobs in writers)))

        return self._loop.run_until_complete(gather())

    def close(self) -> None:
        self._loop.run_until_complete(self._saver.conn.close())
        self._loop.close()
