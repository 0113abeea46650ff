"""pydantic-ai: `BacktrailConversationStore` is its `ConversationStore`.

A conversation is one backtrail thread: its messages as a list, each with the id of its entry, and the record beside
them. Saving appends the new messages in one checkpoint that expects the revision it was made for. A branch that was
rewritten, or left by `branch`, stays in the thread's earlier checkpoints, which `tips` names, and shares its messages
with the new one. A fork is a backtrail fork: one record, however long the conversation is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from backtrail.adapters.optional_import import require_extra
from backtrail.adapters.pydantic_ai_durability import BacktrailDurability
from backtrail.adapters.sync_bridge import SyncBridge, maybe_await
from backtrail.adapters.thread_ids import join_parts, split_parts
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound
from backtrail.lru import LRU
from backtrail.model import Checkpoint
from backtrail.store import Store

with require_extra("pydantic-ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter

__all__ = ["BacktrailConversationStore", "BacktrailDurability"]

_ID_PREFIX = "pydantic-ai"
_MESSAGES, _RECORD, _TIPS = "messages", "record", "tips"  # keys of the state
_MAX_CACHED_ENTRIES = 4096
_RECORD_ADAPTER: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)

_Item = dict[str, Any]  # an entry as it is stored
_Tips = dict[str, str]  # last entry of a branch that was left -> checkpoint that has it


class _StoredConversation(NamedTuple):
    """A conversation as it is stored, without its messages."""

    head: Checkpoint
    record: ConversationRecord
    tips: _Tips


class BacktrailConversationStore(ConversationStore):
    """Conversations on a backtrail store.

        conversation = await store.load("c-42") or Conversation(conversation_id="c-42")
        result = await agent.run("Hello", conversation=conversation)
        await store.save(result)

    Deleting a conversation frees its entries as soon as no fork shares them.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._bridge = SyncBridge(store)
        # entry id -> conversation id: without it, an entry is searched in all conversations
        self._conversation_by_entry: LRU[str, str] = LRU(_MAX_CACHED_ENTRIES)
        self._cache_lock = threading.Lock()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation."""
        stored = await self._bridge.run_async(self._read_stored(conversation_id))
        return stored.record if stored is not None else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records, newest first."""
        return await self._bridge.run_async(self._records(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Save a record and its new entries in one checkpoint, if the stored revision is the expected one."""
        await self._bridge.run_async(self._write(record, list(new_entries), expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, if its revision is the expected one."""
        await self._bridge.run_async(self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry; `KeyError` if no conversation has it."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, or the last `limit` of them, in a few reads."""
        return [] if head_id is None else await self._bridge.run_async(self._history(head_id, limit))

    # -- records ------------------------------------------------------------------------------------------------------

    def thread(self, conversation_id: str) -> Any:
        """The backtrail thread of a conversation, with its history, labels and diffs."""
        return self.store.thread(join_parts(_ID_PREFIX, conversation_id))

    async def _read_stored(self, conversation_id: str) -> _StoredConversation | None:
        thread = self.thread(conversation_id)
        head = await maybe_await(thread.head)
        if head is None:
            return None
        picked = await maybe_await(thread.pick([_RECORD, _TIPS], at=head.id))
        record = _RECORD_ADAPTER.validate_python(picked[_RECORD])
        if record.conversation_id != conversation_id:
            return None  # a fork that was not finished: its record is still the other conversation's
        self._remember(conversation_id, [record.head_id, *record.branches])
        return _StoredConversation(head, record, picked.get(_TIPS, {}))

    async def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        infos: Any = await maybe_await(self.store.threads(prefix=f"{_ID_PREFIX}/"))
        stored = [await self._read_stored(split_parts(info.id)[1]) for info in infos]
        records = [one.record for one in stored if one is not None and (scope is None or one.record.scope == scope)]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def _write(
        self, record: ConversationRecord, new: list[ConversationEntry], expected_revision: str | None
    ) -> None:
        conversation_id = record.conversation_id
        stored = await self._read_stored(conversation_id)
        if (stored.record.revision if stored is not None else None) != expected_revision:
            raise ConversationConflict(conversation_id)
        items = [_item(entry) for entry in new]
        after = new[0].parent_id if new else record.head_id
        try:
            if stored is not None:
                await self._update(stored, record, items, after)
            else:
                await self._create(record, items, after)
        except (Conflict, LookupError) as error:
            raise ConversationConflict(conversation_id) from error
        self._remember(conversation_id, [record.head_id, *record.branches])

    async def _update(
        self, stored: _StoredConversation, record: ConversationRecord, items: list[_Item], after: str | None
    ) -> None:
        """Append to the current branch, or leave it for one that continues from the entry `after`."""
        head, old, tips = stored
        changes: dict[str, Any] = {_RECORD: _RECORD_ADAPTER.dump_python(record, mode="json")}
        thread = self.thread(record.conversation_id)
        if after == old.head_id:
            await maybe_await(thread.update(changes, append=(_MESSAGES, items), expect=head.id))
            return
        if old.head_id is not None:
            changes[_TIPS] = {**tips, old.head_id: head.id}
        kept = await self._items(record.conversation_id, after) if after is not None else []
        await maybe_await(thread.update({**changes, _MESSAGES: kept + items}, expect=head.id))

    async def _create(self, record: ConversationRecord, items: list[_Item], after: str | None) -> None:
        """Begin a conversation: empty, or as a fork of the one that has the entry `after`."""
        changes: dict[str, Any] = {_RECORD: _RECORD_ADAPTER.dump_python(record, mode="json")}
        thread = self.thread(record.conversation_id)
        if after is None:
            await maybe_await(thread.save({_MESSAGES: items, **changes}, expect=None))
            return
        source = await self._conversation_of(after)
        kept = await self._items(source, after)
        if not await maybe_await(thread.exists()):
            await maybe_await(self.thread(source).fork(thread.id))
        head = await maybe_await(thread.head)
        await maybe_await(thread.update({**changes, _MESSAGES: kept + items, _TIPS: {}}, expect=head.id))

    async def _delete(self, conversation_id: str, expected_revision: str) -> None:
        stored = await self._read_stored(conversation_id)
        if stored is None or stored.record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            await maybe_await(self.thread(conversation_id).delete())
        except NotFound as error:
            raise ConversationConflict(conversation_id) from error

    # -- entries ------------------------------------------------------------------------------------------------------

    async def _history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        conversation_id = await self._conversation_of(head_id)
        if limit is not None:
            newest = await maybe_await(self.thread(conversation_id).tail(_MESSAGES, max(limit, 1)))
            if newest and newest[-1]["id"] == head_id:
                return _entries(newest) if limit else []
        items = await self._items(conversation_id, head_id)
        return _entries(items if limit is None else items[max(0, len(items) - limit) :])

    async def _items(self, conversation_id: str, last_entry: str) -> list[_Item]:
        """The items up to an entry, in the conversation's current branch or in one that was left."""
        thread = self.thread(conversation_id)
        stored = await self._read_stored(conversation_id)
        left_branches = stored.tips if stored is not None else {}
        for at in [None, *reversed(left_branches.values())]:
            items: list[_Item] = (await maybe_await(thread.pick([_MESSAGES], at=at))).get(_MESSAGES, [])
            for index, item in enumerate(items):
                if item["id"] == last_entry:
                    return items[: index + 1]
        raise KeyError(last_entry)

    async def _conversation_of(self, entry_id: str) -> str:
        with self._cache_lock:
            cached = self._conversation_by_entry.get(entry_id)
        if cached is not None and await maybe_await(self.thread(cached).exists()):
            return cached
        infos: Any = await maybe_await(self.store.threads(prefix=f"{_ID_PREFIX}/"))
        for info in infos:
            conversation_id = split_parts(info.id)[1]
            try:
                await self._items(conversation_id, entry_id)
            except (LookupError, NotFound):
                continue
            self._remember(conversation_id, [entry_id])
            return conversation_id
        raise KeyError(entry_id)

    def _remember(self, conversation_id: str, entry_ids: list[str | None]) -> None:
        with self._cache_lock:
            for entry_id in entry_ids:
                if entry_id is not None:
                    self._conversation_by_entry.put(entry_id, conversation_id)


def _item(entry: ConversationEntry) -> _Item:
    message = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")[0]
    return {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": message}


def _entries(items: list[_Item]) -> list[ConversationEntry]:
    messages = ModelMessagesTypeAdapter.validate_python([item["message"] for item in items])
    return [
        ConversationEntry(id=item["id"], parent_id=item["parent_id"], message=message, kind=item["kind"])
        for item, message in zip(items, messages, strict=True)
    ]
