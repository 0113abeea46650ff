"""LangGraph's pending writes: the values that tasks wrote after a checkpoint, kept against a crash before the next.

Each call of `put_writes` saves one record with all writes of its checkpoint so far, in the order in which they came,
under an id made of the checkpoint's and a number that grows by one. A write that repeats a part of its checkpoint, as
the first task of a turn does with the input, is stored as a reference to that part.

A process may die right after a task returned. So the save of its writes comes first: new writes are appended, which
needs nothing of the old ones, and everything else that a save reads has been read when the checkpoint was loaded.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from functools import partial
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from backtrail.adapters.langgraph.checkpoint_cache import CachedCheckpoint, CachedWrites, CheckpointCache
from backtrail.adapters.langgraph.compression import compress, decompress
from backtrail.adapters.langgraph.ids import GraphThread, writes_id
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY, MessageCodec
from backtrail.adapters.sync_bridge import maybe_await
from backtrail.adapters.thread_writes import retry_on_conflict
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound
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
        cached = self._cache.writes(graph_thread.writes)

        async def attempt() -> None:
            nonlocal cached
            before, cached = await self._newest(graph_thread, checkpoint_id, cached), None  # a second one reads again
            items = _merge(before.items, self._with_references(graph_thread, checkpoint_id, encoded))
            if items != before.items:
                await self._save(graph_thread, before, items)

        await retry_on_conflict(graph_thread.writes, attempt)

    async def _save(self, graph_thread: GraphThread, before: CachedWrites, items: list[Any]) -> None:
        """Save the record that follows `before`; `Conflict` if another writer was faster."""
        # Tasks that write at once choose the same record id, and the store keeps the first: this value identifies its
        # writer. It is no secret, and a call of the system would let other threads run before the writes are stored.
        author = random.randbytes(6)  # noqa: S311
        number = before.number + 1
        thread: Any = self._store.thread(graph_thread.writes)
        known = len(before.items)
        if not before.number:  # the list at the head belongs to another checkpoint
            saving = partial(thread.update, {}, remove=["writes"], append=("writes", items))
        elif before.head == writes_id(before.checkpoint, before.number) and items[:known] == before.items:
            saving = partial(thread.update, {}, append=("writes", items[known:]))
        else:
            saving = partial(thread.save, {"writes": items})
        saved = await maybe_await(
            saving(
                expect=before.head,
                id=writes_id(before.checkpoint, number),
                custom={"checkpoint": before.checkpoint, "number": number, "by": author},
            )
        )
        if saved.custom["by"] != author:
            raise Conflict(graph_thread.writes)
        self._cache.put(graph_thread.writes, CachedWrites(before.checkpoint, number, items, saved.id))

    async def detach(self, graph_thread: GraphThread, checkpoint: CachedCheckpoint) -> None:
        """Store the values of a checkpoint's writes that are references to it, before it is replaced."""

        async def attempt() -> None:
            before = await self._newest(graph_thread, checkpoint.id, None)
            items = [[*item[:4], compress(_resolve(item[4], checkpoint))] for item in before.items]
            if items != before.items:
                await self._save(graph_thread, before, items)

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
        known = self._cache.writes(graph_thread.writes)
        newest = await self._newest(graph_thread, checkpoint.id, None)
        if cache:  # a run that continues here saves its first writes without a read
            self._cache.put(graph_thread.writes, newest)
            if newest.head is not None and (known is None or known.head != newest.head):
                await self._look_up(graph_thread, writes_id(checkpoint.id, newest.number + 1))
        return [
            (task_id, channel, self._codec.decode(_resolve(value, checkpoint)))
            for task_id, _, _, channel, value in sorted(newest.items, key=_order)
            if only is None or channel in only
        ]

    async def _newest(self, graph_thread: GraphThread, checkpoint_id: str, cached: CachedWrites | None) -> CachedWrites:
        """The newest record of a checkpoint's writes. `cached` gives the head of the thread; None reads it."""
        if cached is not None and cached.checkpoint == checkpoint_id:
            return cached
        thread: Any = self._store.thread(graph_thread.writes)
        if cached is None:
            newest = await maybe_await(thread.head)
            if newest is None:
                return CachedWrites(checkpoint_id, 0, [], None)
            cached = self._cache.writes(graph_thread.writes)
            if cached is not None and cached.head == newest.id and cached.checkpoint == checkpoint_id:
                return cached
            if newest.custom.get("checkpoint") == checkpoint_id:  # nearly always: a run writes for one at a time
                items = (await maybe_await(thread.load(at=newest.id)))["writes"]
                return CachedWrites(checkpoint_id, newest.custom["number"], items, newest.id)
            head = newest.id
        else:
            head = cached.head
        number, items = await self._find(thread, checkpoint_id)
        return CachedWrites(checkpoint_id, number, items, head)

    async def _look_up(self, graph_thread: GraphThread, id: str) -> None:
        """Look for a record that is hardly ever there: the store remembers that, and need not look when it is saved."""
        try:
            await maybe_await(self._store.thread(graph_thread.writes).get(id))
        except NotFound:
            return

    async def _find(self, thread: Any, checkpoint_id: str) -> tuple[int, list[Any]]:
        """The number of a checkpoint's newest record, and its items. Numbers grow by one: double until a record is
        missing, then bisect."""
        low, high, items = 0, 1, []
        while True:
            try:
                items = (await maybe_await(thread.load(at=writes_id(checkpoint_id, high))))["writes"]
            except NotFound:
                break
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            try:
                items, low = (await maybe_await(thread.load(at=writes_id(checkpoint_id, middle))))["writes"], middle
            except NotFound:
                high = middle
        return low, items

    def _with_references(
        self, graph_thread: GraphThread, checkpoint_id: str, encoded: list[list[Any]]
    ) -> list[list[Any]]:
        """The same writes, with references to the parts of the checkpoint that hold their values."""
        for thread in (graph_thread.checkpoints, saving_key(graph_thread)):
            checkpoint = self._cache.checkpoint(thread, checkpoint_id)
            if checkpoint is not None:
                return [[*item[:4], _refer(item[4], item[3], checkpoint)] for item in encoded]
        return [[*item[:4], compress(item[4])] for item in encoded]


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
