"""LangGraph: `BacktrailSaver` is a `BaseCheckpointSaver`, for sync and async graphs.

Each LangGraph checkpoint is one backtrail checkpoint of the same id. Its channels are the top-level keys of the state,
so a `messages` channel is a backtrail list: LangGraph passes the whole list at each step, backtrail stores the new
messages. LangGraph's own bookkeeping (versions, timestamps) is under one reserved key; its metadata is the checkpoint's
`custom`. Pending writes have a thread of their own, with one record per call of `put_writes`. A run that starts from an
older checkpoint begins a branch there, as LangGraph intends.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from backtrail.adapters.optional_import import require_extra
from backtrail.adapters.sync_bridge import SyncBridge
from backtrail.aio import AsyncStore
from backtrail.errors import InvalidInput
from backtrail.store import Store

with require_extra("langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from backtrail.adapters.langgraph.checkpoint_cache import CheckpointCache
    from backtrail.adapters.langgraph.checkpoints import Checkpoints
    from backtrail.adapters.langgraph.durable import arun_graph, durable_tool, run_graph
    from backtrail.adapters.langgraph.maintenance import Maintenance

__all__ = ["BacktrailSaver", "arun_graph", "durable_tool", "run_graph"]


class BacktrailSaver(BaseCheckpointSaver[str]):
    """A checkpointer on a backtrail store.

        graph = builder.compile(checkpointer=BacktrailSaver(backtrail.open("agents.db")))

    Which classes are built from stored data is LangGraph's own policy, with its switches: all of them, unless
    `LANGGRAPH_STRICT_MSGPACK` is set or you pass a `serde` that allows fewer. With `types=[MyState]` only those and the
    ones on LangGraph's list of safe classes are, and `types=[]` allows no more than that list. With `detect="identity"`
    you promise never to change a message of the state in place; then a turn costs the same however long the
    conversation is.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        serde: SerializerProtocol | None = None,
        types: Iterable[type] | None = None,
        detect: Literal["exact", "identity"] = "exact",
    ) -> None:
        if serde is not None and types is not None:
            raise InvalidInput("serde= and types= cannot be given together: allow the types in your serializer")
        if detect not in ("exact", "identity"):
            raise InvalidInput(f"detect={detect!r} is unknown: use 'exact' or 'identity'")
        if types is not None:
            serde = JsonPlusSerializer(allowed_msgpack_modules=tuple(types) or None)
        super().__init__(serde=serde)
        self.store = store
        self._bridge = SyncBridge(store)
        make_lock = threading.Lock if isinstance(store, Store) else asyncio.Lock
        self._cache = CheckpointCache(immutable=detect == "identity", make_lock=make_lock)

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """One more than `current`, with random digits, so that two branches never give one version to two values."""
        number = 0
        if isinstance(current, str):  # ours are 14 hexadecimal digits; other savers write a decimal number and a dot
            digits, dot, _ = current.partition(".")
            number = int(digits) if dot else int(current[:8], 16)
        elif current is not None:
            number = int(current)
        return f"{number + 1:08x}{random.getrandbits(24):06x}"

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.store, self._cache, self.serde)  # LangGraph may replace `serde` at any time

    @property
    def _maintenance(self) -> Maintenance:
        return Maintenance(self._checkpoints)

    # -- LangGraph's interface, sync and async ------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the thread's newest."""
        return self._bridge.run_sync(self._checkpoints.get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the thread's newest."""
        return await self._bridge.run_async(self._checkpoints.get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first. `filter`: only those whose metadata has these values."""
        selected = self._bridge.run_sync(self._checkpoints.select(config, filter, before, limit))
        for graph_thread, checkpoint in selected:
            yield self._bridge.run_sync(self._checkpoints.load(graph_thread, checkpoint))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first. `filter`: only those whose metadata has these values."""
        selected = await self._bridge.run_async(self._checkpoints.select(config, filter, before, limit))
        for graph_thread, checkpoint in selected:
            yield await self._bridge.run_async(self._checkpoints.load(graph_thread, checkpoint))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint that follows the one in `config`."""
        return self._bridge.run_sync(self._checkpoints.put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint that follows the one in `config`."""
        return await self._bridge.run_async(self._checkpoints.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save the writes of a task after the checkpoint in `config`, which may be saved later."""
        self._bridge.run_sync(self._checkpoints.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save the writes of a task after the checkpoint in `config`, which may be saved later."""
        await self._bridge.run_async(self._checkpoints.put_writes(config, writes, task_id, task_path))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the values of delta channels at the checkpoint in `config` are rebuilt from."""
        return self._bridge.run_sync(self._checkpoints.delta_history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the values of delta channels at the checkpoint in `config` are rebuilt from."""
        return await self._bridge.run_async(self._checkpoints.delta_history(config, channels))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces."""
        self._bridge.run_sync(self._maintenance.delete_thread(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces."""
        await self._bridge.run_async(self._maintenance.delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs, and their writes."""
        self._bridge.run_sync(self._maintenance.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs, and their writes."""
        await self._bridge.run_async(self._maintenance.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces and branches; what both have is stored once."""
        self._bridge.run_sync(self._maintenance.copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces and branches; what both have is stored once."""
        await self._bridge.run_async(self._maintenance.copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints but the newest of each namespace (`keep_latest`), or all (`delete`). Namespaces of
        subgraph calls that began at a deleted checkpoint are deleted with it."""
        self._bridge.run_sync(self._maintenance.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints but the newest of each namespace (`keep_latest`), or all (`delete`). Namespaces of
        subgraph calls that began at a deleted checkpoint are deleted with it."""
        await self._bridge.run_async(self._maintenance.prune(thread_ids, strategy))
