"""LangGraph's pending writes: the values that tasks wrote after a checkpoint, kept against a crash before the next.

Each save of pending writes makes one record with all writes of its checkpoint so far, in the order in which they came.
Records of one checkpoint that follow one another are a series. The first of a series has an id made of the checkpoint's
id and the number of the series; the others are found by the steps after it. A series ends where writes of another
checkpoint come in between, so nearly every checkpoint has one. A write that repeats a part of its checkpoint, as the
first task of a turn does with the input, is stored as a reference to that part.

A process may die right after a task returned. So the save of its writes comes first: new writes are appended, which
needs nothing of the old ones, and everything else that a save reads has been read when the checkpoint was loaded.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Container, Sequence
from functools import partial
from typing import Any, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP

from backtrail.adapters.langgraph.checkpoint_cache import CachedCheckpoint, CachedWrites, CheckpointCache
from backtrail.adapters.langgraph.ids import GraphThread, short_id, writes_id
from backtrail.adapters.langgraph.message_codec import MessageCodec
from backtrail.adapters.langgraph.put_queue import QueuedWrites
from backtrail.adapters.langgraph.write_items import Write, merge
from backtrail.adapters.sync_bridge import maybe_await
from backtrail.adapters.thread_writes import retry_on_conflict
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound
from backtrail.model import Checkpoint
from backtrail.store import Store


class PendingWrites:
    """The pending writes of one store, as one saver sees them."""

    def __init__(self, store: Store | AsyncStore, cache: CheckpointCache, codec: MessageCodec) -> None:
        self._store = store
        self._cache = cache
        self._codec = codec

    async def put(
        self,
        graph_thread: GraphThread,
        checkpoint_id: str,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        """Add the writes of a task."""
        plain = [
            Write(
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, i),
                channel,
                self._codec.encode(value, check_messages=True),
            )
            for i, (channel, value) in enumerate(writes)
        ]
        with_references = self._with_references(graph_thread, checkpoint_id, plain)
        own = QueuedWrites(checkpoint_id, [write.item(packed=self._codec.readable) for write in with_references])
        thread_id = graph_thread.writes
        await self._cache.put_queue.put(thread_id, own, partial(self._add, thread_id, checkpoint_id))

    async def _add(self, thread_id: str, checkpoint_id: str, new: list[list[Any]]) -> None:
        """Save a record with new writes."""
        cached = self._cache.writes(thread_id)

        async def attempt() -> None:
            nonlocal cached
            before, cached = await self._newest(thread_id, checkpoint_id, cached), None  # a second one reads again
            items = merge(before.items, new)
            if items != before.items:
                await self._save(thread_id, before, items)

        await retry_on_conflict(thread_id, attempt)

    async def _save(self, thread_id: str, before: CachedWrites, items: list[Any]) -> None:
        """Save the record that follows `before`; `Conflict` if another writer was faster."""
        thread: Any = self._store.thread(thread_id)
        custom: dict[str, Any] = {"checkpoint": short_id(before.checkpoint), "number": before.number}
        known = len(before.items)
        if before.at_head and items[:known] == before.items:
            saving = thread.update({}, append=("writes", items[known:]), expect=before.head, custom=custom)
        elif before.at_head:
            saving = thread.save({"writes": items}, expect=before.head, custom=custom)
        else:
            saving = self._begin_series(thread, before, items, custom)
        saved = await maybe_await(saving)
        if saved.custom != custom:
            raise Conflict(thread_id)
        self._cache.put(thread_id, CachedWrites(before.checkpoint, custom["number"], items, saved.id, at_head=True))

    def _begin_series(self, thread: Any, before: CachedWrites, items: list[Any], custom: dict[str, Any]) -> Any:
        """Save the first record of a series. Its list is a new one: the list at the head is another checkpoint's."""
        custom["number"] += 1
        # Tasks that write at once choose the same id, and the store keeps the first: this value identifies its writer.
        # It is no secret, and a call of the system would let other threads run before the writes are stored.
        custom["by"] = random.randbytes(6)  # noqa: S311
        id = writes_id(before.checkpoint, custom["number"])
        return thread.update({}, remove=["writes"], append=("writes", items), expect=before.head, id=id, custom=custom)

    async def detach(self, graph_thread: GraphThread, checkpoint: CachedCheckpoint) -> None:
        """Store the values of a checkpoint's writes that are references to it, before it is replaced."""

        async def attempt() -> None:
            before = await self._newest(graph_thread.writes, checkpoint.id, None)
            items = [self._resolved(item, checkpoint) for item in before.items]
            if items != before.items:
                await self._save(graph_thread.writes, before, items)

        await retry_on_conflict(graph_thread.writes, attempt)

    def _resolved(self, item: list[Any], checkpoint: CachedCheckpoint) -> list[Any]:
        write = Write.from_item(item)
        return write.resolved(checkpoint).item(packed=self._codec.readable) if write.is_reference else item

    async def get(
        self,
        graph_thread: GraphThread,
        checkpoint: CachedCheckpoint,
        *,
        only: Container[str] | None = None,
        cache: bool = False,
    ) -> list[tuple[str, str, Any]]:
        """The (task id, channel, value) of each write, in LangGraph's order, or of those to channels in `only`.

        `cache`: more are likely to follow.
        """
        newest = await self._newest(graph_thread.writes, checkpoint.id, None)
        if cache:  # a run that continues here saves its first writes without a read
            self._cache.put(graph_thread.writes, newest)
        writes = sorted(map(Write.from_item, newest.items), key=lambda write: write.order)
        return [
            (write.task, write.channel, self._codec.decode(write.resolved(checkpoint).value))
            for write in writes
            if only is None or write.channel in only
        ]

    async def _newest(self, thread_id: str, checkpoint_id: str, cached: CachedWrites | None) -> CachedWrites:
        """The newest record of a checkpoint's writes. `cached` gives the head of the thread; None reads it."""
        if cached is not None and cached.checkpoint == checkpoint_id:
            return cached
        thread: Any = self._store.thread(thread_id)
        if cached is None:
            head = await maybe_await(thread.head)
            if head is None:
                return CachedWrites(checkpoint_id, 0, [], None, at_head=False)
            cached = self._cache.writes(thread_id)
            if cached is not None and cached.head == head.id and cached.checkpoint == checkpoint_id:
                return cached
            if head.custom.get("checkpoint") == short_id(
                checkpoint_id
            ):  # nearly always: a graph writes for one at a time
                items = (await maybe_await(thread.load(at=head.id)))["writes"]
                return CachedWrites(checkpoint_id, head.custom["number"], items, head.id, at_head=True)
            head_id = head.id
        else:
            head_id = cached.head
        number, items = await self._find(thread, checkpoint_id)
        return CachedWrites(checkpoint_id, number, items, head_id, at_head=False)

    async def _find(self, thread: Any, checkpoint_id: str) -> tuple[int, list[Any]]:
        """The number of a checkpoint's last series, and the items of its last record."""
        first = await _last(lambda number: _get(thread, writes_id(checkpoint_id, number)))
        if first is None:
            return 0, []
        series = {"checkpoint": short_id(checkpoint_id), "number": first.custom["number"]}

        async def after(steps: int) -> Checkpoint | None:
            record = await _get(thread, first.step + steps)
            return record if record is not None and series.items() <= record.custom.items() else None

        if await after(0) == first:
            last = await _last(after) or first
        else:  # on an abandoned branch, whose steps have no names
            last = max(await maybe_await(thread.find(custom=series)), key=lambda record: record.step)
        return series["number"], (await maybe_await(thread.load(at=last.id)))["writes"]

    def _with_references(self, graph_thread: GraphThread, checkpoint_id: str, writes: list[Write]) -> list[Write]:
        """The same writes, with references to the parts of the checkpoint that hold their values."""
        for thread in (graph_thread.checkpoints, saving_key(graph_thread)):
            checkpoint = self._cache.checkpoint(thread, checkpoint_id)
            if checkpoint is not None:
                return [write.with_reference(checkpoint) for write in writes]
        return writes


async def _get(thread: Any, at: str | int) -> Checkpoint | None:
    try:
        return cast("Checkpoint", await maybe_await(thread.get(at)))
    except NotFound:
        return None


async def _last(get: Callable[[int], Awaitable[Checkpoint | None]]) -> Checkpoint | None:
    """The last one of `get(1)`, `get(2)`, … before there are no more: double until one is missing, then bisect."""
    last, low, high = None, 0, 1
    while (found := await get(high)) is not None:
        last, low, high = found, high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        found = await get(middle)
        if found is None:
            high = middle
        else:
            last, low = found, middle
    return last


def saving_key(graph_thread: GraphThread) -> str:
    """The cache key of a checkpoint that is being saved: its writes may come before it is stored."""
    return f"{graph_thread.checkpoints}//saving"
