"""LangGraph's checkpoints and pending writes as backtrail keeps them: saving, finding, and handing them back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from backtrail.adapters.ids import escape
from backtrail.adapters.langgraph.cache import CheckpointCache, PendingWrites, Remembered
from backtrail.adapters.langgraph.compression import pack
from backtrail.adapters.langgraph.delta import CheckpointDelta, plan, recognise, refer, remember, resolve
from backtrail.adapters.langgraph.ids import (
    GraphThread,
    config_of,
    graph_id,
    key_of,
    place_in,
    place_of,
    writes_key,
)
from backtrail.adapters.langgraph.message_codec import MARK, MessageCodec
from backtrail.adapters.sync_bridge import settle
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, EncodeError, NotFound
from backtrail.model import Checkpoint
from backtrail.store import Store

_ATTEMPTS = 256  # parallel tasks of one step write at once; each round at least one of them gets through


class Checkpoints:
    """The checkpoints of one store, as one saver sees them."""

    def __init__(self, store: Store | AsyncStore, memory: CheckpointCache, serde: SerializerProtocol) -> None:
        self.store = store
        self._memory = memory
        self._plain = MessageCodec(serde, trusted=memory.trusted)

    # -- saving -------------------------------------------------------------------------------------------------------

    async def put(
        self, config: RunnableConfig, checkpoint: GraphCheckpoint, metadata: CheckpointMetadata, new: ChannelVersions
    ) -> RunnableConfig:
        place, parent = place_in(config), config["configurable"].get("checkpoint_id")
        base = await self._base(place, parent)
        said = dict(get_serializable_checkpoint_metadata(config, metadata))
        try:
            await self._plan_and_save(place, base, parent, checkpoint, said, new)
        except (Conflict, NotFound):
            if base is None:
                raise
            self._memory.put(place.name, None)  # what was remembered has been deleted meanwhile
            base = await self._base(place, parent)
            await self._plan_and_save(place, base, parent, checkpoint, said, new)
        return config_of(place, checkpoint["id"])

    async def _plan_and_save(
        self,
        place: GraphThread,
        base: Remembered | None,
        parent: str | None,
        checkpoint: GraphCheckpoint,
        said: dict[str, Any],
        new: ChannelVersions,
    ) -> None:
        before = base or Remembered("", {}, {})
        try:
            change = plan(self._plain, before, checkpoint, new, careful=False)
            await self._save(place, base, parent, said, change)
        except EncodeError:  # something inside a message that only LangGraph's serializer can encode
            change = plan(self._plain, before, checkpoint, new, careful=True)
            await self._save(place, base, parent, said, change)

    async def _save(
        self,
        place: GraphThread,
        base: Remembered | None,
        parent: str | None,
        said: dict[str, Any],
        change: CheckpointDelta,
    ) -> None:
        id = change.made.id
        self._memory.put(f"{place.name}//coming", change.made)
        facts: Any = {"id": key_of(id), "custom": self._custom(said, id, parent, base)}
        thread: Any = self.store.thread(place.name)
        after = None if base is not None and id > base.id else await settle(thread.head)
        if base is not None:
            await settle(
                thread.update(change.set, remove=change.remove, append=change.longer, parent=key_of(base.id), **facts)
            )
        else:
            await settle(thread.save(change.set, **facts))
        if after is not None and graph_id(after) > id:
            await settle(thread.rewind(after.id))  # it came late: the newest stays the newest
        else:
            self._memory.put(place.name, change.made)

    def _custom(self, said: dict[str, Any], id: str, parent: str | None, base: Remembered | None) -> dict[str, Any]:
        mark: dict[str, Any] = {} if key_of(id) == id else {"id": id}
        if base is None or key_of(base.id) != base.id:  # else backtrail's own parent says the same
            mark["parent"] = parent
        plain = self._plain.channel(said)
        if self._plain.readable and MARK not in said:
            return {**plain, MARK: mark}
        return {MARK: {**mark, "metadata": plain}}

    async def _base(self, place: GraphThread, parent: str | None) -> Remembered | None:
        """The checkpoint that a new one follows; None if there is no such checkpoint."""
        if parent is None:
            return None
        known = self._memory.get(place.name)
        if isinstance(known, Remembered) and known.id == parent:
            return known
        try:
            return remember(parent, await settle(self.store.thread(place.name).load(at=key_of(parent))))
        except NotFound:
            return None

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        place, id = place_in(config), str(config["configurable"]["checkpoint_id"])
        plain = self._plain
        made = [
            [task_id, task_path, WRITES_IDX_MAP.get(channel, i), channel, plain.channel(value, careful=True)]
            for i, (channel, value) in enumerate(writes)
        ]
        known = self._memory.get(place.writes)
        # Several tasks may want to write the same record at once: this tells whose it became.
        mine = os.urandom(6)
        for _ in range(_ATTEMPTS):
            before = await self._pending(place, id, known)
            items = _merge(before.items, self._refer(place, id, made))
            if items == before.items:
                return
            number = before.number + 1
            facts: Any = {"id": writes_key(id, number), "custom": {"checkpoint": id, "by": mine}}
            thread: Any = self.store.thread(place.writes)
            try:
                saved = await settle(thread.save({"writes": items}, expect=before.head, **facts))
            except Conflict:
                known = None
                continue
            if saved.custom["by"] == mine:
                self._memory.put(place.writes, PendingWrites(id, number, items, saved.id))
                return
            known = None
        raise Conflict(place.writes)

    def _refer(self, place: GraphThread, id: str, made: list[list[Any]]) -> list[list[Any]]:
        """The same writes, with references into their checkpoint where that holds the values already."""
        for name in (place.name, f"{place.name}//coming"):
            known = self._memory.get(name)
            if isinstance(known, Remembered) and known.id == id:
                return [[*item[:4], refer(item[4], item[3], known)] for item in made]
        return [[*item[:4], pack(item[4])] for item in made]

    async def _pending(self, place: GraphThread, id: str, known: PendingWrites | None) -> PendingWrites:
        """The pending writes of a checkpoint, and where their thread stands."""
        if known is not None and known.checkpoint == id:
            return known
        thread: Any = self.store.thread(place.writes)
        if known is None:
            newest = await settle(thread.head)
            if newest is None:
                return PendingWrites(id, 0, [], None)
            known = self._memory.get(place.writes)
            if known is not None and known.head == newest.id and known.checkpoint == id:
                return known
            head = newest.id
        else:
            head = known.head
        # Numbers grow by one: leap ahead until one is missing, then close in.
        low, high, items = 0, 1, []
        while True:
            try:
                items = (await settle(thread.load(at=writes_key(id, high))))["writes"]
            except NotFound:
                break
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            try:
                items, low = (await settle(thread.load(at=writes_key(id, middle))))["writes"], middle
            except NotFound:
                high = middle
        return PendingWrites(id, low, items, head)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        place, id = place_in(config), config["configurable"].get("checkpoint_id")
        thread: Any = self.store.thread(place.name)
        if id is not None:
            try:
                found = await settle(thread.get(key_of(str(id))))
            except NotFound:
                return None
        else:
            found = await settle(thread.head)
            if found is not None and MARK not in found.custom:  # saved by other means than LangGraph
                ours = [c for c in await settle(thread.history(newest_first=True)) if MARK in c.custom]
                found = ours[0] if ours else None
        if found is None or MARK not in found.custom:
            return None
        return await self.whole(place, found, fresh=True)

    async def whole(self, place: GraphThread, found: Checkpoint, *, fresh: bool = False) -> CheckpointTuple:
        plain, id = self._plain, graph_id(found)
        known = self._memory.get(place.name)
        if not isinstance(known, Remembered) or known.id != id:
            known = remember(id, await settle(self.store.thread(place.name).load(at=found.id)))
        values = {channel: plain.value(value) for channel, value in known.plain.items()}
        if fresh and plain.readable:
            known = recognise(known, values, trusted=plain.trusted)
            self._memory.put(place.name, known)
        values |= {channel: talk.copies() for channel, talk in known.talks.items()}
        checkpoint = cast("GraphCheckpoint", {**plain.value(known.book), "id": id, "channel_values": values})
        parent = found.custom[MARK].get("parent", found.parent_id)
        pending = await self._pending(place, id, None)
        return CheckpointTuple(
            config_of(place, id),
            checkpoint,
            cast("CheckpointMetadata", self.metadata(found)),
            config_of(place, parent) if parent is not None else None,
            [(task, channel, plain.value(resolve(value, known))) for task, _, _, channel, value in pending.items],
        )

    def metadata(self, found: Checkpoint) -> dict[str, Any]:
        """LangGraph's metadata of a checkpoint."""
        said = {key: value for key, value in found.custom.items() if key != MARK}
        return cast("dict[str, Any]", self._plain.value(found.custom[MARK].get("metadata", said)))

    async def select(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> list[tuple[GraphThread, Checkpoint]]:
        """The checkpoints of a listing, newest first, by their metadata alone."""
        conf = config["configurable"] if config is not None else {}
        bound = before["configurable"].get("checkpoint_id") if before is not None else None
        only = conf.get("checkpoint_id")
        chosen: list[tuple[GraphThread, Checkpoint]] = []
        for place in await self.places(conf.get("thread_id"), conf.get("checkpoint_ns")):
            for one in await self.history(place):
                if (bound is not None and graph_id(one) >= bound) or only not in (None, graph_id(one)):
                    continue
                said = self.metadata(one) if wanted else {}
                if all(key in said and _same(said[key], value) for key, value in (wanted or {}).items()):
                    chosen.append((place, one))
        chosen.sort(key=lambda pair: graph_id(pair[1]), reverse=True)
        return chosen if limit is None else chosen[: max(limit, 0)]

    def forget(self, name: str) -> None:
        """Drop what is remembered of a backtrail thread."""
        self._memory.put(name, None)

    async def history(self, place: GraphThread) -> list[Checkpoint]:
        """All checkpoints of a namespace that LangGraph wrote, abandoned branches included."""
        history = await settle(self.store.thread(place.name).history(all=True))
        return [checkpoint for checkpoint in history if MARK in checkpoint.custom]

    async def places(self, thread_id: Any = None, ns: str | None = None) -> list[GraphThread]:
        """The namespaces of one thread, or of all, that have checkpoints."""
        if thread_id is not None and ns is not None:
            return [GraphThread(str(thread_id), ns)]
        prefix = "" if thread_id is None else escape(str(thread_id))
        places = [place_of(info.id) for info in await settle(self.store.threads(prefix=prefix))]
        return [p for p in places if p is not None and (thread_id is None or p.thread_id == str(thread_id))]


def _merge(known: list[Any], made: list[list[Any]]) -> list[Any]:
    """Known writes and new ones, in LangGraph's order. A special write replaces, of any other the first one counts."""
    merged = {(item[0], item[2]): item for item in known}
    for item in made:
        if item[2] < 0:
            merged[item[0], item[2]] = item
        else:
            merged.setdefault((item[0], item[2]), item)
    return sorted(merged.values(), key=lambda item: (item[1], item[0], item[2]))


def _same(said: Any, wanted: Any) -> bool:
    """Equal, and of one type where `==` would mix up True and 1."""
    return isinstance(said, bool) == isinstance(wanted, bool) and bool(said == wanted)
