"""LangGraph's checkpoints on backtrail: saving, reading and listing them."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from backtrail.adapters.langgraph.checkpoint_cache import CachedCheckpoint, CheckpointCache
from backtrail.adapters.langgraph.checkpoint_delta import CheckpointDelta, plan_delta
from backtrail.adapters.langgraph.checkpoint_note import metadata_of, new_author, note_of, with_note
from backtrail.adapters.langgraph.ids import GraphThread, backtrail_id, graph_id, standin_id
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY, MessageCodec
from backtrail.adapters.langgraph.pending_writes import PendingWrites, saving_key
from backtrail.adapters.sync_bridge import maybe_await
from backtrail.adapters.thread_ids import escape_part
from backtrail.adapters.thread_writes import delete_if_present
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, EncodeError, NotFound
from backtrail.model import Checkpoint
from backtrail.store import Store


class Checkpoints:
    """The checkpoints of one store, as one saver sees them."""

    def __init__(self, store: Store | AsyncStore, cache: CheckpointCache, serde: SerializerProtocol) -> None:
        self.store = store
        self._cache = cache
        self._codec = MessageCodec(serde, immutable=cache.immutable)
        self._writes = PendingWrites(store, cache, self._codec)

    # -- saving -------------------------------------------------------------------------------------------------------

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        graph_thread, parent = GraphThread.from_config(config), config["configurable"].get("checkpoint_id") or None
        inputs = self._announce(graph_thread, checkpoint, new_versions)
        base = await self._base(graph_thread, parent)
        plain_metadata = dict(get_checkpoint_metadata(config, metadata))
        try:
            await self._plan_and_save(graph_thread, base, parent, checkpoint, plain_metadata, new_versions, inputs)
        except (Conflict, NotFound):
            if base is None:
                raise
            self._cache.remove(graph_thread.checkpoints)  # the cached base has been deleted meanwhile
            base = await self._base(graph_thread, parent)
            await self._plan_and_save(graph_thread, base, parent, checkpoint, plain_metadata, new_versions, inputs)
        return graph_thread.config(checkpoint["id"])

    def _announce(
        self, graph_thread: GraphThread, checkpoint: GraphCheckpoint, new_versions: ChannelVersions
    ) -> dict[str, Any]:
        """Encode the new channels that are dicts, as a turn's input is, and cache them before anything else is done:
        the first writes after a checkpoint repeat its input, and LangGraph sends them in another thread at once."""
        inputs = {
            channel: self._codec.encode(value, check_messages=True)
            for channel, value in checkpoint["channel_values"].items()
            if type(value) is dict and channel in new_versions
        }
        if inputs:
            self._cache.put(saving_key(graph_thread), CachedCheckpoint(checkpoint["id"], {}, inputs))
        return inputs

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        checkpoint_id = str(config["configurable"]["checkpoint_id"])
        await self._writes.put(GraphThread.from_config(config), checkpoint_id, writes, task_id, task_path)

    async def _plan_and_save(
        self,
        graph_thread: GraphThread,
        base: CachedCheckpoint | None,
        parent: str | None,
        checkpoint: GraphCheckpoint,
        metadata: dict[str, Any],
        new_versions: ChannelVersions,
        inputs: dict[str, Any],
    ) -> None:
        before = base or CachedCheckpoint("", {}, {})

        async def attempt(**how: bool) -> bool:
            delta = plan_delta(self._codec, before, checkpoint, new_versions, inputs, **how)
            return await self._save(graph_thread, base, parent, metadata, delta, replace="trust_versions" in how)

        try:
            saved = await attempt(check_messages=False)
        except EncodeError:  # a message holds something that only LangGraph's serializer can encode
            saved = await attempt(check_messages=True)
        if not saved:
            await attempt(check_messages=True, trust_versions=False)

    async def _save(
        self,
        graph_thread: GraphThread,
        base: CachedCheckpoint | None,
        parent: str | None,
        metadata: dict[str, Any],
        delta: CheckpointDelta,
        *,
        replace: bool,
    ) -> bool:
        """Save a checkpoint; False if there is one of this id and it shall not be replaced."""
        author = new_author()
        result = msgspec.structs.replace(delta.result, author=author)
        id = result.id
        thread: Any = self.store.thread(graph_thread.checkpoints)
        head = None if base is not None and id > base.id and not replace else await maybe_await(thread.head)
        late = head is not None and graph_id(head) > id  # the newest by id stays the head

        async def save(own_id: str) -> Checkpoint:
            custom = self._custom(metadata, own_id, id, parent, base, author)
            if base is None:
                return cast("Checkpoint", await maybe_await(thread.save(delta.set, id=own_id, custom=custom)))
            at: Any = {"expect": base.row, "on_conflict": "branch"} if late else {"parent": base.row}
            changes: Any = {"remove": delta.remove, "append": delta.append}
            saved = await maybe_await(thread.update(delta.set, id=own_id, custom=custom, **changes, **at))
            return cast("Checkpoint", saved)

        if replace:
            row = await self._replace(graph_thread, id, save, first=base is None)
        else:
            saved = await save(backtrail_id(id))
            row = saved.id
            if note_of(saved).get("by") != author:
                return False
        if late and base is None and head is not None:
            await maybe_await(thread.rewind(head.id))
        if not late:
            self._cache.put(graph_thread.checkpoints, msgspec.structs.replace(result, row=row))
        return True

    async def _replace(
        self, graph_thread: GraphThread, id: str, save: Callable[[str], Awaitable[Checkpoint]], *, first: bool
    ) -> str:
        """Save a checkpoint in place of the one that has its id, and return backtrail's id of it.

        A checkpoint of backtrail never changes, so the old one is deleted, and another is saved under its id. While
        that is done a third stands in for both: at every moment a reader finds the old content or the new one. If the
        old one belongs to the thread that this one was forked from, it stays there, and the stand-in stays here.
        """
        thread: Any = self.store.thread(graph_thread.checkpoints)
        old = await self.find(graph_thread, id)
        if old is not None:
            await self._writes.detach(graph_thread, await self._load_plain(graph_thread, old))
        self._cache.remove(graph_thread.checkpoints)
        await delete_if_present(thread, standin_id(id))
        # What has no parent is saved after the head: an empty state in between, and nothing of the old one is shared.
        empty = await maybe_await(thread.save({})) if first else None
        await save(standin_id(id))
        if empty is not None:
            await delete_if_present(thread, empty.id)
        await delete_if_present(thread, backtrail_id(id))
        saved = await save(backtrail_id(id))
        if saved.thread_id != graph_thread.checkpoints:
            return standin_id(id)
        await delete_if_present(thread, standin_id(id))
        return saved.id

    def _custom(
        self,
        metadata: dict[str, Any],
        own_id: str,
        id: str,
        parent: str | None,
        base: CachedCheckpoint | None,
        author: bytes,
    ) -> dict[str, Any]:
        """LangGraph's metadata, and the saver's note."""
        note: dict[str, Any] = {"by": author}
        if own_id != id:
            note["id"] = id
        if base is None or backtrail_id(base.id) != base.id:
            note["parent"] = parent
        else:
            note["after"] = uuid.UUID(base.id).bytes
        encoded = self._codec.encode(metadata)
        if self._codec.readable and RESERVED_KEY not in metadata:
            return with_note(encoded, note)
        return with_note({}, {**note, "metadata": encoded})

    async def _base(self, graph_thread: GraphThread, parent: str | None) -> CachedCheckpoint | None:
        """The checkpoint that a new one follows; None if it does not exist."""
        if parent is None:
            return None
        cached = self._cache.checkpoint(graph_thread.checkpoints, parent)
        if cached is not None:
            return cached
        found = await self.find(graph_thread, parent)
        return await self._load_plain(graph_thread, found) if found is not None else None

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        graph_thread = GraphThread.from_config(config)
        found = await self._named_by(config)
        return None if found is None else await self.load(graph_thread, found, cache=True)

    async def _named_by(self, config: RunnableConfig) -> Checkpoint | None:
        """The checkpoint that a config names, or else the newest."""
        graph_thread, id = GraphThread.from_config(config), config["configurable"].get("checkpoint_id") or None
        if id is not None:
            return await self.find(graph_thread, str(id))
        thread: Any = self.store.thread(graph_thread.checkpoints)
        found: Checkpoint | None = await maybe_await(thread.head)
        if found is None or _is_langgraphs(found):
            return found
        history = await maybe_await(thread.history(newest_first=True))
        return next(filter(_is_langgraphs, history), None)

    async def find(self, graph_thread: GraphThread, id: str) -> Checkpoint | None:
        """The checkpoint that has LangGraph's id; see `_replace` for those that have a stand-in."""
        thread: Any = self.store.thread(graph_thread.checkpoints)
        found: Checkpoint | None = await _get(thread, backtrail_id(id))
        if found is None or found.thread_id != graph_thread.checkpoints:
            found = await _get(thread, standin_id(id)) or found
        return found if found is not None and _is_langgraphs(found) else None

    async def _load_plain(self, graph_thread: GraphThread, found: Checkpoint) -> CachedCheckpoint:
        state = await maybe_await(self.store.thread(graph_thread.checkpoints).load(at=found.id))
        return CachedCheckpoint.from_state(graph_id(found), state, row=found.id, author=author_of(found))

    async def load(self, graph_thread: GraphThread, found: Checkpoint, *, cache: bool = False) -> CheckpointTuple:
        """A checkpoint with its values and pending writes. `cache`: a run is likely to continue from it."""
        codec, id = self._codec, graph_id(found)
        checkpoint = self._cache.checkpoint(graph_thread.checkpoints, id)
        if checkpoint is None or checkpoint.author != author_of(found):  # another process may have replaced it
            checkpoint = await self._load_plain(graph_thread, found)
        values = {channel: codec.decode(value) for channel, value in checkpoint.plain.items()}
        if cache and codec.readable:
            checkpoint = checkpoint.with_message_lists(values, immutable=codec.immutable)
            self._cache.put(graph_thread.checkpoints, checkpoint)
        values |= {channel: messages.copies() for channel, messages in checkpoint.message_lists.items()}
        parent = await self.parent_of(graph_thread, found)
        return CheckpointTuple(
            graph_thread.config(id),
            cast("GraphCheckpoint", {**codec.decode(checkpoint.bookkeeping), "id": id, "channel_values": values}),
            cast("CheckpointMetadata", self.metadata(found)),
            graph_thread.config(parent) if parent is not None else None,
            await self._writes.get(graph_thread, checkpoint, cache=cache),
        )

    async def parent_of(self, graph_thread: GraphThread, found: Checkpoint) -> str | None:
        """LangGraph's id of a checkpoint's parent. If that was deleted, the newest one before it that was not."""
        note = note_of(found)
        if "after" not in note:
            return cast("str | None", note.get("parent", found.parent_id))
        parent = str(uuid.UUID(bytes=note["after"]))
        if parent == found.parent_id or await self.find(graph_thread, parent) is not None:
            return parent
        return found.parent_id

    def metadata(self, found: Checkpoint) -> dict[str, Any]:
        """LangGraph's metadata of a checkpoint."""
        return cast("dict[str, Any]", self._codec.decode(metadata_of(found)))

    async def delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        """What the values of delta channels are rebuilt from: of each channel the last value that was stored before a
        checkpoint, and the writes since, oldest first."""
        graph_thread = GraphThread.from_config(config)
        writes: dict[str, list[tuple[str, str, Any]]] = {channel: [] for channel in channels}
        values: dict[str, Any] = {}
        found = await self._named_by(config)
        seen: set[str] = set()  # a checkpoint that was put again may have one of its descendants as its parent
        while found is not None and len(values) < len(writes):
            seen.add(graph_id(found))
            parent = await self.parent_of(graph_thread, found)
            found = await self.find(graph_thread, parent) if parent is not None and parent not in seen else None
            if found is None:
                break
            checkpoint = await self._load_plain(graph_thread, found)
            for write in reversed(await self._writes.get(graph_thread, checkpoint, only=writes.keys() - values.keys())):
                writes[write[1]].append(write)
            for channel in (writes.keys() - values.keys()) & checkpoint.plain.keys():
                values[channel] = self._codec.decode(checkpoint.plain[channel])
        history: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            history[channel] = {"writes": writes[channel][::-1]}
            if channel in values:
                history[channel]["seed"] = values[channel]
        return history

    # -- listing ------------------------------------------------------------------------------------------------------

    async def select(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> list[tuple[GraphThread, Checkpoint]]:
        """The checkpoints of a listing, newest first. No state is read."""
        configurable = config["configurable"] if config is not None else {}
        upper_bound = before["configurable"].get("checkpoint_id") if before is not None else None
        only = configurable.get("checkpoint_id") or None
        chosen: list[tuple[GraphThread, Checkpoint]] = []
        for graph_thread in await self.graph_threads(configurable.get("thread_id"), configurable.get("checkpoint_ns")):
            for checkpoint in await self.history(graph_thread):
                id = graph_id(checkpoint)
                if (upper_bound is not None and id >= upper_bound) or only not in (None, id):
                    continue
                metadata = self.metadata(checkpoint) if wanted else {}
                if all(_look_up(metadata, key) == value for key, value in (wanted or {}).items()):
                    chosen.append((graph_thread, checkpoint))
        chosen.sort(key=lambda pair: graph_id(pair[1]), reverse=True)
        return chosen if limit is None else chosen[: max(limit, 0)]

    async def history(self, graph_thread: GraphThread) -> list[Checkpoint]:
        """All checkpoints of a namespace that LangGraph wrote, abandoned branches included."""
        history = await maybe_await(self.store.thread(graph_thread.checkpoints).history(all=True))
        found: dict[str, Checkpoint] = {}
        for checkpoint in filter(_is_langgraphs, history):
            id = graph_id(checkpoint)
            if id not in found or checkpoint.id == standin_id(id):
                found[id] = checkpoint
        return list(found.values())

    async def graph_threads(self, thread_id: Any = None, ns: str | None = None) -> list[GraphThread]:
        """The namespaces of one LangGraph thread, or of all, that have checkpoints."""
        if thread_id is not None and ns is not None:
            return [GraphThread(str(thread_id), ns)]
        prefix = "" if thread_id is None else escape_part(str(thread_id))
        infos = await maybe_await(self.store.threads(prefix=prefix))
        found = [GraphThread.from_backtrail_thread(info.id) for info in infos]
        return [one for one in found if one is not None and (thread_id is None or one.thread_id == str(thread_id))]

    def forget(self, thread: str) -> None:
        """Drop the cached checkpoint, or the cached writes, of a backtrail thread."""
        self._cache.remove(thread)


async def _get(thread: Any, id: str) -> Checkpoint | None:
    try:
        return cast("Checkpoint", await maybe_await(thread.get(id)))
    except NotFound:
        return None


def author_of(checkpoint: Checkpoint) -> bytes:
    """Tells apart the checkpoints that had one id, one after the other."""
    return cast("bytes", note_of(checkpoint)["by"])


def _is_langgraphs(checkpoint: Checkpoint) -> bool:
    """True if a saver wrote the checkpoint; others may have been saved to the same thread by other means."""
    return RESERVED_KEY in checkpoint.custom


def _look_up(metadata: dict[str, Any], key: str) -> Any:
    """The value of a key, or of a path like `user.name` if there is no such key; None if there is neither."""
    if key in metadata:
        return metadata[key]
    value: Any = metadata
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
