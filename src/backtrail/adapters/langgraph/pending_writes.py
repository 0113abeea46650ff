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
from backtrail.adapters.langgraph.compression import compress, decompress
from backtrail.adapters.langgraph.ids import GraphThread, writes_id
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY, MessageCodec
from backtrail.adapters.langgraph.put_queue import QueuedWrites
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
        encoded = [
            [
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, i),
                channel,
                self._codec.encode(value, check_messages=True),
            ]
            for i, (channel, value) in enumerate(writes)
        ]
        own = QueuedWrites(checkpoint_id, self._with_references(graph_thread, checkpoint_id, encoded))
        thread_id = graph_thread.writes
        await self._cache.put_queue.put(thread_id, own, partial(self._add, thread_id, checkpoint_id))

    async def _add(self, thread_id: str, checkpoint_id: str, new: list[list[Any]]) -> None:
        """Save a record with new writes."""
        cached = self._cache.writes(thread_id)

        async def attempt() -> None:
            nonlocal cached
            before, cached = await self._newest(thread_id, checkpoint_id, cached), None  # a second one reads again
            items = _merge(before.items, new)
            if items != before.items:
                await self._save(thread_id, before, items)

        await retry_on_conflict(thread_id, attempt)

    async def _save(self, thread_id: str, before: CachedWrites, items: list[Any]) -> None:
        """Save the record that follows `before`; `Conflict` if another writer was faster."""
        thread: Any = self._store.thread(thread_id)
        custom: dict[str, Any] = {"checkpoint": before.checkpoint, "number": before.number}
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
            items = [[*item[:4], compress(_resolve(item[4], checkpoint))] for item in before.items]
            if items != before.items:
                await self._save(graph_thread.writes, before, items)

        await retry_on_conflict(graph_thread.writes, attempt)

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
        return [
            (task_id, channel, self._codec.decode(_resolve(value, checkpoint)))
            for task_id, _, _, channel, value in sorted(newest.items, key=_order)
            if only is None or channel in only
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
            if head.custom.get("checkpoint") == checkpoint_id:  # nearly always: a graph writes for one at a time
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
        series = {"checkpoint": checkpoint_id, "number": first.custom["number"]}

        async def after(steps: int) -> Checkpoint | None:
            record = await _get(thread, first.step + steps)
            return record if record is not None and series.items() <= record.custom.items() else None

        if await after(0) == first:
            last = await _last(after) or first
        else:  # on an abandoned branch, whose steps have no names
            last = max(await maybe_await(thread.find(custom=series)), key=lambda record: record.step)
        return series["number"], (await maybe_await(thread.load(at=last.id)))["writes"]

    def _with_references(
        self, graph_thread: GraphThread, checkpoint_id: str, encoded: list[list[Any]]
    ) -> list[list[Any]]:
        """The same writes, with references to the parts of the checkpoint that hold their values."""
        for thread in (graph_thread.checkpoints, saving_key(graph_thread)):
            checkpoint = self._cache.checkpoint(thread, checkpoint_id)
            if checkpoint is not None:
                return [[*item[:4], _refer(item[4], item[3], checkpoint)] for item in encoded]
        return [[*item[:4], compress(item[4])] for item in encoded]


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


def _merge(stored: list[Any], new: list[list[Any]]) -> list[Any]:
    """All writes, new ones last. One with a negative index replaces; of the others the first one counts."""
    merged = {(item[0], item[2]): item for item in stored}
    for item in new:
        if item[2] < 0:
            merged[item[0], item[2]] = item
        else:
            merged.setdefault((item[0], item[2]), item)
    return list(merged.values())


def _order(item: list[Any]) -> tuple[str, str, int]:
    """LangGraph's order of writes: by the path of their task, its id, and their index."""
    return item[1], item[0], item[2]


def _refer(value: Any, key: str, checkpoint: CachedCheckpoint) -> Any:
    """A reference to the part `key` of a channel that holds `value`, or the value itself, compressed.

    Messages get their ids between a graph's input and its channels, so the ids are kept with the reference.
    """
    if type(value) is not list or not all(type(item) is dict for item in value):
        return compress(value)
    ids = [item.get("id") for item in value]
    wanted = [{**item, "id": id} for item, id in zip(value, ids, strict=True)]
    for channel, plain in checkpoint.plain.items():
        part = plain.get(key) if type(plain) is dict else None
        if type(part) is not list or len(part) != len(value) or not all(type(item) is dict for item in part):
            continue
        if _exactly_equal([{**item, "id": id} for item, id in zip(part, ids, strict=True)], wanted):
            return {RESERVED_KEY: {"same": [channel, key], "ids": ids}}
    return compress(value)


def _resolve(value: Any, checkpoint: CachedCheckpoint) -> Any:
    """The inverse of `_refer`."""
    reserved = value.get(RESERVED_KEY) if type(value) is dict else None
    if type(reserved) is not dict or "same" not in reserved:
        return decompress(value)
    channel, key = reserved["same"]
    pairs = zip(checkpoint.plain[channel][key], reserved["ids"], strict=True)
    return [item if id is None else {**item, "id": id} for item, id in pairs]


def _exactly_equal(one: Any, other: Any) -> bool:
    """True if two plain values are equal, types included; the order of keys does not count."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(_exactly_equal(item, other[key]) for key, item in one.items())
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(_exactly_equal, one, other))
    return bool(one == other)
